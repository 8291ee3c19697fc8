"""Labels of a few visits, as files."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from tests.support.small_department import cohort
from whatelse.annotators.vote_files import MOST_ANNOTATORS, read_vote_file, read_votes
from whatelse.annotators.votes import Votes
from whatelse.errors import InputError


def _wide(path: Path, rows: int) -> Path:
    train = cohort()
    assert train.Y is not None
    lines = ["id," + ",".join(train.conditions)]
    lines += [f"{train.ids[k]}," + ",".join(str(int(v)) for v in train.Y[k]) for k in range(rows)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def _same(one: Votes, two: Votes) -> bool:
    return np.array_equal(one.value, two.value) and np.array_equal(one.known, two.known)


def test_wide_and_long_labels_are_the_same(tmp_path: Path) -> None:
    train = cohort()
    assert train.Y is not None
    (wide,) = read_votes(_wide(tmp_path / "wide.csv", 300), train)
    assert wide.annotator == "wide.csv" and wide.certain
    assert np.array_equal(wide.value[:300], train.Y[:300]) and wide.known[:300].all() and not wide.known[300:].any()
    lines = ["visit,condition,label"]
    lines += [f"{train.ids[k]},{c},{int(train.Y[k, i])}" for k in range(300) for i, c in enumerate(train.conditions)]
    long = tmp_path / "long.csv"
    long.write_text("\n".join([*lines, "not of this cohort,fall,1"]), encoding="utf-8")
    with pytest.raises(InputError, match=r"row 6901, column 'visit': 1 ids are no visit of the .* --skip-other-labels"):
        read_votes(long, train)
    assert _same(read_votes(long, train, others="skip")[0], wide)
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(long), tmp_path / "long.parquet")
    assert _same(read_votes(tmp_path / "long.parquet", train, others="skip")[0], wide)


def test_a_visit_need_not_be_labelled_for_everything(tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text(f"visit,fall,uti\n{cohort().ids[4]},yes,\n{cohort().ids[9]},,no\n", encoding="utf-8")
    (votes,) = read_votes(path, cohort())
    assert votes.known.sum() == 2 and votes.value[4, cohort().conditions.index("fall")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rows"),
        ("name,fall\nx,1\n", "needs a column of visit ids"),
        ("id,colour\nx,1\n", "needs a column for each condition"),
        ("id,fall\nx,maybe\n", "row 1, column 'fall': must be 1 or 0"),
        ("visit,condition,label\nx,gout,1\n", "row 1, column 'condition': names a condition that the cohort does not"),
        ("visit,condition,label\nx,Falls,1\n", "did you mean 'fall'?"),
        ("visit,falls,uti\nx,1,1\n", "column 'falls': is not a condition; did you mean 'fall'?"),
        ("visit,abdominal_pian\nx,1\n", "did you mean 'abdominal pain'?"),
        ("id,fall\nx,1\n", "row 1, column 'id': 1 ids are no visit of the cohort; correct them"),
        ("id,fall\ns11-0000001 ,1\n", "leading zeros, '.0', case or blanks only"),
        ('id,fall\n"x,1\n', "quotes do not match"),
        ("id,fall\nx,1,2\n", "more or fewer cells"),
        ("id,fall,uti,fall\nx,1,0,0\n", "column 'fall': two columns have this name"),
    ],
)
def test_label_files_that_cannot_be_used(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(message)):
        read_votes(path, cohort())


def test_labels_twice_and_broken_parquet(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    one = cohort().ids[0]
    path.write_text(f"id,fall\n{one},1\n{one},0\n", encoding="utf-8")
    with pytest.raises(InputError, match="second time"):
        read_votes(path, cohort())
    (tmp_path / "labels.parquet").write_bytes(b"no")
    with pytest.raises(InputError, match="cannot be read as a Parquet file"):
        read_votes(tmp_path / "labels.parquet", cohort())
    with pytest.raises(InputError, match="no such file"):
        read_votes(tmp_path / "none.parquet", cohort())


def test_columns_that_look_like_labels_of_no_condition_are_named(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    one, two = cohort().ids[:2]
    path.write_text(f"id,fall,gout,note,empty,weight\n{one},1,0,1,,2\n{two},0,,well,,1\n", encoding="utf-8")
    assert read_vote_file(path, cohort())[1] == ("gout",)
    path.write_text(f"id,condition,label,sure\n{one},fall,1,1\n", encoding="utf-8")
    assert read_vote_file(path, cohort())[1] == ()


@pytest.mark.parametrize(("delimiter", "encoding"), [(";", "cp1252"), ("\t", "utf-8"), (",", "utf-8-sig")])
def test_labels_as_spreadsheets_save_them(delimiter: str, encoding: str, tmp_path: Path) -> None:
    one, two = cohort().ids[:2]
    lines = [["visit", "Anmerkung für mich", "fall"], [one, "später, s. o.", "1"], [two, "", "0"]]
    text = "\r\n".join(delimiter.join(f'"{c}"' if "," in c else c for c in cells) for cells in lines)
    (tmp_path / "labels.csv").write_bytes(text.encode(encoding))
    (votes,) = read_votes(tmp_path / "labels.csv", cohort())
    assert votes.value[:2, cohort().conditions.index("fall")].tolist() == [True, False] and votes.known.sum() == 2


def test_votes_of_several_annotators_are_kept_apart(tmp_path: Path) -> None:
    one, two = cohort().ids[:2]
    path = tmp_path / "votes.csv"
    path.write_text(
        "visit,condition,value,annotator,weight\n"
        f"{one},fall,1,model A,2\n{one},fall,0,model B,2\n{two},uti,1,model B,3\n{two},fall,,model A,3\n",
        encoding="utf-8",
    )
    a, b = read_votes(path, cohort())
    fall, uti = cohort().conditions.index("fall"), cohort().conditions.index("uti")
    assert (a.annotator, b.annotator, a.kind, b.kind) == ("model A", "model B", "program", "program")
    assert a.sensitivity is None and a.known.sum() == 1 and a.value[0, fall]
    assert b.known.sum() == 2 and not b.value[0, fall] and b.value[1, uti]
    assert a.weight[0, fall] == 2 and b.weight[1, uti] == 3


def test_votes_without_an_annotator_or_of_too_many_are_refused(tmp_path: Path) -> None:
    path, one = tmp_path / "votes.csv", cohort().ids[0]
    path.write_text(f"visit,condition,value,annotator\n{one},fall,1,\n", encoding="utf-8")
    with pytest.raises(InputError, match="row 1, column 'annotator': must name the annotator"):
        read_votes(path, cohort())
    rows = [f"{one},fall,1,a{k}" for k in range(MOST_ANNOTATORS + 1)]
    path.write_text("\n".join(["visit,condition,value,annotator", *rows]), encoding="utf-8")
    with pytest.raises(InputError, match="names more than 100 annotators"):
        read_votes(path, cohort())
