"""Models from elsewhere: sizes that do not fit, files that change, signatures of strangers."""

from __future__ import annotations

import base64
import json
import os
import shutil
import stat
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.serving import client, save_model, service
from whatelse.cli import app as command_line
from whatelse.errors import ModelFileError
from whatelse.model_file import file
from whatelse.model_file.file import load, save
from whatelse.model_file.signature import new_key, sign_model, signature_path, verify_model
from whatelse.server.service import load_model
from whatelse.tagger import Tagger


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


def parts(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def put(path: Path, header: dict[str, Any], body: bytes) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


# ---- the file


def test_a_sparse_file_of_six_gigabytes_is_refused_at_once(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "sparse.model"
    shutil.copy(saved, path)
    os.truncate(path, 6 << 30)
    start = time.monotonic()
    with pytest.raises(ModelFileError, match="WHATELSE_MAX_MODEL_BYTES"):
        load(path)
    header, body = parts(saved)
    last = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    header["extra.much"] = {"dtype": "U8", "shape": [6 << 30], "data_offsets": [last, last + (6 << 30)]}
    put(path, header, body)
    os.truncate(path, path.stat().st_size + (6 << 30))  # and one whose header claims as much
    with pytest.raises(ModelFileError, match="WHATELSE_MAX_MODEL_BYTES"):
        load(path)
    assert time.monotonic() - start < 30


def test_answers_go_on_while_a_model_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import whatelse.server.service as module

    gate, begun = threading.Event(), threading.Event()

    def slow(path: Path, trusted: object = ()) -> Tagger:
        begun.set()
        assert gate.wait(60)
        return load_model(path)

    monkeypatch.setattr(module, "load_model", slow)
    with service(tmp_path) as opened, client(opened) as web, ThreadPoolExecutor(1) as beside:
        loading = beside.submit(web.post, "/admin/model", json={})
        assert begun.wait(20)
        try:
            assert web.get(f"/api/visits/{opened.worklist.keys[0]}", timeout=60).status_code == 200
            assert web.post("/api/suggest", json={"visit": {"age": 50}}, timeout=60).status_code == 200
            assert not loading.done()
        finally:
            gate.set()
        assert loading.result(20).status_code == 200


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "F16"},
        {"dtype": "X"},
        {"shape": [-1]},
        {"shape": [True]},
        {"shape": "ab"},
        {"data_offsets": [0]},
        {"data_offsets": [8, 8], "shape": [0]},
        {"shape": [2**40, 2**40]},
    ],
)
def test_places_that_cannot_be(saved: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    header, body = parts(saved)
    header["prior"] |= change
    with pytest.raises(ModelFileError, match="its arrays cannot be read"):
        load(put(tmp_path / "x.model", header, body))


def test_a_file_that_is_cut_short_while_it_is_read(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.model"
    shutil.copy(saved, path)

    def truncate(where: Path, text: bytes, really: Any = file._header) -> Any:
        os.truncate(where, where.stat().st_size - 1000)
        return really(where, text)

    monkeypatch.setattr(file, "_header", truncate)
    with pytest.raises(ModelFileError, match="cut short"):
        load(path)


# ---- signatures


def test_a_signed_model_is_loaded_and_any_other_refused(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.model"
    shutil.copy(saved, path)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    public, foreign = new_key(ours), new_key(theirs)
    assert stat.S_IMODE(ours.stat().st_mode) == 0o600
    with pytest.raises(ModelFileError, match="is not signed"):
        load_model(path, [public])
    sign_model(path, ours)
    assert verify_model(path, [foreign, public]) == load(path).digest
    assert load_model(path, [public]).digest_ == load(path).digest
    with pytest.raises(ModelFileError, match="not trusted here"):
        load_model(path, [foreign])
    before = path.read_bytes()
    path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    with pytest.raises(ModelFileError, match="not the file that was signed"):
        load_model(path, [public])
    path.write_bytes(before)
    signature = signature_path(path)
    said = json.loads(signature.read_text())
    for change in ({"digest": "0" * 64}, {"sha512": "0" * 128}, {"signature": base64.b64encode(b"0" * 64).decode()},
                   {"signature": "no"}, {"format": "other"}, {"more": "1"}, {"key": 7}):  # fmt: skip
        signature.write_text(json.dumps(said | change))
        with pytest.raises(ModelFileError, match=r"signature|signed"):
            load_model(path, [public])
    sign_model(path, theirs)  # somebody who can write here has put their own signature
    with pytest.raises(ModelFileError, match="not trusted here"):
        load_model(path, [public])


def test_a_model_exchanged_after_it_was_verified(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import whatelse.server.service as module

    path, key = tmp_path / "x.model", tmp_path / "key"
    shutil.copy(saved, path)
    public = new_key(key)
    sign_model(path, key)

    def exchanging(model: Path, trusted: object) -> str:
        digest = verify_model(model, [public])
        loaded = load(saved)
        save(model, replace(loaded, learned={**loaded.learned, "note": "another"}))
        return digest

    monkeypatch.setattr(module, "verify_model", exchanging)
    with pytest.raises(ModelFileError, match="not the model that was signed"):
        load_model(path, [public])


def test_a_running_server_keeps_its_model_when_the_new_one_is_not_signed(tmp_path: Path) -> None:
    path, key = save_model(tmp_path), tmp_path / "key"
    public = new_key(key)
    with service(tmp_path, trusted_keys=[public]) as opened, client(opened) as web:
        digest = opened.tagger.digest_
        answer = web.post("/admin/model", json={})
        assert answer.status_code == 422 and "is not signed" in answer.json()["detail"]
        assert web.get("/api/model").json()["model"] == digest
        sign_model(path, key)
        assert web.post("/admin/model", json={}).status_code == 200


def test_the_command(tmp_path: Path, saved: Path) -> None:
    path = tmp_path / "x.model"
    shutil.copy(saved, path)

    def run(*command: str) -> tuple[int, str]:
        done = CliRunner().invoke(command_line, list(command))
        return done.exit_code, done.stdout + done.stderr

    key, public = str(tmp_path / "key"), str(tmp_path / "key.pub")
    code, said = run("sign", str(path), "--new-key", key)
    assert code == 0 and "keep it" in said and signature_path(path).exists()
    assert run("sign", str(path), "--verify", public)[0] == 0
    assert run("sign", "--new-key", key)[0] == 2  # never over an old one
    assert run("sign", str(path), "--key", public)[0] == 2 and run("sign", str(path))[0] == 2
    assert run("sign", str(tmp_path / "none"), "--key", key)[0] == 2 and run("sign")[0] == 2
    signature_path(path).unlink()
    url = f"sqlite:///{tmp_path / 'd.db'}"
    code, said = run("serve", "--model", str(path), "--trusted-key", public, "--database", url)
    assert code == 2 and "is not signed" in said
    assert run("serve", "--model", str(path), "--trusted-key", key, "--database", url)[0] == 2
