"""The upgrade drill: database and model of version 0.2 served by this version, a new model, and the old one again."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx

from tests.support.serving import live, save_model
from whatelse.server import Settings
from whatelse.server.run import open_service
from whatelse.store.backup import verify

DATA = Path(__file__).parents[1] / "data"


def put(model: Path, source: Path) -> None:
    """A model file in place of another, as an administrator puts it there."""
    shutil.copyfile(source, model.with_suffix(".new"))
    model.with_suffix(".new").replace(model)


def test_service_of_version_0_2_goes_on_and_a_new_model_is_rolled_back(tmp_path: Path) -> None:
    model, old = tmp_path / "served.model", DATA / "model-schema-2-tagger.safetensors"
    shutil.copyfile(DATA / "database-version-0.2.sqlite", tmp_path / "whatelse.db")
    put(model, old)
    opened = open_service(Settings(model=model, database=f"sqlite:///{tmp_path / 'whatelse.db'}", rate_limit=0))
    try:
        with live(opened) as url, httpx.Client(base_url=url, timeout=60) as http:
            before = http.get("/api/model").json()["model"]
            asked = {"visit": {"age": 81, "triage_note": "fell, hit head"}}
            first = http.post("/api/suggest", json=asked).json()["tags"]
            put(model, save_model(tmp_path))
            assert http.post("/admin/model", json={}).json()["model"] != before
            assert http.post("/api/suggest", json=asked).status_code == 200
            put(model, old)
            assert http.post("/admin/model", json={}).json()["model"] == before
            assert http.post("/api/suggest", json=asked).json()["tags"] == first
            assert opened.store.newest_model() == before and opened.store.state("v1").confirmed == ("fall",)
        assert verify(opened.store.engine).decisions.lines == 3
    finally:
        opened.close()
