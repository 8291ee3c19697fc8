"""Where NVIL training stands, on disk: one safetensors file, its bookkeeping as JSON in the header.

The file is replaced in one move at the end of each epoch, so a run that is killed leaves the epoch before.
The random numbers of an epoch follow from the seed and the epoch's number alone: there is no generator to save.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from whatelse.errors import ModelFileError
from whatelse.io.files import write_whole

FORMAT = "whatelse-nvil-1"


def write_checkpoint(path: Path, fingerprint: str, state: Mapping[str, NDArray[Any]], book: Mapping[str, Any]) -> None:
    """Write `state` and the JSON-able `book` of the run that `fingerprint` names, whole or not at all."""
    header = {"format": FORMAT, "fingerprint": fingerprint, "book": json.dumps(book)}
    write_whole(path, save({name: np.ascontiguousarray(array) for name, array in state.items()}, header))


def read_checkpoint(path: Path, fingerprint: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """What `write_checkpoint` wrote, if it belongs to the run that `fingerprint` names."""
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            book = json.loads(header["book"]) if header.get("format") == FORMAT else None
    except (SafetensorError, json.JSONDecodeError, KeyError) as error:
        raise ModelFileError(f"{path} is not a training checkpoint or is damaged: delete it to start again") from error
    if book is None:
        raise ModelFileError(f"{path} is not a training checkpoint of this version: delete it to start again")
    if header["fingerprint"] != fingerprint:
        raise ModelFileError(
            f"{path} belongs to another run: its visits, starting model, settings or seed differ. "
            "Resume with the same ones (only the number of epochs may change), or choose another file"
        )
    return state, book
