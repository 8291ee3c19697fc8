"""Tables: CSV and the like, JSON Lines, Parquet and data frames, each read in a stream.

`row` counts data rows from 1. Messages about CSV also give the line of the file: a header and quoted line breaks shift
the count. Data frames (pandas, polars, Arrow, DuckDB …) come through the Arrow PyCapsule interface or the older
dataframe interchange protocol; none of those libraries is imported.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from whatelse.errors import InputError
from whatelse.io.limits import check_growth, regular
from whatelse.sources.columns import ColumnMap, Places, locate, need_columns, normal
from whatelse.sources.convert import Converter
from whatelse.sources.description import Description
from whatelse.sources.report import BadValue, Report
from whatelse.sources.textfile import COMPRESSION, Text, damage, detect_encoding, open_bytes, open_text, spoiled
from whatelse.visits import Visit

DELIMITERS = ",;\t|"
LONGEST = 64 << 20  # characters in a cell; a quote that is never closed would otherwise eat the whole file
BATCH = 2_000
FRAME = "the data frame"
DAMAGED = "cannot be read as a Parquet file: damaged or cut short; save it again"
SUFFIXES: dict[str, Literal["csv", "jsonl", "parquet"]] = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".psv"), "csv"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}


def read_table(path: Path, report: Report, how: Description) -> Iterator[tuple[int, Visit]]:
    """(data row from 1, visit) for every row of a table that can be used."""
    kind, columns = table_format(path), how.columns
    if kind == "parquet":
        return _read_parquet(path, report, columns)
    text = detect_encoding(path, how.encoding)
    if kind == "jsonl":
        return _read_jsonl(path, report, columns, text)
    return _read_csv(path, report, columns, text, how.delimiter)


def table_format(path: Path) -> Literal["csv", "jsonl", "parquet"]:
    """By the file's name; where that does not say, by how it starts."""
    for suffix in reversed([suffix.lower() for suffix in path.suffixes]):
        if suffix in SUFFIXES:
            return SUFFIXES[suffix]
        if suffix not in COMPRESSION:
            break
    with damage(path), open_bytes(path) as stream:
        start = stream.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    return "parquet" if start.startswith(b"PAR1") else "jsonl" if start.startswith(b"{") else "csv"


def _read_csv(
    path: Path, report: Report, columns: ColumnMap, text: Text, delimiter: str | None
) -> Iterator[tuple[int, Visit]]:
    with damage(path), open_text(path, text, newline="") as stream:
        try:
            table = open_csv(stream, path, delimiter, columns.names())
        except csv.Error:
            raise InputError("the header is not valid CSV: quotes do not match", file=path) from None
        header, reader = table.header, table.rows
        places = locate(columns, header, path)
        make = Converter(columns, places, report, stem(path))
        used = [] if text.clean else positions(places)
        row = 0
        while True:
            line = table.skipped + reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                row += 1
                _malformed(error, report, path, row, line)
                continue
            if not cells:
                continue  # a blank line
            row += 1
            try:
                if len(cells) != len(header):
                    few = len(cells) < len(header)
                    raise BadValue(f"row has {'fewer' if few else 'more'} columns than the header")
                for at in used:
                    if why := spoiled(cells[at]):
                        raise BadValue(why, header[at])
                visit = make(cells, row)
            except BadValue as bad:
                problem = f"{bad.problem} (line {line} of the file)"
                report.leave_out(bad.kind, InputError(problem, file=path, row=row, column=bad.column))
                continue
            yield row, visit
    if row == 0:
        raise InputError("has a header but no rows", file=path)


class CsvTable(NamedTuple):
    """header: its cells; rows: reader of the rows after it; skipped: blank lines before the header."""

    header: list[str]
    rows: Any
    delimiter: str
    skipped: int


