"""Edits of anchors in YAML files: add, remove or change a phrase, start a condition.

The conditions file has the form that ships. Refused phrases have a file of their own: a mapping of conditions to lists
of phrases. Both are meant for version control: an edit changes one entry, comments and order stay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from whatelse.annotators import Anchor, AnchorSet
from whatelse.annotators.anchor_uses import as_anchor
from whatelse.annotators.anchors import ANCHOR_KEYS
from whatelse.annotators.discovery.yaml_edit import append, read_text, replace, write_text
from whatelse.errors import ConditionError, InputError
from whatelse.io.limits import parse_yaml
from whatelse.text import tokenize

REFUSED_HEAD = "# Phrases that were looked at and refused as anchors, by condition; they are not suggested again.\n"


def add_phrase(
    conditions_file: str | Path, condition: str, phrase: str, key: str = "notes", system: str | None = None
) -> None:
    """Add an anchor to a condition of a conditions file.

    key     where it is looked for: one of `anchors.ANCHOR_KEYS`; for "coded", `system` is its code system

    ConditionError if the condition is not there, has the anchor already, or another condition has it: an anchor stands
    for one condition only.
    """
    path, phrase = Path(conditions_file), _tidy(phrase)
    place, _ = _entries(path, condition, key, system)
    _refuse_known(path, condition, _checked(path, phrase, key, system))
    _edit(path, lambda text: append(text, place, phrase))


def take_out(
    conditions_file: str | Path, condition: str, phrase: str, key: str = "notes", system: str | None = None
) -> None:
    """Take an anchor out of a condition. ConditionError if it is not there."""
    path = Path(conditions_file)
    place, position = _find(path, condition, phrase, key, system)
    _edit(path, lambda text: replace(text, place, position, None))


def change_phrase(conditions_file: str | Path, condition: str, phrase: str, new: str, key: str = "notes") -> None:
    """Write an anchor of a condition in another way, where it stands. ConditionError as for adding it."""
    path, new = Path(conditions_file), _tidy(new)
    place, position = _find(path, condition, phrase, key, None)
    _refuse_known(path, condition, _checked(path, new, key, None), but=phrase)
    _edit(path, lambda text: replace(text, place, position, new))


def owner_of(conditions_file: str | Path, phrase: str, key: str = "notes", system: str | None = None) -> str | None:
    """The condition that has an anchor already, or None."""
    path = Path(conditions_file)
    new = _checked(path, _tidy(phrase), key, system)
    return next((c.name for c in read_conditions(path).conditions if any(_same(a, new) for a in c.anchors)), None)


def phrases_of(conditions_file: str | Path, condition: str) -> list[tuple[str, str, str | None]]:
    """The anchors of a condition as its file has them: (phrase, key, system), in order."""
    out: list[tuple[str, str, str | None]] = []
    for key, values in (_entries(Path(conditions_file), condition)[1] or {}).items():
        lists = values if key == "coded" else {None: values}
        out += [(value, key, system) for system, some in (lists or {}).items() for value in some or ()]
    return out


def new_condition(conditions_file: str | Path, name: str, phrase: str, title: str | None = None) -> None:
    """Start a condition with a name and one phrase of the notes; the file is made if it is not there."""
    path, name, phrase = Path(conditions_file), _tidy(name), _tidy(phrase)
    if not name:
        raise ConditionError(f"{path}: a condition needs a name")
    _checked(path, phrase, "notes", None)
    entry = {"name": name, "title": title or name[:1].upper() + name[1:], "anchors": {"notes": [phrase]}}
    if not path.exists():
        if not path.absolute().parent.is_dir():
            raise InputError("its folder does not exist; make it first", file=path)
        write_text(path, append("conditions: []\n", ["conditions"], entry))
        return
    if name in read_conditions(path).names:
        raise ConditionError(f"{path}: condition {name!r} is there already; add with 'whatelse anchors edit --add'")
    if (other := owner_of(path, phrase)) is not None:
        raise ConditionError(f"{path}: {phrase!r} is an anchor of {other!r}; choose another phrase")
    _edit(path, lambda text: append(text, ["conditions"], entry))


def refuse_phrase(refused_file: str | Path, condition: str, phrase: str) -> None:
    """Add a phrase to the refused phrases of a condition, unless it is there."""
    path, phrase = Path(refused_file), _tidy(phrase)
    if not phrase:
        raise ConditionError(f"{path}: there is no phrase to refuse")
    if not path.exists() or phrase not in read_refused(path).get(condition, ()):
        _edit(path, lambda text: append(text, [condition], phrase), REFUSED_HEAD)


def allow_phrase(refused_file: str | Path, condition: str, phrase: str) -> None:
    """Remove a phrase from the refused phrases of a condition, if it is there."""
    path = Path(refused_file)
    phrases = read_refused(path).get(condition, ()) if path.exists() else ()
    if _tidy(phrase) in phrases:
        _edit(path, lambda text: replace(text, [condition], phrases.index(_tidy(phrase)), None))


def read_refused(refused_file: str | Path) -> dict[str, tuple[str, ...]]:
    """Condition -> the phrases that were refused for it."""
    path = Path(refused_file)
    try:
        value: Any = parse_yaml(read_text(path), path) or {}
    except yaml.YAMLError:
        raise InputError("is not YAML: needs a mapping of conditions to lists of refused phrases", file=path) from None
    good = isinstance(value, dict) and all(
        isinstance(c, str) and isinstance(p, list) and all(isinstance(x, str) for x in p) for c, p in value.items()
    )
    if not good:
        raise InputError("needs a mapping of conditions to lists of refused phrases, in quotes if numbers", file=path)
    return {condition: tuple(phrases) for condition, phrases in value.items()}


def save_conditions(path: str | Path, anchors: AnchorSet) -> None:
    """Write conditions that came in another form (NHAMCS codes, a folder) in the form that ships and can be edited."""
    write_text(Path(path), yaml.safe_dump(anchors.to_json(), sort_keys=False, allow_unicode=True, width=110))


def read_conditions(conditions_file: str | Path) -> AnchorSet:
    """The conditions of a file in the form that can be edited; read anew only if its text is another."""
    return _content(Path(conditions_file))[1]


def _content(path: Path) -> tuple[Any, AnchorSet]:
    """The content of a conditions file in the form that ships: as values, never to be changed, and as conditions."""
    if path.is_dir() or not path.exists():
        found = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(f"{found}; needs a conditions file, as 'whatelse anchors edit --new' starts one", file=path)
    return _parsed(read_text(path), path)


@lru_cache(maxsize=4)
def _parsed(text: str, path: Path) -> tuple[Any, AnchorSet]:
    """`_content` of a text. Parsing takes a tenth of a second."""
    try:
        data = parse_yaml(text, path)
    except yaml.YAMLError:
        raise InputError("is not YAML", file=path) from None
    if isinstance(data, dict) and "conditions" not in data:
        raise InputError("has no list of 'conditions': only the form that ships can be edited", file=path)
    return data, AnchorSet.from_json(data, source=str(path))


def _checked(path: Path, phrase: str, key: str, system: str | None) -> Anchor:
    """The anchor as it will be read, or a ConditionError."""
    if key not in ANCHOR_KEYS:
        raise ConditionError(f"{path}: unknown kind of anchor {key!r}; known are {', '.join(ANCHOR_KEYS)}")
    if (key == "coded") != (system is not None):
        raise ConditionError(f"{path}: an anchor under 'coded' needs its code system, and no other has one")
    anchor = as_anchor(phrase, key, system, source=str(path))
    if anchor.how == "phrase" and not tokenize(phrase):
        raise ConditionError(f"{path}: {phrase!r} has no word in it")
    return anchor


def _same(a: Anchor, b: Anchor) -> bool:
    """Whether two anchors would fire together: the same words or code, in a field that both are looked for in."""
    if a.how == "phrase" or b.how == "phrase":
        cut = ([t.text for t in tokenize(x.value)] for x in (a, b))
        return a.how == b.how and next(cut) == next(cut)
    return a.value.lower() == b.value.lower() and a.system == b.system and bool(set(a.fields) & set(b.fields))


def _refuse_known(path: Path, condition: str, new: Anchor, but: str | None = None) -> None:
    """ConditionError if a condition has the anchor; `but`: an anchor of this condition that is replaced."""
    for other in read_conditions(path).conditions:
        for anchor in other.anchors:
            if _same(anchor, new) and not (other.name == condition and anchor.value == but):
                whose = "this condition already" if other.name == condition else f"condition {other.name!r}"
                advice = "an anchor stands for one condition: take it out there first, or choose a longer phrase"
                raise ConditionError(f"{path}: {new.value!r} is an anchor of {whose}; {advice}")


def _entries(path: Path, condition: str, *keys: str | None) -> tuple[list[Any], Any]:
    """The place of a condition's anchors in the file (under these keys), and what stands there; None: nothing."""
    data, known = _content(path)
    if condition not in known.names:
        raise ConditionError(f"{path}: there is no condition {condition!r}; it has {', '.join(known.names)}")
    place = ["conditions", known.names.index(condition), "anchors", *(key for key in keys if key is not None)]
    for step in place:
        data = data[step] if isinstance(step, int) else (data or {}).get(step)
    return place, data


def _find(path: Path, condition: str, phrase: str, key: str, system: str | None) -> tuple[list[Any], int]:
    """Where an anchor stands: the list's place in the file, and the position in it."""
    place, entries = _entries(path, condition, key, system)
    known = [_tidy(entry) for entry in entries or ()]
    if _tidy(phrase) not in known:
        raise ConditionError(f"{path}: {phrase!r} is no anchor of {condition!r} under {key!r}")
    return place, known.index(_tidy(phrase))


def _edit(path: Path, change: Callable[[str], str], new: str = "") -> None:
    """Change the text of a file; new: the text of a file that does not exist yet. Errors name the file."""
    try:
        text = change(read_text(path) if path.exists() else new)
    except InputError as problem:
        raise InputError(problem.problem, file=path) from None
    write_text(path, text)


def _tidy(phrase: str) -> str:
    return " ".join(phrase.split())
