"""The REST service: worklist, visits, decisions, typed visits, model changes, exports, counters."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.support import postgres
from tests.support.serving import FALLEN, client, department, save_model, service, wait_until_scored, wanted
from whatelse.cli import app as command_line
from whatelse.server import Service, Settings
from whatelse.server.settings import SettingsError, load_settings
from whatelse.server.worklist import Worklist
from whatelse.simulate import simulate
from whatelse.sources import write_visits
from whatelse.store import Decision, Store

DOCS = Path(__file__).parents[2] / "docs" / "serving.md"


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    with postgres.server() as url:
        yield url


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Service]:
    with service(tmp_path) as made:
        yield made


@pytest.fixture
def web(opened: Service) -> Iterator[httpx.Client]:
    with client(opened) as made:
        yield made


def key_of(web: httpx.Client, words: str = FALLEN.id) -> str:
    rows = web.post("/api/visits/search", json={"words": words}).json()["rows"]
    return str(rows[0]["key"])


# ---- the worklist


def test_the_worklist_shows_people_complaints_and_suggestions_and_no_truth(web: httpx.Client) -> None:
    answer = web.get("/api/visits?limit=5").json()
    assert answer["total"] == answer["visits"] == 120 and len(answer["rows"]) == 5
    first = answer["rows"][0]
    assert (first["age"], first["sex"], first["chief_complaint"]) == (81.0, "F", "s/p fall")
    assert len(first["likely"]) <= 3 and first["must_not_miss"] == []
    assert "truth" not in json.dumps(answer) and "billing" not in json.dumps(answer)
    assert answer["model"] == department()[0].digest_
    assert re.fullmatch(r"[a-z2-7]{26}", first["key"])


def test_the_worklist_is_searched_sorted_and_filtered(opened: Service, web: httpx.Client) -> None:
    def search(**asked: object) -> dict[str, object]:
        return dict(web.post("/api/visits/search", json=asked).json())

    assert search(words="WARFARIN nonsense")["total"] == 0
    assert search(words="fell STANDING")["total"] >= 1
    wait_until_scored(opened)
    by_fall = search(condition="fall", limit=200)["rows"]
    column = department()[0].conditions_.index("fall")
    order = [opened.worklist.scores.probabilities[opened.worklist._by_key[r["key"]], column] for r in by_fall]
    assert order == sorted(order, reverse=True)
    key = key_of(web)
    web.post(f"/api/visits/{key}/decisions", json=wanted("fall"))
    assert search(status="decided")["total"] == 1 and search(status="undecided")["total"] == 119
    row = search(status="decided")["rows"][0]
    assert row["confirmed"] == ["fall"] and "fall" not in [name for name, _ in row["likely"]]
    assert search(offset=118)["rows"] and len(search(offset=118)["rows"]) == 2


@pytest.mark.slow
def test_fifty_thousand_visits_stay_quick() -> None:
    """Finding, searching and paging; the worst of them within a fifth of a second on a busy machine."""
    visits = [v for v in simulate(500, 5)]
    many = [
        type(v)(**{**{f: getattr(v, f) for f in v.__slots__}, "id": f"{k}-{v.id}"}) for k in range(100) for v in visits
    ]
    worklist = Worklist(many, b"secret")
    times = []
    for words in ("chest pain", "fall", "49999", "zzz", ""):
        start = time.perf_counter()
        worklist.search(words)
        times.append(time.perf_counter() - start)
    assert len(worklist) == 50_000 and min(times) < 0.2


# ---- a visit


def test_a_visit_comes_with_its_record_and_every_condition_ranked(web: httpx.Client) -> None:
    visit = web.get(f"/api/visits/{key_of(web)}").json()
    assert visit["record"]["triage_note"] == FALLEN.triage_note
    assert visit["record"]["medication_history"] == ["warfarin", "simvastatin"]
    probabilities = [tag["probability"] for tag in visit["tags"]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert {tag["condition"] for tag in visit["tags"]} == set(department()[0].conditions_)
    assert visit["tags"][0]["title"] == "Fall" and visit["tags"][0]["evidence"] == "for"
    assert visit["state"] == dict(version=0, confirmed=[], rejected=[], present=[], absent=[], unknown=[])
    assert "truth" not in visit["record"] and "billing" not in visit["record"]


def test_what_is_denied_is_told_apart_from_what_is_not_mentioned(web: httpx.Client) -> None:
    tags = {tag["condition"]: tag for tag in web.get(f"/api/visits/{key_of(web)}").json()["tags"]}
    kinds = {tag["evidence"] for tag in tags.values()}
    assert kinds >= {"for", "missing"}
    asked = {"visit": {"triage_note": "cough for a week"}, "absent": ["fever"]}
    denied = {t["condition"]: t for t in web.post("/api/suggest", json=asked).json()["tags"]}
    assert any("fever" in tag["denied"] for tag in denied.values())


def test_marks_are_where_the_words_are(web: httpx.Client) -> None:
    reading = web.get(f"/api/visits/{key_of(web)}/findings").json()
    in_notes = [mark for mark in reading["marks"] if mark["start"] is not None]
    assert in_notes
    for mark in in_notes:
        note = getattr(FALLEN, mark["field"])
        assert 0 <= mark["start"] < mark["end"] <= len(note)
    fall = [mark for mark in in_notes if "fall" in mark["explained"] and mark["text"] == "fall"]
    assert {getattr(FALLEN, m["field"])[m["start"] : m["end"]] for m in fall} & {"fell", "fall", "s/p fall"}
    for mark in reading["marks"]:
        if mark["item"] is not None:
            assert getattr(FALLEN, mark["field"])[mark["item"]].code in mark["text"]


def test_why_adds_up_and_explains_decided_tags_too(web: httpx.Client) -> None:
    key = key_of(web)
    why = web.get(f"/api/visits/{key}/why", params={"condition": "fall"}).json()
    total = why["prior"] + sum(r["log_odds"] for r in why["reasons"]) + why["sureness"] + why["rest"]
    total += sum(why["absent"].values()) + sum(why["others"].values())
    assert total == pytest.approx(why["total"], abs=1e-6)
    assert why["reasons"][0]["places"]
    web.post(f"/api/visits/{key}/decisions", json=wanted("fall"))
    again = web.get(f"/api/visits/{key}/why", params={"condition": "fall"}).json()
    assert again["total"] == pytest.approx(why["total"])
    assert web.get(f"/api/visits/{key}/why", params={"condition": "gout"}).status_code == 404


def test_answers_to_questions_move_the_tags_and_are_kept(web: httpx.Client) -> None:
    for row in web.get("/api/visits?limit=60").json()["rows"]:
        key = row["key"]
        if asked := web.get(f"/api/visits/{key}/questions").json()["questions"]:
            break
    assert 0 < len(asked) <= 4 and all(q["text"] and q["about"] for q in asked)
    assert all(max(abs(q["if_yes"] - q["now"]), abs(q["if_no"] - q["now"])) >= 0.05 for q in asked)
    first = asked[0]
    after = web.post(f"/api/visits/{key}/decisions", json=wanted(first["finding"], "present")).json()
    tag = next(t for t in after["tags"] if t["condition"] == first["about"])
    assert tag["probability"] == pytest.approx(first["if_yes"], abs=2e-3)
    assert [f["finding"] for f in after["state"]["present"]] == [first["finding"]]
    taken_back = web.post(f"/api/visits/{key}/decisions", json=wanted(first["finding"], "unasked", 1)).json()
    assert taken_back["state"]["present"] == []


def test_questions_about_one_condition_are_asked_however_little_an_answer_moves_it(web: httpx.Client) -> None:
    about = web.get(f"/api/visits/{key_of(web)}/questions", params={"about": "uti"}).json()["questions"]
    assert {q["about"] for q in about} == {"uti"}
    assert all(max(abs(q["if_yes"] - q["now"]), abs(q["if_no"] - q["now"])) < 0.05 for q in about)


# ---- deciding


def test_confirm_reject_undo_and_the_history_of_it(web: httpx.Client) -> None:
    key = key_of(web)
    before = web.get(f"/api/visits/{key}").json()
    view = web.post(f"/api/visits/{key}/decisions", json=wanted("fall", model=before["model"])).json()
    assert view["state"]["confirmed"] == ["fall"] and len(view["tags"]) == len(before["tags"]) - 1
    view = web.post(f"/api/visits/{key}/decisions", json=wanted("headache", "rejected", 1)).json()
    assert view["state"]["rejected"] == ["headache"]
    view = web.post(f"/api/visits/{key}/undo", json={"version": 2, "request": "undo-request-1"}).json()
    assert view["state"]["rejected"] == [] and view["state"]["version"] == 3
    lines = web.get(f"/api/visits/{key}/history").json()["lines"]
    assert [(line["subject"], line["verdict"], line["undoes"]) for line in lines] == [
        ("fall", "confirmed", None), ("headache", "rejected", None), ("headache", "open", 2),
    ]  # fmt: skip
    assert lines[0]["actor"] == "local" and lines[0]["model"] == before["model"]
    shown = {t["condition"]: t for t in before["tags"]}["fall"]
    assert lines[0]["shown"]["probability"] == shown["probability"] and lines[0]["shown"]["rank"] == shown["rank"]
    assert lines[1]["shown"]["confirmed"] == ["fall"]


def test_a_look_shows_what_another_server_wrote(opened: Service, web: httpx.Client) -> None:
    key = key_of(web)
    seen = web.get(f"/api/visits/{key}/suggestions").json()
    assert web.get(f"/api/visits/{key}/suggestions").json() == seen  # remembered by now
    other = Store(opened.settings.database)
    other.record(Decision(FALLEN.id, 0, "tag", "fall", "confirmed", "dr b", seen["model"], "from-elsewhere")).result()
    other.close()
    now = web.get(f"/api/visits/{key}/suggestions").json()
    assert now["state"]["version"] == 1 and now["state"]["confirmed"] == ["fall"]


def test_who_comes_second_is_told_what_changed_and_nothing_is_lost(web: httpx.Client) -> None:
    key = key_of(web)
    web.post(f"/api/visits/{key}/decisions", json=wanted("fall"))
    late = web.post(f"/api/visits/{key}/decisions", json=wanted("headache"))
    assert late.status_code == 409
    body = late.json()
    assert (body["actor"], body["subject"], body["verdict"]) == ("local", "fall", "confirmed")
    assert body["state"]["version"] == 1 and body["state"]["confirmed"] == ["fall"] and body["tags"]
    again = web.post(f"/api/visits/{key}/decisions", json=wanted("headache", version=1))
    assert again.json()["state"]["confirmed"] == ["fall", "headache"]


def test_a_repeated_request_is_recorded_once(web: httpx.Client) -> None:
    key, body = key_of(web), wanted("fall")
    first, second = (web.post(f"/api/visits/{key}/decisions", json=body) for _ in range(2))
    assert first.json() == second.json() and second.status_code == 200
    assert len(web.get(f"/api/visits/{key}/history").json()["lines"]) == 1
    assert web.post(f"/api/visits/{key}/decisions", json={**body, "subject": "uti"}).status_code == 409


def test_decisions_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    with service(tmp_path, database=postgres_url) as opened, client(opened) as web:
        key = key_of(web)
        assert web.post(f"/api/visits/{key}/decisions", json=wanted("fall")).status_code == 200
        assert web.post(f"/api/visits/{key}/decisions", json=wanted("uti")).status_code == 409
        assert web.get(f"/api/visits/{key}").json()["state"]["confirmed"] == ["fall"]
        assert web.get("/readyz").status_code == 200


def test_a_decision_that_cannot_be_stored_is_not_acknowledged(opened: Service, web: httpx.Client) -> None:
    key = key_of(web)
    with opened.store.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE decision")
    answer = web.post(f"/api/visits/{key}/decisions", json=wanted("fall"))
    assert answer.status_code == 503 and "nothing was recorded" in answer.json()["detail"]


# ---- typed visits


def test_a_typed_visit_is_answered_and_not_kept(opened: Service, web: httpx.Client) -> None:
    asked = {
        "visit": {
            "age": 81,
            "sex": "F",
            "triage_note": "fell, hit head. denies loc",
            "medication_history": ["warfarin"],
        }
    }
    answer = web.post("/api/suggest", json=asked).json()
    assert answer["tags"][0]["condition"] == "fall" and answer["marks"]
    given = web.post("/api/suggest", json={**asked, "confirmed": ["fall"], "rejected": ["uti"]}).json()
    assert given["state"]["confirmed"] == ["fall"] and len(given["tags"]) == len(answer["tags"]) - 2
    why = web.post("/api/why", json={**asked, "condition": "fall"}).json()
    assert any(reason["places"] for reason in why["reasons"])
    assert opened.store.decided() == set()
    assert web.post("/api/suggest", json={"visit": {}}).status_code == 200


@pytest.mark.parametrize(
    "asked",
    [
        {"visit": {}, "confirmed": ["gout"]},
        {"visit": {}, "confirmed": ["fall"], "rejected": ["fall"]},
        {"visit": {}, "present": ["no such finding"]},
        {"visit": {"age": 200}},
        {"visit": {"sex": "X"}},
        {"visit": {"note": "unknown field"}},
        {},
    ],
)
def test_questions_that_cannot_be_asked(web: httpx.Client, asked: dict[str, object]) -> None:
    answer = web.post("/api/suggest", json=asked)
    assert answer.status_code in (404, 422) and answer.json()["detail"]


# ---- running it


def test_every_answer_says_which_model_it_is_from(web: httpx.Client) -> None:
    digest = department()[0].digest_
    for path in ("/", "/healthz", "/api/model", "/api/visits/nothing"):
        assert web.get(path).headers["x-whatelse-model"] == digest


def test_a_new_model_is_loaded_while_serving_and_a_bad_one_is_not(tmp_path: Path) -> None:
    path = save_model(tmp_path)
    with service(tmp_path) as opened, client(opened) as web:
        good, old = path.read_bytes(), opened.tagger.digest_
        path.write_bytes(good[: len(good) // 2])
        refused = web.post("/admin/model", json={})
        assert refused.status_code == 422 and "old model goes on serving" in refused.json()["detail"]
        assert web.get("/api/model").json()["model"] == old
        path.write_bytes(good)
        before = opened.tagger
        assert web.post("/admin/model", json={}).status_code == 200
        assert opened.tagger is not before and web.get(f"/api/visits/{key_of(web)}").status_code == 200
        counted = web.get("/metrics").text
        assert 'model_reloads_total{outcome="refused"} 1' in counted
        assert 'model_reloads_total{outcome="loaded"} 1' in counted


def test_decided_on_conditions_that_the_model_no_longer_knows(opened: Service, web: httpx.Client) -> None:
    from whatelse.store import Decision

    opened.store.record(Decision(FALLEN.id, 0, "tag", "gout", "confirmed", "a", "0" * 64, "older-model")).result()
    visit = web.get(f"/api/visits/{key_of(web)}").json()
    assert visit["state"]["unknown"] == ["gout"] and visit["state"]["confirmed"] == []


def test_labels_are_exported(web: httpx.Client) -> None:
    key = key_of(web)
    web.post(f"/api/visits/{key}/decisions", json=wanted("fall"))
    text = web.get("/api/decisions/export").text.splitlines()
    assert len(text) == 2 and text[1].startswith("fallen,fall,1,local,")
    table = pq.read_table(io.BytesIO(web.get("/api/decisions/export?format=parquet").content))
    assert table.column("condition").to_pylist() == ["fall"]


def test_health_readiness_and_metrics(opened: Service, web: httpx.Client) -> None:
    assert web.get("/healthz").json() == {"status": "ok"}
    assert web.get("/readyz").json() == {"status": "ready"}
    web.get("/api/visits/unknown")
    text = web.get("/metrics").text
    assert 'whatelse_requests_total{route="/api/visits/{key}",status="404"} 1' in text
    assert "whatelse_visits 120" in text and "unknown" not in text and "_created" not in text
    documented = DOCS.read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            assert f"| `{line.split()[2]}` |" in documented, f"docs/serving.md does not list {line.split()[2]}"
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) \S+ .+|whatelse_\w+(\{[^}]*(\{key\})?[^}]*\})? [0-9.e+-]+", line), line
    opened.store.close()
    until = time.monotonic() + 60
    while (status := web.get("/readyz").status_code) != 503 and time.monotonic() < until:
        time.sleep(0.1)  # what was found a moment ago is not asked for again at once
    assert status == 503


def test_the_openapi_description_covers_every_route(web: httpx.Client) -> None:
    paths = web.get("/openapi.json").json()["paths"]
    for path in (
        "/api/visits",
        "/api/visits/{key}/decisions",
        "/api/suggest",
        "/healthz",
        "/readyz",
        "/metrics",
        "/admin/model",
    ):
        assert path in paths
    assert "409" in paths["/api/visits/{key}/decisions"]["post"]["responses"]
    assert web.get("/docs").status_code == 404  # it would load scripts from elsewhere


# ---- settings and the command line


def test_every_setting_is_documented_as_it_is_declared() -> None:
    text = DOCS.read_text(encoding="utf-8")
    table = text[text.index("| setting | default | |") :].splitlines()[2:]
    assert all(field.description for field in Settings.model_fields.values())
    rows = []
    for name, one in Settings.model_fields.items():
        default = "needed" if one.is_required() else str(one.get_default())
        shown = "" if default in ("", "None", "[]", "{}") else default if default == "needed" else f"`{default}`"
        rows.append(f"| `{name}` | {shown} | {one.description} |")
    assert [line for line in table if line.startswith("| `")] == rows, "renew the table:\n" + "\n".join(rows)


def test_options_of_visits_on_the_command_line_add_to_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, found = tmp_path / "c.yaml", list[Settings]()
    config.write_text("model: m\nvisits_options: {columns: map.yaml, delimiter: ','}\n")
    monkeypatch.setattr("whatelse.server.serve", lambda settings, announce: found.append(settings))
    monkeypatch.setattr("whatelse.server.logs.configure_logging", lambda level, log_format: None)
    args = ["serve", "--config", str(config), "--option", "delimiter=;"]
    done = CliRunner().invoke(command_line, args)
    assert done.exit_code == 0, done.output
    assert (found[0].visits_options.columns, found[0].visits_options.delimiter) == (Path("map.yaml"), ";")
    config.write_text("model: m\nvisits_options: 3\n")
    refused = CliRunner().invoke(command_line, args)
    assert refused.exit_code == 2 and "visits_options: needs lines of the form" in refused.output


def test_settings_of_version_0_2_are_still_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = tmp_path / "serve.yaml"
    config.write_text("model: m\nmax_head: 9000\nsource: table\ndelimiter: ';'\ncookie_samesite: none\n")
    found = load_settings(config)
    assert found.visits_options.source == "table" and found.visits_options.delimiter == ";"
    assert "'max_head' is no longer used" in caplog.text and "frame_ancestors" in caplog.text


def test_every_route_is_documented(web: httpx.Client) -> None:
    text = DOCS.read_text(encoding="utf-8")
    for path, methods in web.get("/openapi.json").json()["paths"].items():
        for method in methods:
            assert f"`{method.upper()} {path}`" in text, f"docs/serving.md does not list {method.upper()} {path}"


def test_settings_come_from_the_command_line_then_the_environment_then_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "serve.yaml"
    config.write_text("model: a.model\nport: 1\nsession_hours: 3\nmax_words: 700\n")
    monkeypatch.setenv("WHATELSE_PORT", "2")
    monkeypatch.setenv("WHATELSE_MAX_WORDS", "800")
    settings = load_settings(config, port=3)
    assert (settings.port, settings.max_words, settings.session_hours, str(settings.model)) == (3, 800, 3, "a.model")


@pytest.mark.parametrize(
    "text", ["- model\n- port\n", "model", "{", "1: 2\n", "model: x\nprot: 1\n", "model: x\nport: many\n"]
)
def test_a_settings_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str) -> None:
    config = tmp_path / "serve.yaml"
    config.write_text(text)
    with pytest.raises(SettingsError, match=r"serve\.yaml: (cannot be read|needs lines)|prot: Extra|port: Input"):
        load_settings(config)
    with pytest.raises(SettingsError, match=r"nowhere\.yaml: no such file; check the path"):
        load_settings(tmp_path / "nowhere.yaml")


def test_a_list_in_the_environment_that_is_not_json_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHATELSE_ALLOWED_HOSTS", "tags.example.org")
    with pytest.raises(SettingsError, match="a list is written as JSON"):
        load_settings(None, model="x.model")


@pytest.mark.slow
def test_serve_prints_one_line_and_reloads_on_sighup(tmp_path: Path) -> None:
    """The command itself, as a process."""
    model, visits = save_model(tmp_path), tmp_path / "visits.jsonl"
    write_visits(simulate(20, 3), visits)
    command = [sys.executable, "-c", "from whatelse.cli import app; app()", "serve", "--model", str(model)]
    command += ["--visits", str(visits), "--port", "0", "--database", f"sqlite:///{tmp_path / 'd.db'}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = line.split()[3]
        assert line.startswith("whatelse is at http://127.0.0.1:")
        assert httpx.get(f"{url}api/visits").json()["total"] == 20
        process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 60
        while 'outcome="loaded"' not in httpx.get(f"{url}metrics").text:
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGTERM)
        rest, problems = process.communicate(timeout=60)
    assert rest == "" and "Traceback" not in problems and "leaked" not in problems
    assert process.returncode == 0
    assert not (tmp_path / "d.db-wal").exists()  # the database was closed, not left


@pytest.mark.slow
def test_serve_takes_up_a_model_that_replaces_its_own(tmp_path: Path) -> None:
    """As `whatelse refit` replaces it: by a rename. A file that is no model leaves the old one serving."""
    model = save_model(tmp_path)
    command = [
        sys.executable,
        "-c",
        "from whatelse.cli import app; app()",
        "serve",
        "--model",
        str(model),
        "--port",
        "0",
    ]
    command += ["--database", f"sqlite:///{tmp_path / 'd.db'}", "--watch-model", "0.2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def wait_for(what: Callable[[], bool]) -> None:
        until = time.monotonic() + 60
        while not what():
            assert time.monotonic() < until
            time.sleep(0.1)

    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[3]
        first = httpx.get(f"{url}api/model").json()
        assert first["caveat"] == ""
        (tmp_path / "no.model").write_bytes(b"no model")
        (tmp_path / "no.model").replace(model)
        wait_for(lambda: 'outcome="refused"' in httpx.get(f"{url}metrics").text)
        assert httpx.get(f"{url}api/model").json() == first
        tagger, _ = department()
        other = copy(tagger)
        other.notes_ = {"noise_rates": "assumed"}
        other.save(tmp_path / "new.model")
        (tmp_path / "new.model").replace(model)
        wait_for(lambda: httpx.get(f"{url}api/model").json()["model"] == other.digest_)
        assert httpx.get(f"{url}api/model").json()["caveat"] == "noise rates assumed, probabilities uncalibrated"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_tokens_and_labels_from_the_command_line(tmp_path: Path) -> None:
    database = ["--database", f"sqlite:///{tmp_path / 'd.db'}"]
    run = CliRunner().invoke
    made = run(command_line, ["token", "create", "Dr. Ada", "--role", "clinician", *database])
    assert made.exit_code == 0 and made.stdout.startswith("whatelse_")
    listed = run(command_line, ["token", "list", *database])
    assert "Dr. Ada" in listed.stdout and "active" in listed.stdout and made.stdout.strip() not in listed.stdout
    assert run(command_line, ["token", "revoke", "1", *database]).exit_code == 0
    assert "revoked" in run(command_line, ["token", "list", *database]).stdout
    assert run(command_line, ["token", "revoke", "7", *database]).exit_code == 2
    store = Store(f"sqlite:///{tmp_path / 'd.db'}")
    store.close()
    for name in ("labels.csv", "labels.parquet"):
        done = run(command_line, ["store", "decisions", "--out", str(tmp_path / name), *database])
        assert done.exit_code == 0 and "wrote 0 labels" in done.stdout
    assert run(command_line, ["store", "decisions", "--out", str(tmp_path / "x.xml"), *database]).exit_code == 2
    assert "rate_limit" in run(command_line, ["serve", "--settings"]).stdout
