"""Editing anchors in files, trying a phrase, and the commands."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from whatelse.annotators import AnchorSet
from whatelse.annotators.anchor_uses import Excerpt
from whatelse.annotators.discovery.edit import (
    add_phrase,
    allow_phrase,
    change_phrase,
    new_condition,
    owner_of,
    read_refused,
    refuse_phrase,
    save_conditions,
    take_out,
)
from whatelse.annotators.discovery.trial import Answer, judge, try_phrase, with_judgements
from whatelse.annotators.discovery.yaml_edit import append, replace
from whatelse.cli import app
from whatelse.cohort import Cohort, build_cohort
from whatelse.errors import ConditionError, InputError
from whatelse.visits import Visit

MINE = """\
# my conditions
conditions:
  - name: headache   # the head
    anchors:
      notes: [headache, "head pain"]   # more to come

  - {name: fever, anchors: {notes: [fever]}}
  - name: vomiting
    anchors:
      notes:
        - vomiting   # a list
        # and a remark
      dispensed: [ondansetron]
# the end
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE, encoding="utf-8")
    return path


def anchors_of(path: Path, condition: str) -> list[str]:
    return [a.value for a in AnchorSet.load(path).only([condition]).conditions[0].anchors]


def test_an_edit_changes_one_place(mine: Path) -> None:
    add_phrase(mine, "headache", "h/a")
    add_phrase(mine, "fever", "febrile")
    add_phrase(mine, "vomiting", "threw up")
    add_phrase(mine, "vomiting", "15300", "coded", "rfv")
    lines, old = mine.read_text("utf-8").splitlines(), MINE.splitlines()
    assert [line for line in old if line not in lines] == [
        '      notes: [headache, "head pain"]   # more to come',
        "  - {name: fever, anchors: {notes: [fever]}}",
    ]
    assert [line for line in lines if line not in old] == [
        '      notes: [headache, "head pain", h/a] # more to come',
        "  - {name: fever, anchors: {notes: [fever, febrile]}}",
        "        - threw up",
        "      coded: {rfv: ['15300']}",
    ]
    assert anchors_of(mine, "vomiting") == ["vomiting", "threw up", "ondansetron", "15300"]


PHRASES = st.text("abc ,:#'\"[]{}-&*!|>%@`0é", min_size=1, max_size=8).filter(str.strip)


@settings(deadline=None, max_examples=150)
@given(PHRASES, st.sampled_from(["a: [x]", "a:\n  - x\n", "a:\n- x # r\nb: 1\n", "a: []", "b: 1\n", "{}", "a:\n", ""]))
def test_whatever_is_added_is_read_back(value: str, text: str) -> None:
    before = yaml.safe_load(text) or {}
    try:
        after = yaml.safe_load(append(text, ["a"], value))
    except InputError:
        pytest.fail("could not be edited")
    assert after == before | {"a": [*(before.get("a") or []), value]}


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["headache", "fever", "vomiting"]), st.text("abcdé' ,:#[]{}", min_size=1, max_size=9))
def test_a_phrase_is_added_or_refused_and_nothing_else_happens(mine: Path, condition: str, phrase: str) -> None:
    mine.write_text(MINE, encoding="utf-8")
    try:
        add_phrase(mine, condition, phrase)
    except ConditionError:
        assert mine.read_text("utf-8") == MINE
        return
    assert " ".join(phrase.split()) in anchors_of(mine, condition)
    added = len(mine.read_text("utf-8").splitlines()) - len(MINE.splitlines())
    assert added in (0, 1) and all(remark in mine.read_text("utf-8") for remark in ("# the end", "# and a remark"))


