"""Data frames are read as tables are: pandas, polars, Arrow, and whatever speaks one of the two protocols."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whatelse.annotators import AnchorSet
from whatelse.cohort import Cohort, build_cohort
from whatelse.errors import CohortError, InputError
from whatelse.sources import read_visits
from whatelse.visits import Code, Visit

COLUMNS = {
    "id": ["7", "8", "9"],
    "age": [44.0, None, 3.0],
    "sex": ["F", None, "M"],
    "Chief Complaint": ["s/p fall", None, "fever"],
    "billing": ["W18|N390", None, ""],
    "acuity": [3, 2, 1],
    "arrived": [datetime(2020, 1, 2, 3, 4), None, datetime(2021, 1, 1)],
}
MAP = {"coded": {"column": "acuity", "system": "triage"}, "time": "arrived"}
ANCHORS = AnchorSet.from_json(
    {"conditions": [{"name": "fall", "codes": {"icd10": ["W1"]}, "anchors": {"notes": ["s/p fall"]}}]}
)


def frames() -> dict[str, Any]:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    table = pa.table(COLUMNS)

    class Old:  # only the older protocol, as vaex or modin offer it
        def __dataframe__(self, **given: Any) -> Any:
            return table.drop_columns(["arrived"]).__dataframe__(**given)

    return {
        "pandas": pandas.DataFrame(COLUMNS),
        "pandas, own index": pandas.DataFrame(COLUMNS, index=[5, 3, 9]),
        "pandas, categories": pandas.DataFrame(COLUMNS).astype({"sex": "category"}),
        "polars": polars.DataFrame(COLUMNS),
        "arrow": table,
        "arrow batch": table.to_batches()[0],
        "interchange": Old(),
    }


@pytest.mark.parametrize("kind", list(frames()))
def test_a_frame_is_a_table(kind: str) -> None:
    frame = frames()[kind]
    columns = MAP if kind != "interchange" else {"coded": MAP["coded"]}
    first, second, third = read_visits(frame, columns=columns)
    time = datetime(2020, 1, 2, 3, 4) if kind != "interchange" else None
    billing = (Code("icd10", "W18"), Code("icd10", "N390"))
    assert first == Visit("7", 44.0, "F", "s/p fall", billing=billing, coded=(Code("triage", "3"),), time=time)
    assert second == Visit("8", coded=(Code("triage", "2"),))  # missing cells are unknown, however a frame says so
    assert third.billing == () and third.age == 3
    cohort = build_cohort(frame, ANCHORS, columns=columns, max_share=1)
    assert cohort.ids.tolist() == ["7", "8", "9"] and cohort.known.tolist() == [[True], [False], [True]]
    again = build_cohort(frame, like=cohort)  # read as the first was: no columns needed
    assert (again.X != cohort.X).nnz == 0 and cohort.vocabulary.source["coded"] == MAP["coded"]


def test_frames_that_cannot_be_read() -> None:
    with pytest.raises(InputError, match=r"the data frame: no column 'id' among its 1 columns.*row_number"):
        next(read_visits(pa.table({"age": [3]})))
    with pytest.raises(InputError, match="the data frame: has no rows"):
        next(read_visits(pa.table({"id": pa.array([], pa.string()), "age": pa.array([], pa.int64())})))
    with pytest.raises(InputError, match="the data frame, row 2, column 'age': age is above 130"):
        list(read_visits(pa.table({"id": ["1", "2"], "age": [3, 300]})))
    with pytest.raises(InputError, match="this id was seen before"):
        list(read_visits(pa.table({"id": ["1", "1"], "age": [3, 30]})))
    with pytest.raises(InputError, match="a data frame is a table"):
        read_visits(pa.table({"id": ["1"]}), "mimic-ed")
    with pytest.raises(CohortError, match="columns are for a data frame"):
        build_cohort([Visit("1")], columns={"id": "x"})
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InputError, match="values of several types") as refused:
        next(read_visits(pandas.DataFrame({"id": ["1", "2"], "triage_note": ["secret", 3]})))
    assert "secret" not in str(refused.value)


def test_a_cohort_as_a_frame() -> None:
    pandas = pytest.importorskip("pandas")
    cohort = build_cohort(pa.table(COLUMNS), ANCHORS, columns=MAP, max_share=1)
    frame = cohort.to_pandas()
    assert frame.index.tolist() == ["7", "8", "9"] and frame.index.name == "visit"
    findings = frame["finding"]
    assert tuple(findings.columns) == cohort.vocabulary.names
    np.testing.assert_array_equal(findings.to_numpy(), cohort.X.toarray())
    labels = frame["condition"]["fall"]
    assert labels.tolist() == [True, pandas.NA, False] and str(labels.dtype) == "boolean"
    bare = Cohort(cohort.X, cohort.vocabulary, cohort.ids).to_pandas()
    assert bare["condition"]["fall"].isna().all()