def open_csv(
    stream: io.TextIOWrapper, path: Path, delimiter: str | None, wanted: Iterable[str], *, strict: bool = True
) -> CsvTable:
    """Read the header of a CSV table. wanted: column names by which the delimiter is found if it is not given."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    skipped, line = next(((k, line) for k, line in enumerate(stream) if line.strip()), (0, ""))
    if not line:
        raise InputError("is empty; export it again, with a header and rows", file=path)
    delimiter = delimiter if delimiter is not None else find_delimiter(line, path, wanted)
    if len(delimiter) != 1:
        raise InputError("a delimiter is one character, such as ',' ';' or a tab", file=path)
    rows = csv.reader(itertools.chain([line], stream), delimiter=delimiter, strict=strict)
    return CsvTable(next(rows), rows, delimiter, skipped)


def find_delimiter(header: str, path: Path, wanted: Iterable[str]) -> str:
    """The delimiter that finds most of the columns looked for, then the one that occurs most."""
    if ".tsv" in path.suffixes or ".tab" in path.suffixes:
        return "\t"
    names = set(wanted)

    def score(delimiter: str) -> tuple[int, int]:
        cells = [normal(cell.strip().strip('"')) for cell in header.split(delimiter)]
        return len(names.intersection(cells)), len(cells)

    return max(DELIMITERS, key=score)


def stem(path: Path | str) -> str:
    """The file's name without its format: ids made of row numbers begin with it."""
    name = Path(path).name
    while (suffix := Path(name).suffix.lower()) in SUFFIXES or suffix in COMPRESSION:
        name = name[: -len(suffix)]
    return name


def positions(places: Places) -> list[int]:
    """The positions of all columns that are read, sorted. Other columns may hold anything."""
    return sorted({at for groups in places.values() for group in groups for at in group})


def _malformed(error: csv.Error, report: Report, path: Path, row: int, line: int) -> None:
    if "unexpected end" in str(error) or "field larger" in str(error):
        # everything after the quote was taken for one cell: the number of lost rows is unknown
        problem = f"a quote opened in this row is never closed (line {line} of the file)"
        raise InputError(problem, file=path, row=row) from None
    problem = f"quotes do not match (line {line} of the file); a quote inside a quoted cell is written twice"
    report.leave_out("quotes do not match", InputError(problem, file=path, row=row))


def _read_jsonl(path: Path, report: Report, columns: ColumnMap, text: Text) -> Iterator[tuple[int, Visit]]:
    names = columns.names()
    place = {name: i for i, name in enumerate(names)}
    convert = Converter(columns, locate(columns, names, path), report, stem(path))
    keys: dict[str, int | None] = {}  # keys as they are written -> position in `names`

    def make(line: str, row: int) -> Visit:
        record = _json_object(line, text.clean)
        if not keys:
            need_columns(columns.fields["id"][0].columns, list(record), path, saved=columns.saved)
        cells: list[Any] = [None] * len(names)
        for key, value in record.items():
            if key not in keys:
                keys[key] = place.get(normal(key))
            if (at := keys[key]) is not None:
                cells[at] = value
        return convert(cells, row)

    with damage(path), open_text(path, text, newline="\n") as stream:
        rows = ((row, line) for row, line in enumerate(stream, start=1) if line.strip())
        first = next(rows, None)
        if first is None:
            raise InputError("has no rows", file=path)
        yield from report.usable(itertools.chain([first], rows), make, path)
    if absent := [name for name in columns.asked() if not any(normal(key) == normal(name) for key in keys)]:
        report.note(f"{path.name}: no record has the key {', '.join(absent)} that the column map names")


def _json_object(line: str, clean: bool) -> Mapping[str, Any]:
    if not clean and (why := spoiled(line)):
        raise BadValue(f"line {why}")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise BadValue("line is not JSON; JSON Lines has one object on each line") from None
    escaped = "\\ud" in line or "\\uD" in line
    if escaped and spoiled(json.dumps(record, ensure_ascii=False)):  # valid JSON, but no text
        raise BadValue("line holds half a surrogate pair")
    if not isinstance(record, dict):
        raise BadValue("line is not a JSON object; JSON Lines has one object on each line")
    return record