def test_conflicts_and_mistakes_are_named(mine: Path, tmp_path: Path) -> None:
    for phrase, condition, said in (
        ("fever", "headache", "anchor of condition 'fever'"),
        ("Head  Pain", "headache", "already"),
        ("x", "gout", "no condition 'gout'"),
        ("...", "fever", "no word"),
    ):
        with pytest.raises(ConditionError, match=said):
            add_phrase(mine, condition, phrase)
    with pytest.raises(ConditionError, match="unknown kind"):
        add_phrase(mine, "fever", "x", "smoke")
    with pytest.raises(ConditionError, match="code system"):
        add_phrase(mine, "fever", "x", "coded")
    with pytest.raises(InputError, match="does not exist"):
        add_phrase(tmp_path / "none.yaml", "fever", "x")
    assert mine.read_text("utf-8") == MINE and [p.name for p in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_condition_from_nothing(tmp_path: Path, mine: Path) -> None:
    path = tmp_path / "bites.yaml"
    new_condition(path, "dog bite", "dog bite")
    add_phrase(path, "dog bite", "bit by dog")
    assert anchors_of(path, "dog bite") == ["dog bite", "bit by dog"]
    assert AnchorSet.load(path).conditions[0].title == "Dog bite"
    new_condition(mine, "dog bite", "dog bite", title="Bitten by a dog")
    assert (
        AnchorSet.load(mine).names == ("headache", "fever", "vomiting", "dog bite") and "# the end" in mine.read_text()
    )
    with pytest.raises(ConditionError, match="there already"):
        new_condition(mine, "dog bite", "bitten")
    with pytest.raises(ConditionError, match="anchor of 'fever'"):
        new_condition(mine, "heat", "fever")


def test_refused_phrases_are_remembered(tmp_path: Path) -> None:
    path = tmp_path / "refused.yaml"
    for condition, phrase in (("fever", "hot"), ("fever", "yes"), ("rash", "red"), ("fever", "hot")):
        refuse_phrase(path, condition, phrase)
    assert read_refused(path) == {"fever": ("hot", "yes"), "rash": ("red",)}
    assert path.read_text("utf-8").startswith("# ")
    path.write_text("- a\n", encoding="utf-8")
    with pytest.raises(InputError, match="refused phrases"):
        read_refused(path)


def test_shipped_conditions_survive_being_saved(tmp_path: Path) -> None:
    save_conditions(tmp_path / "c.yaml", AnchorSet.shipped())
    assert AnchorSet.load(tmp_path / "c.yaml") == AnchorSet.shipped()


# ---- trying a phrase

NOTES = ["severe h/a and nausea", "headache, h/a", "no h/a", "h/a today", "fever only", "fever and h/a"] * 2


@pytest.fixture
def visits() -> list[Visit]:
    return [
        Visit(id=f"v{k}", triage_note=note, truth=("headache",) if k in (0, 1, 3) else ())
        for k, note in enumerate(NOTES)
    ]


@pytest.fixture
def cohort(visits: list[Visit], mine: Path) -> Cohort:
    return build_cohort(visits, AnchorSet.load(mine), max_share=1.0, lexicon="none")


def test_what_a_phrase_is_worth(cohort: Cohort, visits: list[Visit]) -> None:
    worth, excerpts = try_phrase(cohort, "headache", "h/a", visits, looks=3)
    assert (worth.fires, worth.gained, worth.anchored, worth.labelled, worth.true) == (8, 6, 2, 8, 3)
    assert len(excerpts) == 3 and all(e.text[e.start : e.end] == "h/a" for e in excerpts)
    assert try_phrase(cohort, "headache", "h/a", visits, looks=3)[1] == excerpts  # the same seed


def test_judging_with_undo_and_stop(cohort: Cohort, visits: list[Visit]) -> None:
    worth, excerpts = try_phrase(cohort, "headache", "h/a", visits)
    script: list[Answer] = ["undo", "yes", "no", "undo", "yes", "skip", "no", "stop"]
    asked: list[int] = []

    def ask(number: int, excerpt: Excerpt) -> Answer:
        asked.append(number)
        return script[len(asked) - 1]

    said = judge(excerpts, ask)
    assert asked == [0, 0, 1, 2, 1, 2, 3, 4] and said == [True, True, None, False, *[None] * 4]
    judged = with_judgements(worth, said)
    assert (judged.judged, judged.yes) == (3, 2) and judged.precision is not None
    share, low, high = judged.precision
    assert share == pytest.approx(2 / 3) and 0.1 < low < share < high < 1
    assert with_judgements(worth, [None]) == worth


# ---- commands


def run(*arguments: object, code: int = 0, keys: str | None = None) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], input=keys)
    assert result.exit_code == code, result.output
    return result.output


def test_the_commands_from_suggestion_to_file(tmp_path: Path, mine: Path) -> None:
    table, folder, refused = tmp_path / "visits.csv", tmp_path / "cohort", tmp_path / "refused.yaml"
    rows = [f"v{k},secret {note.replace(',', ' ')}" for k, note in enumerate(NOTES * 5)]
    table.write_text("\n".join(["id,triage_note", *rows]) + "\n", encoding="utf-8")
    run("build", table, "--conditions", mine, "--lexicon", "none", "--out", folder)
    found = json.loads(run("anchors", "suggest", folder, "--json"))
    assert ("headache", "h/a") in {(s["condition"], s["phrase"]) for s in found}
    assert {"why", "fires", "gained", "precision", "overlaps", "key"} <= set(found[0])
    shown = run("anchors", "suggest", folder, "--condition", "headache", "--visits", table)
    assert "h/a" in shown and "secret severe h/a" in shown and "headache" in shown
    assert "secret severe" not in run("anchors", "suggest", folder)
    worth = json.loads(
        run("anchors", "suggest", folder, "--condition", "headache", "--phrase", "h/a", "--visits", table, "--json")
    )
    assert (worth["fires"], worth["gained"]) == (40, 30)
    judged = run("anchors", "suggest", folder, "--condition", "headache", "--phrase", "h/a", keys="y\n" * 9 + "x\nn\n")
    assert "9 of 10 have it: precision 0.90" in judged and "anchors edit FILE 'headache' --add 'h/a'" in judged
    run("anchors", "edit", refused, "headache", "--refuse", "h/a")
    left = json.loads(run("anchors", "suggest", folder, "--json", "--refused", refused))
    assert ("headache", "h/a") not in {(s["condition"], s["phrase"]) for s in left}
    run("anchors", "edit", mine, "headache", "--add", "h/a")
    assert anchors_of(mine, "headache") == ["headache", "head pain", "h/a"]
    assert "already" in run("anchors", "edit", mine, "headache", "--add", "h/a", code=2)
    assert "started 'dog bite'" in run(
        "anchors", "edit", tmp_path / "bites.yaml", "dog bite", "--new", "--add", "dog bite"
    )
    table.unlink()
    assert "visits.csv" in run("anchors", "suggest", folder, code=2)


