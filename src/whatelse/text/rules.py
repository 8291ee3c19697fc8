"""Negation rules: phrases and what they do, read from a YAML file.

A rules file has these lists of phrases (any may be left out), and nothing else but `about`:

    before      negates the words that follow, up to a stop            no, denies, without, no evidence of
    next_word   negates one word, the one that follows                 "-", non
    prefix      as `next_word`, where no blank stands between          "-"   ("-fever", not "HEENT - normal")
    after       negates the words that stand before, back to a stop    ruled out, is absent
    answer      as `after`, where a stop, an open sign or the end      no   ("fever: no, cough: yes")
                follows
    pseudo      looks like one of the above and does nothing           no change, gram negative
    stop        ends what is being negated, in both directions         but, ".", "newline"
    open        words and signs that end the reach back of `after`     ",", with

A phrase is cut into words as a note is; where several match at one place the longest counts. A phrase may be in
several lists: the paper's "-" is a stop and negates the next word; "no" is an answer where it can be, else `before`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from whatelse.errors import InputError
from whatelse.limits import read_yaml
from whatelse.text.pieces import lower, pieces, read

BEFORE, NEXT_WORD, PREFIX, AFTER, ANSWER, PSEUDO, STOP = (1 << i for i in range(7))
NEGATES = BEFORE | NEXT_WORD | PREFIX | AFTER
KINDS = {
    "before": BEFORE,
    "next_word": NEXT_WORD,
    "prefix": PREFIX,
    "after": AFTER,
    "answer": ANSWER,
    "pseudo": PSEUDO,
    "stop": STOP,
}
SHIPPED = ("default", "paper")


# Plain tuples: `tokenize` unpacks them once a word, which named tuples make three times slower.
# Entry: the phrases that start with one word. What that word does alone (0: nothing), and by second word the longer
# phrases, longest first, each as (its words from the second on, its kinds).
Entry = tuple[int, dict[str, list[tuple[tuple[str, ...], int]]]]
# Piece: text, WORD or SIGN or BLANK, offset of the text in the piece, its length, offset of the next piece, phrases.
Piece = tuple[str, int, int, int, int, Entry | None]


class Memo(dict[str, tuple[Piece, ...]]):
    """What stands between two spaces -> its pieces. Filled as it is met, for notes use few words again and again.

    Bounded: long strings are not kept, and when it is full it starts afresh (about 45 MB).
    """

    MAX_ENTRIES, MAX_LENGTH = 1 << 17, 32

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.entries = entries

    def __missing__(self, between: str) -> tuple[Piece, ...]:
        cut = pieces(between) or [""]
        widths = [*map(len, cut[:-1]), len(cut[-1]) + 1]  # the last is followed by the space
        result = tuple(
            [
                (*reading, width, self.entries.get(reading[0]))
                for reading, width in zip(map(read, cut), widths, strict=True)
            ]
        )
        if len(between) <= self.MAX_LENGTH:
            if len(self) >= self.MAX_ENTRIES:
                self.clear()
            self[between] = result
        return result


@dataclass(frozen=True)
class Rules:
    """Rules ready for use: by first word, the phrases that start with it; and the words of `open`.

    name     `default`, `paper` or the name of the file they were read from: for people, never opened again
    phrases  what the rules file holds, {list: its phrases}: the rules themselves, which a vocabulary carries along
    """

    entries: Mapping[str, Entry]
    opens: frozenset[str] = frozenset()
    name: str = field(default="", compare=False)
    phrases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    memo: Memo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "memo", Memo(self.entries))

    def to_json(self) -> dict[str, Any]:
        """Name and phrases, as JSON values."""
        return {"name": self.name, "phrases": {key: list(phrases) for key, phrases in self.phrases.items()}}

    @classmethod
    def from_json(cls, value: Any) -> Rules:
        """What `to_json` wrote; opens no file."""
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or set(value) != {"name", "phrases"}:
            raise InputError("negation rules need a 'name' and their 'phrases'")
        return _rules(value["phrases"], value["name"], "negation rules")


def load_rules(rules: str | Path | Rules = "default") -> Rules:
    """`default`, `paper`, a path to a rules file, or rules that are loaded already."""
    if isinstance(rules, Rules):
        return rules
    return _load_shipped(rules) if rules in SHIPPED else _load_file(Path(rules))


@lru_cache(maxsize=len(SHIPPED))
def _load_shipped(name: str) -> Rules:
    return _rules(yaml.safe_load((files("whatelse.text") / f"{name}.yaml").read_text("utf-8")), name, f"{name}.yaml")


def _load_file(path: Path) -> Rules:
    try:
        content: Any = read_yaml(path)
    except (OSError, UnicodeDecodeError) as problem:
        shipped = " or ".join(map(repr, SHIPPED))
        raise InputError(f"cannot be read as negation rules; give {shipped} or a YAML file", file=path) from problem
    except yaml.YAMLError as problem:
        raise InputError("is not YAML; see docs/text.md for what a rules file holds", file=path) from problem
    return _rules(content, path.name, str(path))


def _rules(table: Any, name: str, file: str) -> Rules:
    """Rules from the parsed content of a rules file."""
    if not isinstance(table, dict) or not set(table) <= {*KINDS, "open", "about"}:
        allowed = ", ".join(["about", *KINDS, "open"])
        raise InputError(f"a rules file is a mapping with keys among {allowed}", file=file)
    phrases = {key: tuple(_strings(table[key], key, file)) for key in (*KINDS, "open") if table.get(key)}
    kinds: dict[tuple[str, ...], int] = {}
    for key, kind in KINDS.items():
        for phrase in phrases.get(key, ()):
            words = _cut(phrase)
            kinds[words] = kinds.get(words, 0) | kind
    entries: dict[str, Entry] = {}
    for words in sorted(kinds, key=len, reverse=True):
        _, longer = entries.setdefault(words[0], (kinds.get(words[:1], 0), {}))
        if len(words) > 1:
            longer.setdefault(words[1], []).append((words[1:], kinds[words]))
    opens = [_cut(phrase) for phrase in phrases.get("open", ())]
    if any(len(words) > 1 for words in opens):
        raise InputError("'open' takes single words and signs only", file=file)
    return Rules(entries, frozenset(words[0] for words in opens), name, phrases)


def _cut(phrase: str) -> tuple[str, ...]:
    """A phrase as a note would be cut; `newline` stands for the line break, which YAML cannot show."""
    return tuple(read(piece)[0] for piece in pieces(lower("\n" if phrase == "newline" else phrase.strip())))


def _strings(value: Any, name: str, file: str) -> list[str]:
    """The phrases of one list, which may be written as a list of lists to group them."""
    grouped = isinstance(value, list) and any(isinstance(v, list) for v in value)
    items = list(chain.from_iterable(v if isinstance(v, list) else [v] for v in value)) if grouped else value
    if not isinstance(items, list) or not all(isinstance(v, str) and v.strip() for v in items):
        raise InputError(
            f'\'{name}\' must be a list of phrases; quote the ones YAML reads otherwise, such as "no" and "-"',
            file=file,
        )
    return items
