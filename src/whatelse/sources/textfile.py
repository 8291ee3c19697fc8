"""Text files: decompression, encoding, and refusal of files that are not text.

`detect_encoding` reads the file from end to end before the first row is made (about 1 GB/s of ASCII text). A file that
is cut short is therefore refused before a part of it was used.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
from charset_normalizer import from_bytes

from whatelse.errors import InputError
from whatelse.io.limits import check_growth, check_line, regular

BLOCK = 1 << 20
COMPRESSION = (".gz", ".bz2", ".xz", ".zst")
COMPRESSED: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
    b"\x28\xb5\x2f\xfd": lambda path, mode: io.BufferedReader(pa.input_stream(str(path), compression="zstd")),
}
BINARY = {
    b"PK\x03\x04": "a zip or spreadsheet file: unpack it or save it as CSV",
    b"PAR1": "a Parquet file: name it .parquet",
    b"%PDF": "a PDF file",
    b"SQLite format 3": "an SQLite database: export its table as CSV",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet file: save it as CSV",
}
CONTROL = bytes(b for b in range(32) if b not in b"\t\n\r\f\x1b")
# The code pages that spreadsheets save. Single-byte code pages that no spreadsheet writes fit any text, and mislead.
CODE_PAGES = [f"cp125{k}" for k in range(8)] + ["cp949", "cp932", "gb18030", "big5"]
NOT_WESTERN = b"\x81\x8d\x8f\x90\x9d"  # bytes that Windows-1252 does not have
SAMPLE = 1 << 16  # bytes of lines beyond ASCII from which an encoding is guessed
DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class Text:
    """How to decode a file. `clean` means: no NUL byte and nothing that does not decode, anywhere."""

    encoding: str
    clean: bool


@contextmanager
def damage(path: Path) -> Iterator[None]:
    """Turn errors of opening, decompressing and decoding a file into an InputError."""
    try:
        yield
    except InputError:
        raise
    except IsADirectoryError:
        raise InputError("is a folder; a table is one file", file=path) from None
    except PermissionError:
        raise InputError("cannot be opened: no permission to read it", file=path) from None
    except UnicodeError:  # UTF-16 and the like, where one wrong byte spoils all that follow
        raise InputError("cannot be decoded; give the file's encoding", file=path) from None
    except DAMAGE:
        raise InputError("is damaged or cut short: it cannot be decompressed to its end", file=path) from None


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes, decompressed if it starts like gzip, bzip2, xz or zstd, whatever its name."""
    regular(path)
    with path.open("rb") as stream:
        start = stream.read(8)
    opened = next((of for magic, of in COMPRESSED.items() if start.startswith(magic)), open)
    return cast(IO[bytes], opened(path, "rb"))


def open_text(path: Path, text: Text, newline: str) -> io.TextIOWrapper:
    """Bytes that do not decode become lone surrogates, which `spoiled` finds."""
    return io.TextIOWrapper(cast(Any, open_bytes(path)), text.encoding, errors="surrogateescape", newline=newline)


def detect_encoding(path: Path, encoding: str | None = None) -> Text:
    """The encoding of a file that was read to its end. InputError for an empty, binary or damaged file.

    encoding   the encoding that the user gave, for a file without a byte order mark; None: UTF-8 if nearly all of the
               file is valid UTF-8 (the other rows are spoiled), else the guess of charset-normalizer
    """
    if encoding is not None:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise InputError(f"unknown encoding {encoding!r}; try utf-8, latin-1 or cp1252", file=path) from None
    valid, invalid, nul, blank = 0, 0, False, True  # characters beyond ASCII, bytes that are not UTF-8
    sample = bytearray()
    mark = None
    for number, block in enumerate(_whole_lines(path)):
        if number == 0:
            mark = _unicode_form(block)
            if mark is None and (encoding is None or not encoding.lower().startswith(("utf-16", "utf16", "utf-32"))):
                _refuse_binary(block[:65536], path)
        blank = blank and not block.strip()
        nul = nul or b"\0" in block
        if not block.isascii():
            text = block.decode("utf-8", "surrogateescape")
            beyond = len(text) - len(text.encode("ascii", "ignore"))
            bad = len(text) - len(text.encode("utf-8", "ignore").decode())
            valid, invalid = valid + beyond - bad, invalid + bad
            if bad and len(sample) < SAMPLE:
                sample += b"\n".join(line for line in block.split(b"\n") if not line.isascii())[:SAMPLE]
    if blank:
        raise InputError("is empty; export it again, with a header and rows", file=path)
    if mark in ("utf-16", "utf-32") or (encoding is None and mark not in (None, "utf-8")):
        return Text(str(mark), clean=False)
    if encoding is not None and mark != "utf-8":
        name = codecs.lookup(encoding).name
        return Text("utf-8-sig" if name == "utf-8" else encoding, clean=name == "utf-8" and not invalid and not nul)
    if invalid > 2 * valid and (guess := _guess_code_page(bytes(sample))) is not None:
        return Text(guess, clean=False)
    return Text("utf-8-sig", clean=not invalid and not nul)


def _guess_code_page(sample: bytes) -> str | None:
    """The code page that fits best; Windows-1252 where it fits as well as the best. None: no code page fits.

    A few lines with bytes that Windows-1252 does not have are damage, and no sign of another code page.
    """
    lines = sample.split(b"\n")
    whole = [line for line in lines if not any(byte in line for byte in NOT_WESTERN)]
    if len(whole) > 0.95 * len(lines):
        sample = b"\n".join(whole)
    found = from_bytes(sample, cp_isolation=CODE_PAGES)
    best = found.best()
    if best is None:
        return None
    western = [match for match in found if "cp1252" in match.could_be_from_charset and match.chaos <= best.chaos]
    return "cp1252" if any(match.coherence >= best.coherence - 0.05 for match in western) else best.encoding


def spoiled(text: str) -> str | None:
    """Why this text cannot be used, or None."""
    if "\0" in text:
        return "holds a NUL byte"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds bytes that are not valid in the file's encoding; give the encoding, or repair the file"
    return None


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Blocks that end at a line's end, so that no character is cut in two; InputError beyond the limits."""
    with damage(path), open_bytes(path) as stream:
        rest: list[bytes] = []
        size, grown = regular(path), 0
        while block := stream.read(BLOCK):
            grown += len(block)
            check_growth(path, size, grown)
            check_line(path, len(rest) * BLOCK)
            cut = block.rfind(b"\n") + 1
            if cut:
                yield b"".join((*rest, block[:cut]))
                rest = [block[cut:]]
            else:
                rest.append(block)
        yield b"".join(rest)


def _unicode_form(block: bytes) -> str | None:
    """By the byte order mark, or by a first line whose every other byte is NUL."""
    if block.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):  # starts like UTF-16
        return "utf-32"
    if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    even, odd = block[:40:2], block[1:40:2]
    if len(odd) == 20 and any(even) != any(odd):
        return "utf-16-le" if any(even) else "utf-16-be"
    return "utf-8" if block.startswith(codecs.BOM_UTF8) else None


def _refuse_binary(start: bytes, path: Path) -> None:
    """A few NUL bytes are a spoiled row; one control character in fifty is not a text file."""
    for magic, what in BINARY.items():
        if start.startswith(magic):
            raise InputError(f"is not a text table but {what}", file=path)
    if len(start) - len(start.translate(None, CONTROL)) > len(start) / 50 + 4:
        raise InputError("is a binary file, not a text table; export it as CSV, JSON Lines or Parquet", file=path)