def test_a_phrase_is_taken_out_or_changed_where_it_stands(mine: Path) -> None:
    add_phrase(mine, "vomiting", "threw up")
    take_out(mine, "headache", "headache")
    take_out(mine, "fever", "fever")
    take_out(mine, "vomiting", "vomiting")
    take_out(mine, "vomiting", "ondansetron", "dispensed")
    change_phrase(mine, "vomiting", "threw up", "n/v")
    text = mine.read_text("utf-8")
    assert re.search(r'notes: \["head pain"\] +# more to come', text) and "{notes: []}" in text
    assert "        - n/v\n" in text and "# and a remark" in text and "# the end" in text
    assert [len(c.anchors) for c in AnchorSet.load(mine).conditions] == [1, 0, 1]
    take_out(mine, "vomiting", "n/v")
    add_phrase(mine, "vomiting", "emesis")  # into a list that was emptied
    assert anchors_of(mine, "vomiting") == ["emesis"]
    with pytest.raises(ConditionError, match="no anchor of 'fever'"):
        take_out(mine, "fever", "hot")
    with pytest.raises(ConditionError, match="anchor of condition 'headache'"):
        change_phrase(mine, "vomiting", "emesis", "head pain")
    change_phrase(mine, "vomiting", "emesis", "Emesis")  # only its own spelling
    assert owner_of(mine, "head  pain") == "headache" and owner_of(mine, "sore") is None


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.sampled_from(["x", "a: b", "#", "'q'", "[", "é", "- y", "7"]), min_size=1, max_size=4),
    st.sampled_from(["flow", "block"]),
    st.integers(0, 3),
    st.one_of(st.none(), PHRASES),
)
def test_whatever_is_taken_out_or_changed_is_read_back(values: list[str], style: str, at: int, new: str | None) -> None:
    at %= len(values)
    text = "# head\n" + yaml.safe_dump({"a": values, "b": 1}, default_flow_style=style == "flow") + "# foot\n"
    changed = replace(text, ["a"], at, new)
    assert yaml.safe_load(changed) == {"a": values[:at] + ([] if new is None else [new]) + values[at + 1 :], "b": 1}
    assert changed.startswith("# head\n") and changed.endswith("# foot\n")


def test_what_was_refused_may_be_allowed_again(tmp_path: Path) -> None:
    path = tmp_path / "refused.yaml"
    allow_phrase(path, "headache", "migraine")
    refuse_phrase(path, "headache", "migraine")
    refuse_phrase(path, "headache", "eye pain")
    allow_phrase(path, "headache", "migraine")
    assert read_refused(path) == {"headache": ("eye pain",)}
    allow_phrase(path, "headache", "eye pain")
    refuse_phrase(path, "headache", "neck")
    assert read_refused(path) == {"headache": ("neck",)}


def test_an_edit_of_the_shipped_conditions_keeps_every_comment(tmp_path: Path) -> None:
    name = "emergency.yaml"
    shipped = (files("whatelse.annotators") / name).read_text("utf-8")
    file = tmp_path / name
    file.write_bytes(shipped.replace("\n", "\r\n").encode())
    add_phrase(file, AnchorSet.shipped().names[0], "a phrase of my own")
    after = file.read_bytes().decode()
    assert after.count("\r\n") == after.count("\n")
    for line in shipped.splitlines():
        assert "#" not in line or line[line.index("#") :] in after
    take_out(file, AnchorSet.shipped().names[0], "a phrase of my own")
    assert AnchorSet.load(file) == AnchorSet.shipped()


def test_comments_stay_where_they_are_when_entries_come_and_go() -> None:
    text = "a:\n- x # of x\n- y # of y\n\n# about b\nb: 1\n"
    assert append(text, ["a"], "yes") == "a:\n- x # of x\n- y # of y\n- 'yes'\n\n# about b\nb: 1\n"
    assert replace(text, ["a"], 1, None) == "a:\n- x # of x\n\n# about b\nb: 1\n"
    assert replace(text, ["a"], 0, None) == "a:\n- y # of y\n\n# about b\nb: 1\n"
    assert replace("a:\n- y # of y\n\n# about b\nb: 1\n", ["a"], 0, None) == "a: []\n\n# about b\nb: 1\n"
