"""`make bench` runs every benchmark with what it needs, or says that it is to be run by hand."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks import __main__ as bench
from benchmarks.peer_learners import chain_states
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain

FOLDER = Path(bench.__file__).parent


def _wanted(name: str) -> list[str]:
    """The arguments without which a benchmark does not start."""
    calls = (n for n in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text("utf-8"))) if isinstance(n, ast.Call))
    given = [n for n in calls if isinstance(n.func, ast.Attribute) and n.func.attr == "add_argument"]
    names = [(ast.literal_eval(n.args[0]), {k.arg for k in n.keywords}) for n in given]
    return [name for name, how in names if "required" in how or (not name.startswith("-") and "nargs" not in how)]


@pytest.mark.parametrize("name", bench.found())
def test_what_is_run_is_given_what_it_needs(name: str) -> None:
    for call in bench.RUNS.get(name, [""]):
        assert call or not _wanted(name), f"benchmarks.{name} needs {_wanted(name)}: put it into RUNS or BY_HAND"


def test_every_name_is_of_a_benchmark() -> None:
    there = {path.stem for path in FOLDER.glob("[!_]*.py")}
    assert {*bench.RUNS, *bench.BY_HAND, *bench.HELPERS} <= there
    assert all(_wanted(name) for name in bench.BY_HAND if name != "spark")


def test_states_of_a_classifier_chain_are_products_along_the_chain() -> None:
    rng = np.random.default_rng(0)
    X, Y = (rng.random((200, 6)) < 0.4).astype(float), rng.random((200, 4)) < 0.4
    Y[:, 1] |= Y[:, 0] & (X[:, 0] > 0)
    chain = ClassifierChain(LogisticRegression(), order=[2, 0, 3, 1]).fit(X, Y.astype(int))
    confirmed = rng.random((20, 4)) < 0.3
    found = chain_states(chain, sp.csr_matrix(X[:20]), confirmed)
    for visit, i in np.argwhere(~confirmed):
        state, total = confirmed[visit].copy(), 0.0
        state[i] = True
        for place, k in enumerate(chain.order_):
            features = np.append(X[visit], state[chain.order_[:place]])
            total += chain.estimators_[place].predict_log_proba(features[None])[0, int(state[k])]
        assert found[visit, i] == pytest.approx(total)
