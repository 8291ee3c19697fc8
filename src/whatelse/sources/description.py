"""Description: how to read files of one kind, in one YAML file (or dict) for every command.

    source: table                 any of `registry.SOURCES`; table if it is not said
    delimiter: ";"                table: found out if it is not said, and so is the encoding
    encoding: latin-1
    id: visit_no                  … and every line of a column map (`columns.py`)

The description is saved with a cohort and with every model learned from it, so that `tag` and `serve` read files like
those learned from without being told again. It names columns and codes, never a path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from whatelse.errors import InputError
from whatelse.io.limits import read_yaml, yaml_problem
from whatelse.sources.columns import FIELDS, ColumnMap, column_map, near

OTHER_KEYS = ("source", "delimiter", "encoding", "missing", "shown", "labels", "codings")
TABS = {"tab": "\t", "\\t": "\t"}


@dataclass(frozen=True, slots=True)
class Description:
    """source: its name in the registry; columns: the column map of a table; labels: a folder of label tables.

    options: what else the source takes, by name
    given: the content it was made of, as JSON values, which `describe` makes into an equal description.
    """

    source: str
    columns: ColumnMap
    delimiter: str | None = None
    encoding: str | None = None
    labels: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)


def describe(
    given: str | Path | Mapping[str, Any] | None,
    *,
    saved: Mapping[str, Any] | None = None,
    source: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    labels: str | Path | None = None,
    options: Mapping[str, str] | None = None,
) -> Description:
    """A description from a YAML file, a mapping, or None for a table whose columns bear the names of fields.

    saved   what came with a cohort or model: used where neither `given` nor `source` says otherwise
    source, delimiter, encoding, labels   said on the command line: they count for more than the file
    """
    from_saved = given is None and source is None and bool(saved)
    content, file = _content(saved if from_saved else given)
    said = {"source": source, "delimiter": delimiter, "encoding": encoding}
    content |= {name: value for name, value in said.items() if value is not None}
    if unknown := [str(name) for name in content if name not in (*FIELDS, *OTHER_KEYS)]:
        known = f"fields: {', '.join(FIELDS)}; beside them {', '.join(OTHER_KEYS[:-2])}"
        hint = near(unknown[0], FIELDS)
        raise InputError(f"the column map names {unknown[0]!r}, which is not a field{hint}; {known}", file=file)
    for name in said:
        if not isinstance(content.get(name, ""), str):
            raise InputError(f"{name!r} in the description must be text", file=file)
    if content.get("labels") and labels is None:
        raise InputError(
            "these files were read with label tables, which name the findings: give their folder with --labels"
        )
    if content.get("codings") and "codings" not in (options or {}):
        raise InputError("these records were read with codings of the hospital's own: give --option codings=FILE")
    kind = content.get("source", "table").replace("_", "-")
    content = {k: v for k, v in content.items() if k not in ("source", "labels", "codings")} | {"source": kind}
    if labels is not None:
        content["labels"] = True
    if options and "codings" in options:
        content["codings"] = True
    separator = content.get("delimiter")
    return Description(
        source=kind,
        columns=column_map(content, file, from_saved),
        delimiter=TABS.get(separator, separator) if separator is not None else None,
        encoding=content.get("encoding"),
        labels=Path(labels) if labels is not None else None,
        options=dict(options or {}),
        given=_plain(content),
    )


def _content(given: str | Path | Mapping[str, Any] | None) -> tuple[dict[str, Any], Path | None]:
    if given is None:
        return {}, None
    if isinstance(given, Mapping):
        return dict(given), None
    file = Path(given)
    try:
        content = read_yaml(file)
    except FileNotFoundError:
        raise InputError("no such column map; 'whatelse inspect FILE --out MAP' writes one", file=file) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise InputError(f"the column map {yaml_problem(problem)}", file=file) from None
    if content is not None and not isinstance(content, dict):
        raise InputError("a column map has lines of the form 'field: column'", file=file)
    if isinstance(content, dict) and content.get("labels"):
        raise InputError("'labels' is not for a description, which names no path: give --labels FOLDER", file=file)
    return content or {}, file


def _plain(value: Any) -> Any:
    """JSON values: the keys of mappings are text, as JSON has them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
