"""Reads an untrusted safetensors file: the header, then the sizes, then the arrays.

The header gives the place of each array. Arrays are read only if their places tile the rest of the file exactly and
each has the length of its shape and dtype. A file with a wrong header costs no more than reading the header. The file
is not mapped into memory: truncating a mapped file under a running server ends the process (SIGBUS).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from whatelse.errors import ModelFileError
from whatelse.io.limits import limit

MAX_HEADER = 16 * 2**20  # bytes; a vocabulary of 100,000 findings takes about 5 MB
MAX_ARRAYS = "WHATELSE_MAX_MODEL_BYTES"
ELSEWHERE = "copy it again from where it was saved"
T = TypeVar("T")
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip


def read_arrays(path: Path, judge: Callable[[Path, dict[str, Any]], T]) -> tuple[T, dict[str, NDArray[Any]]]:
    """What `judge` makes of the header, and the arrays by name; ModelFileError says what is wrong with the file.

    judge: takes the path and the JSON header; what it raises is raised before an array is read.
    """
    if not path.is_file():
        raise ModelFileError(f"{path}: there is no such file; give the file that 'whatelse fit' saved")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header, start = _header(path, file, size)
            judged = judge(path, header)
            places = _places(path, header, size - start)
            return judged, {name: _array(path, file, start, *place) for name, place in places.items()}
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from None


def _header(path: Path, file: IO[bytes], size: int) -> tuple[dict[str, Any], int]:
    """The JSON header and where the arrays begin; its length is judged before it is read."""
    start = file.read(8)
    length = int.from_bytes(start, "little")
    looks_cut = len(start) == 8 and file.read(1) == b"{"
    if len(start) < 8 or length < 2 or (length > size - 8 and not looks_cut):
        raise ModelFileError(f"{path}: not a model file ({size:,} bytes, no safetensors header)")
    if length > MAX_HEADER:
        raise ModelFileError(
            f"{path}: claims a header of {length:,} bytes, more than the {MAX_HEADER:,} allowed; not opened"
        )
    if length > size - 8:
        raise ModelFileError(f"{path}: cut short within its header; {ELSEWHERE}")
    file.seek(8)
    try:
        header = json.loads(file.read(length))
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise ModelFileError(f"{path}: a safetensors file perhaps, but not one that whatelse saved")
    return header, 8 + length


def _places(
    path: Path, header: dict[str, Any], size: int
) -> dict[str, tuple[int, int, np.dtype[Any], tuple[int, ...]]]:
    """Name -> (begin, bytes, dtype, shape) of each array, once they tile the `size` bytes that follow the header."""
    found: dict[str, tuple[int, int, np.dtype[Any], tuple[int, ...]]] = {}
    for name, said in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape, (begin, end) = np.dtype(DTYPES[said["dtype"]]), tuple(said["shape"]), said["data_offsets"]
            if not all(type(number) is int and 0 <= number < 2**48 for number in (*shape, begin, end)):
                raise ValueError
            if end - begin != math.prod(shape) * dtype.itemsize:
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise ModelFileError(
                f"{path}: its arrays cannot be read (the place of one is wrong); {ELSEWHERE}"
            ) from None
        found[name] = (begin, end - begin, dtype, shape)
    reached = 0
    for begin, length, _, _ in sorted(found.values(), key=lambda place: place[:2]):
        if begin != reached:
            raise ModelFileError(f"{path}: its arrays cannot be read (they overlap or leave gaps); {ELSEWHERE}")
        reached += length
    if reached != size:
        what = "cut short" if reached > size else "longer than its header says"
        raise ModelFileError(f"{path}: its arrays cannot be read (the file is {what}); {ELSEWHERE}")
    if size > (most := limit(MAX_ARRAYS)):
        raise ModelFileError(
            f"{path}: its arrays take {size:,} bytes, more than the {most:,} allowed; set {MAX_ARRAYS} if that is right"
        )
    return found


def _array(
    path: Path, file: IO[bytes], start: int, begin: int, length: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    raw = np.empty(length, np.uint8)
    file.seek(start + begin)
    if length and file.readinto(raw.data) != length:  # type: ignore[attr-defined]
        raise ModelFileError(f"{path}: was cut short while it was read; load it again once it is whole")
    if dtype == np.bool_ and length and raw.max() > 1:
        raise ModelFileError(f"{path}: its arrays cannot be read (a truth value is neither 0 nor 1); {ELSEWHERE}")
    return raw.view(dtype).reshape(shape)
