"""Readers of two published forms of conditions and anchors.

- a JSON object by condition with `icd10_prefixes`, `cause_prefixes`, `anchor_reasons` (NHAMCS reason-for-visit
  codes) and `anchor_drugs` (drug labels);
- a folder of files with one `source|identifier` on each line, a file for each condition, named `<condition>_acute` or
  `<condition>_history`, and a `legend.txt` that says what they mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whatelse.annotators.anchors import DRUG_FIELDS, Anchor, Condition, Kind, plain_code
from whatelse.errors import ConditionError
from whatelse.io.limits import shipped_yaml
from whatelse.visits import Code

_NHAMCS_KEYS = ("icd10_prefixes", "cause_prefixes", "anchor_reasons", "anchor_drugs")

_FOLDER = shipped_yaml("whatelse.annotators", "anchor_folder.yaml")


def read_nhamcs(value: dict[str, Any], source: str) -> tuple[Condition, ...]:
    """Conditions from the parsed JSON object. Reasons anchor by code, drugs by label."""
    out = []
    for name, entry in value.items():
        where = f"{source}: condition {name!r}"
        if not isinstance(entry, dict):
            raise ConditionError(f"{where} must be an object with {', '.join(_NHAMCS_KEYS)}")
        for key in _NHAMCS_KEYS:
            items = entry.get(key)
            if not isinstance(items, list) or not all(isinstance(i, str) and i for i in items):
                raise ConditionError(f"{where}: {key!r} must be a list of codes")
        codes = {
            system: tuple(plain_code(Code(system, p)) for p in entry[key])
            for system, key in (("icd10", "icd10_prefixes"), ("cause", "cause_prefixes"))
            if entry[key]
        }
        reasons = [Anchor("code", code, ("coded",), "rfv") for code in entry["anchor_reasons"]]
        drugs = [Anchor("label", label, DRUG_FIELDS) for label in entry["anchor_drugs"]]
        kind: Kind = "history" if str(name).endswith("history") else "acute"
        out.append(Condition(str(name), str(name).capitalize(), kind, codes, (*reasons, *drugs)))
    return tuple(out)


def read_folder(folder: Path) -> tuple[Condition, ...]:
    """Conditions from a folder of `source|identifier` files, in the order of their file names.

    `icd9` lines are the codes to evaluate by, drugs are GSN codes, and the number token of the published text
    processing, `simnum`, is any number ("#").
    """
    inner = folder / "conditions" if (folder / "conditions").is_dir() else folder
    legend = _legend(folder / "legend.txt") | _legend(inner / "legend.txt")
    out = []
    for path in sorted(p for p in inner.iterdir() if p.is_file() and p.name != "legend.txt" and p.name[0] != "."):
        stem, _, suffix = path.name.rpartition("_")
        if suffix not in ("acute", "history") or not stem:
            raise ConditionError(f"{path}: a file of anchors is named <condition>_acute or <condition>_history")
        kind: Kind = "history" if suffix == "history" else "acute"
        codes, anchors = _lines(path)
        title = legend.get(path.name, stem).capitalize()
        out.append(Condition(_FOLDER["names"].get(stem, stem), title, kind, {"icd9": codes} if codes else {}, anchors))
    if not out:
        raise ConditionError(f"{inner}: no files of anchors here; needs files named <condition>_acute or _history")
    return tuple(out)


def _lines(path: Path) -> tuple[tuple[str, ...], tuple[Anchor, ...]]:
    """The ICD-9 codes and the anchors of one file."""
    codes: list[str] = []
    anchors: dict[Anchor, None] = {}
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConditionError(f"{path}: cannot be read as text ({type(problem).__name__})") from None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        source, bar, identifier = (part.strip() for part in line.partition("|"))
        if not bar or not identifier:
            raise ConditionError(f"{path}, line {number}: needs 'source|identifier'")
        if source == "icd9":
            codes.append(plain_code(Code("icd9", identifier)))
        elif source not in _FOLDER["sources"]:
            known = ", ".join(["icd9", *_FOLDER["sources"]])
            raise ConditionError(f"{path}, line {number}: unknown source {source!r}; known are {known}")
        elif source.startswith("med "):
            anchors[Anchor("code", identifier, (_FOLDER["sources"][source],), "gsn")] = None
        else:
            anchors[Anchor("phrase", identifier.replace("simnum", "#"), (_FOLDER["sources"][source],))] = None
    return tuple(codes), tuple(anchors)


def _legend(path: Path) -> dict[str, str]:
    """File name -> what it means, from lines of `name -- meaning`."""
    if not path.is_file():
        return {}
    lines = path.read_text("utf-8", errors="replace").splitlines()
    return {a.strip(): b.strip() for a, dash, b in (line.partition(" -- ") for line in lines) if dash}