def _read_parquet(path: Path, report: Report, columns: ColumnMap) -> Iterator[tuple[int, Visit]]:
    try:
        size = regular(path)
        with pq.ParquetFile(path, memory_map=True) as file:
            header = list(file.schema_arrow.names)
            use = [header[at] for at in positions(locate(columns, header, path))]
            if file.metadata.num_rows == 0:
                raise InputError("has no rows", file=path)
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            check_growth(path, size, max(group.total_byte_size for group in groups))
            texts = [name for name in use if pa.types.is_string(file.schema_arrow.field(name).type)]
        # a long text that many rows share is in the file once, and is kept once
        with pq.ParquetFile(path, memory_map=True, read_dictionary=texts) as file:
            batches = _growing(path, size, file.iter_batches(BATCH, columns=use))
            yield from read_arrow(use, batches, report, columns, path)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise InputError(DAMAGED, file=path) from None


def _growing(path: Path, size: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass batches on, as long as the texts of their rows are not far more than the file has bytes."""
    grown = 0
    for batch in batches:
        for column in batch.columns:
            if pa.types.is_dictionary(column.type) and pa.types.is_string(column.type.value_type):
                lengths = pc.binary_length(column.dictionary)
                grown += pc.sum(pc.take(lengths, column.indices)).as_py() or 0
        check_growth(path, size, grown)
        yield batch


def read_arrow(
    header: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    report: Report,
    columns: ColumnMap,
    file: Path | str,
    rows: Iterable[int] | None = None,
) -> Iterator[tuple[int, Visit]]:
    """(row from 1, visit) of Arrow record batches.

    rows   the number of each row, where the batches are not a whole table from its first row on
    """
    places = locate(columns, header, file)
    use = positions(places)
    at = {position: i for i, position in enumerate(use)}
    moved = {f: tuple(tuple(at[p] for p in group) for group in groups) for f, groups in places.items()}
    make = Converter(columns, moved, report, stem(file))
    numbers = iter(rows) if rows is not None else itertools.count(1)
    for whole in batches:
        for start in range(0, whole.num_rows, BATCH):
            batch = whole.slice(start, BATCH)
            values = [_python_values(batch.column(batch.schema.get_field_index(header[p]))) for p in use]
            cells = zip(*values, strict=True) if use else itertools.repeat((), batch.num_rows)
            yield from report.usable(((next(numbers), row) for row in cells), make, file)


def _python_values(column: pa.Array) -> list[Any]:
    if pa.types.is_dictionary(column.type):  # a categorical column
        shared = _python_values(column.dictionary)
        return [None if at is None else shared[at] for at in column.indices.to_pylist()]
    if pa.types.is_timestamp(column.type):  # Python's datetime stops at microseconds
        column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):  # a frame's missing number
        values = [None if value != value else value for value in values]
    return values


def read_frame(frame: Any, report: Report, columns: ColumnMap) -> Iterator[tuple[int, Visit]]:
    """(row from 1, visit) of a data frame. A missing value (None, NaN, NaT, NA) is unknown."""
    table = to_arrow(frame)
    if not table.num_rows:
        raise InputError("has no rows", file=FRAME)
    return read_arrow(table.schema.names, table.to_batches(), report, columns, FRAME)


def to_arrow(frame: Any) -> pa.Table:
    """The frame as an Arrow table, without its pandas index unless that has a name."""
    try:
        if isinstance(frame, pa.Table):
            return frame
        if hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__"):
            table = pa.table(frame)
        else:
            from pyarrow.interchange import from_dataframe

            table = from_dataframe(frame)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError):
        # Arrow names the column and, for mixed types, the type, but may quote a value: say neither
        problem = "cannot be read as an Arrow table: a column holds values of several types"
        advice = "make each column one type (text columns: frame[column].astype('string'))"
        raise InputError(f"{problem}; {advice}", file=FRAME) from None
    unnamed = [name for name in table.schema.names if name.startswith("__index_level_")]
    return table.drop_columns(unnamed) if unnamed else table
