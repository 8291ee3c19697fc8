"""Assertion rules: cue phrases and what they do, read from a YAML file.

A rules file has these lists of phrases for negation (any may be left out):

    before      negates the words that follow, up to a stop            no, denies, without, no evidence of
    clause      as `before`, up to a comma, unless an "or" follows     not   ("not measured, cough"; "not red or sore")
    near        as `before`, up to an open word or `reach` words       possible
    before_if   as `before`, where a phrase of `confirm` ends it        "male with" ... "who presents with"
    confirm     a stop; see `before_if`
    next_word   negates one word, the one that follows                 "-", non
    prefix      as `next_word`, where no blank stands between          "-"   ("-fever", not "HEENT - normal")
    after       negates the words that stand before, back to a stop    ruled out, is absent
                or an open word, `reach` words at most
    suffix      as `after`, where no blank stands between              "?"   ("LOC?"; used by `possible`)
    answer      as `after`, where a stop, an open sign or the end      no   ("fever: no, cough: yes")
                follows
    alone       a sentence that is nothing but the phrase               hypertension   (an entry of a problem list;
                has the assertion                                       used by `historical`)
    itself      its own words have the assertion                       husband fell   (used by `other`)
    pseudo      looks like one of the above and does nothing           no change, gram negative
    stop        ends a scope, in both directions                       but, ".", "newline"
    close       a stop for a scope that began in the same brackets     ")"   ("fever (not measured), cough")
    turn        a stop between a disease or procedure and a complaint, "," with   ("hx lung ca, facial swelling";
                where a lexicon tells which is which; a `near` phrase   used by `historical`)
                of it does nothing before a complaint ("s/p wrist fx")
    open        words and signs that end the reach of `after`, `near`  ",", with
    reach       how many words `after` and `near` reach; a number      8

`present`, `possible`, `historical`, `hypothetical` and `other` (person) are mappings with the same lists. A file
without them gives only present and negated. Cues of `present` take words out of the history ("x 2 days").

    sections    {assertion: [headings]}: the default until the next heading ("PMH:", or alone on its line);
                `end` lists phrases that end a section without a heading ("presents with")
    join        words and signs after which a line break ends nothing ("denies fever,\\nchills")
    words       {name: [words]}: "{name}" in a phrase stands for each of them
    about       text for people

A phrase is cut into words as a note is, so a digit stands for any digit ("in 0000"); `newline` is a line break. Where
several phrases of one class match at one place the longest counts. A phrase may be in several lists: the paper's "-"
is a stop and negates the next word; "no" is an answer where it can be, else `before`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from whatelse.errors import InputError
from whatelse.io.limits import read_yaml
from whatelse.text.assertion import (
    ASSERTIONS,
    END_SECTION,
    JOINS,
    KINDS,
    LONGEST,
    NEGATED,
    NO_LIMIT,
    SECTIONS,
    CueTables,
)
from whatelse.text.pieces import cut
from whatelse.text.trie import build_trie

SIGNS = (":", "\n", "-", ",", "or", "(")  # that the compiled pass knows by name
CLASSES = {name: code for code, name in enumerate(ASSERTIONS) if code != NEGATED}
SHIPPED = ("default", "paper")
MOST_PHRASES = 200_000  # after `words` are put in

Phrases = dict[tuple[str, ...], int]  # words of a phrase -> what it does


@dataclass(frozen=True)
class Rules:
    """Rules ready for use.

    phrases    what the rules file holds, without `about`: the rules themselves, which a vocabulary carries along
    cue_words  word or sign of a cue phrase -> its number in `tables`
    tables     the cue phrases as arrays
    name       `default`, `paper` or the name of the file they were read from: for people, never opened again
    """

    phrases: Mapping[str, Any]
    cue_words: Mapping[str, int] = field(repr=False, compare=False)
    tables: CueTables = field(repr=False, compare=False)
    name: str = field(default="", compare=False)

    def to_json(self) -> dict[str, Any]:
        """Name and phrases, as JSON values."""
        return {"name": self.name, "phrases": {**self.phrases}}

    @classmethod
    def from_json(cls, value: Any) -> Rules:
        """What `to_json` wrote; opens no file."""
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or set(value) != {"name", "phrases"}:
            raise InputError("assertion rules need a 'name' and their 'phrases'")
        return _rules(value["phrases"], value["name"], "assertion rules")


def load_rules(rules: str | Path | Rules = "default") -> Rules:
    """`default`, `paper`, a path to a rules file, or rules that are loaded already."""
    if isinstance(rules, Rules):
        return rules
    return _load_shipped(str(rules), str(rules)) if rules in SHIPPED else _load_file(Path(rules))


def load_named_rules(name: str) -> Rules:
    """The rules that a vocabulary of schema 1 names: `default` was negation only then."""
    return _load_shipped(name, "negation" if name == "default" else name)


@lru_cache
def _load_shipped(name: str, file: str) -> Rules:
    return _rules(yaml.safe_load((files("whatelse.text") / f"{file}.yaml").read_text("utf-8")), name, f"{file}.yaml")


def _load_file(path: Path) -> Rules:
    try:
        content: Any = read_yaml(path)
    except (OSError, UnicodeDecodeError) as problem:
        shipped = " or ".join(map(repr, SHIPPED))
        raise InputError(f"cannot be read as assertion rules; give {shipped} or a YAML file", file=path) from problem
    except yaml.YAMLError as problem:
        raise InputError("is not YAML; see docs/text.md for what a rules file holds", file=path) from problem
    return _rules(content, path.name, str(path))


def _rules(table: Any, name: str, file: str) -> Rules:
    """Rules from the parsed content of a rules file."""
    table = _mapping(
        table, "a rules file", ["about", *KINDS, "open", "reach", "join", *CLASSES, "sections", "words"], file
    )
    flat: dict[str, Any] = {key: table[key] for key in ("words", "sections", *CLASSES) if table.get(key) is not None}
    words = {
        key: _strings(value, f"words, {key}", file)
        for key, value in _mapping(flat.get("words", {}), "'words'", None, file).items()
    }
    classes = {NEGATED: {key: table[key] for key in (*KINDS, "open", "reach") if table.get(key)}}
    for key, code in CLASSES.items():
        if key in flat:
            classes[code] = _mapping(flat[key], f"'{key}'", [*KINDS, "open", "reach"], file)
    kept: dict[str, Any] = {}
    phrases: dict[int, Phrases] = {}
    opens: dict[int, list[str]] = {}
    reach: dict[int, int] = {}
    for code, lists in classes.items():
        mine = {key: _strings(lists[key], key, file) for key in (*KINDS, "open") if lists.get(key)}
        found: Phrases = {}
        for key, kind in KINDS.items():
            for cue in _expand(mine.get(key, []), words, file):
                found[cue] = found.get(cue, 0) | kind
        phrases[code] = found
        opens[code] = _single(mine.get("open", []), "open", words, file)
        reach[code] = _reach(lists.get("reach", NO_LIMIT), file)
        content: dict[str, Any] = {**mine, **({"reach": reach[code]} if "reach" in lists else {})}
        kept.update(content if code == NEGATED else {ASSERTIONS[code]: content})
    if "sections" in flat:
        given = _mapping(flat["sections"], "'sections'", [*ASSERTIONS, "end"], file)
        headings = {key: _strings(given[key], f"sections, {key}", file) for key in given if given[key]}
        phrases[SECTIONS] = {}
        for key, some in headings.items():
            kind = END_SECTION if key == "end" else 1 << ASSERTIONS.index(key)
            phrases[SECTIONS].update(dict.fromkeys(_expand(some, words, file), kind))
        kept["sections"] = headings
    if words:
        kept["words"] = words
    if table.get("join"):
        kept["join"] = _strings(table["join"], "join", file)
    joins = _single(kept.get("join", []), "join", words, file)
    return Rules(kept, *_compile(phrases, opens, reach, joins), name)


def _single(phrases: list[str], name: str, words: Mapping[str, list[str]], file: str) -> list[str]:
    """The phrases of a list that takes single words and signs."""
    cut = list(_expand(phrases, words, file))
    if any(len(cue) > 1 for cue in cut):
        raise InputError(f"'{name}' takes single words and signs only", file=file)
    return [cue[0] for cue in cut]


def _compile(
    phrases: Mapping[int, Phrases], opens: Mapping[int, list[str]], reach: Mapping[int, int], joins: list[str]
) -> tuple[dict[str, int], CueTables]:
    """Number the cue words; phrases as tries."""
    every = chain(*(chain.from_iterable(found) for found in phrases.values()), *opens.values(), joins, SIGNS)
    cue_words = {word: k for k, word in enumerate(dict.fromkeys(every))}
    count, width = len(ASSERTIONS) + 1, len(cue_words)
    numbered = [
        ([code * width + cue_words[cue[0]], *map(cue_words.__getitem__, cue[1:])], bits)
        for code, found in phrases.items()
        for cue, bits in found.items()
    ]
    trie = build_trie(numbered, count * width, nothing=0)
    uses = ((trie.root.reshape(count, width) > 0) << np.arange(count)[:, None]).sum(axis=0).astype(np.int32)
    for code, some in opens.items():
        uses[[cue_words[word] for word in some]] |= 1 << (8 + code)
    uses[[cue_words[word] for word in joins]] |= JOINS
    reaches = np.array([reach.get(code, NO_LIMIT) for code in range(count)], np.int32)
    return cue_words, CueTables(uses, trie, reaches, np.array([cue_words[sign] for sign in SIGNS], np.int32))


_SLOT = re.compile(r"\{(\w+)\}")


def _expand(phrases: list[str], words: Mapping[str, list[str]], file: str) -> Iterator[tuple[str, ...]]:
    """Phrases as a note would be cut, with each word of a list in the place of its {name}."""
    for phrase in phrases:
        parts = _SLOT.split(phrase)  # text, name, text, name, ..., text
        unknown = set(parts[1::2]) - set(words)
        if unknown:
            raise InputError(f"'{phrase}' names a list that 'words' does not have: {min(unknown)}", file=file)
        options = [words[part] if k % 2 else [part] for k, part in enumerate(parts)]
        if np.prod([float(len(some)) for some in options]) > MOST_PHRASES:
            raise InputError(f"'{phrase}' stands for more than {MOST_PHRASES:,} phrases", file=file)
        for choice in product(*options):
            cue = _cut("".join(choice))
            if len(cue) > LONGEST:
                raise InputError(f"'{phrase}' has more than {LONGEST} words and signs", file=file)
            yield cue


def _cut(phrase: str) -> tuple[str, ...]:
    """A phrase as a note would be cut; `newline` stands for the line break, which YAML cannot show."""
    text = re.sub(r"(?:^|(?<=\s))newline$", "\n", phrase.strip())
    return tuple(word for word, _, _ in cut(text))


def _reach(value: Any, file: str) -> int:
    if type(value) is not int or not 0 < value <= NO_LIMIT:
        raise InputError("'reach' must be a number of words", file=file)
    return value


def _mapping(value: Any, name: str, keys: list[str] | None, file: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{name} must be a mapping", file=file)
    if keys is not None and not set(value) <= set(keys):
        raise InputError(f"{name} is a mapping with keys among {', '.join(keys)}", file=file)
    return value


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
