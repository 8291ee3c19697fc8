"""Other libraries asked the same question, each in a process of its own with limits on time and memory.

    python -m benchmarks.inference_peers pyagrum 5     # one library, 5 parents a finding: prints one line of JSON

The network is that of the inference benchmark: 23 conditions (priors 2-10%), 300 findings, about 40 present. A library
is timed on the query alone, not on building the network, and by the lesser of wall clock and processor time.
"""

from __future__ import annotations

import json
import logging
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from whatelse.noisyor import NoisyOr

PEERS = ("pyagrum", "pgmpy", "pymc")
PARENTS = (5, 10, 23)
MEMORY = 6 * 2**30


def network(parents: int, seed: int = 4) -> tuple[NoisyOr, NDArray[np.int64]]:
    """The network with `parents` causes per finding, and the findings present in one visit drawn from it."""
    rng = np.random.default_rng(seed)
    m, n = 23, 300
    fail = np.ones((m, n))
    for j in range(n):
        fail[rng.choice(m, parents, replace=False), j] = rng.uniform(0.6, 0.97, parents) ** (5 / parents)
    model = NoisyOr(rng.uniform(0.02, 0.1, m), fail, rng.uniform(0.005, 0.04, n))
    y = np.zeros(m, bool)
    y[rng.choice(m, 3, replace=False)] = True
    off = (1 - model.leak) * np.prod(np.where(y[:, None], model.fail, 1.0), axis=0)
    return model, np.flatnonzero(rng.random(n) >= off)


def table(model: NoisyOr, j: int, parents: NDArray[np.int64]) -> NDArray[np.float64]:
    """P(X_j = 0 | parents), one axis of two per parent."""
    off = np.full((2,) * parents.size, 1.0 - model.leak[j])
    for axis, i in enumerate(parents):
        shape = [1] * parents.size
        shape[axis] = 2
        off = off * np.array([1.0, model.fail[i, j]]).reshape(shape)
    return off


def stopwatch() -> Callable[[], float]:
    """Seconds since now: the lesser of wall clock and processor time, so that a busy machine is not held against it."""
    wall, processor = time.perf_counter(), time.process_time()
    return lambda: min(time.perf_counter() - wall, time.process_time() - processor)


def pyagrum(model: NoisyOr, present: set[int]) -> tuple[float, list[float]]:
    """Lazy propagation: exact."""
    import pyagrum as gum

    bn = gum.BayesNet()
    for i in range(model.m):
        bn.add(gum.LabelizedVariable(f"y{i}", "", 2))
        bn.cpt(f"y{i}").fillWith([1 - model.prior[i], model.prior[i]])
    for j in range(model.n):
        parents = np.flatnonzero(model.fail[:, j] < 1)
        bn.add(gum.LabelizedVariable(f"x{j}", "", 2))
        for i in parents:
            bn.addArc(f"y{i}", f"x{j}")
        off = table(model, j, parents)
        # its tables run over the finding first, then the parents, the first one fastest
        bn.cpt(f"x{j}").fillWith(np.stack([off, 1 - off]).ravel(order="F").tolist())
    ie = gum.LazyPropagation(bn)
    ie.setEvidence({f"x{j}": int(j in present) for j in range(model.n)})
    elapsed = stopwatch()
    ie.makeInference()
    marginals = [float(ie.posterior(f"y{i}")[1]) for i in range(model.m)]
    return elapsed(), marginals


def pgmpy(model: NoisyOr, present: set[int]) -> tuple[float, list[float]]:
    """Variable elimination: exact."""
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.inference import VariableElimination
    from pgmpy.models import DiscreteBayesianNetwork

    bn = DiscreteBayesianNetwork()
    bn.add_nodes_from([f"y{i}" for i in range(model.m)])
    for i in range(model.m):
        bn.add_cpds(TabularCPD(f"y{i}", 2, [[1 - model.prior[i]], [model.prior[i]]]))
    for j in range(model.n):
        parents = np.flatnonzero(model.fail[:, j] < 1)
        bn.add_edges_from([(f"y{i}", f"x{j}") for i in parents])
        off = table(model, j, parents).ravel()
        bn.add_cpds(TabularCPD(f"x{j}", 2, [off, 1 - off], [f"y{i}" for i in parents], [2] * parents.size))
    evidence = {f"x{j}": int(j in present) for j in range(model.n)}
    elapsed = stopwatch()
    answer = VariableElimination(bn).query(
        [f"y{i}" for i in range(model.m)], evidence, joint=False, show_progress=False
    )
    return elapsed(), [float(answer[f"y{i}"].values[1]) for i in range(model.m)]


def pymc(model: NoisyOr, present: set[int]) -> tuple[float, list[float]]:
    """Its Gibbs sampler for binary variables: approximate."""
    import pymc as pm
    import pytensor.tensor as pt

    on = np.array(sorted(present))
    log_fail = np.log(model.fail)
    absent = np.setdiff1d(np.arange(model.n), on)
    with pm.Model():
        y = pm.Bernoulli("y", p=model.prior, shape=model.m)
        z = pt.dot(y, log_fail[:, on]) + np.log1p(-model.leak[on])
        pm.Potential("findings", pt.sum(pt.log1p(-pt.exp(z))) + pt.dot(y, log_fail[:, absent].sum(1)))
        step = pm.BinaryGibbsMetropolis([y])
        elapsed = stopwatch()
        trace = pm.sample(2000, tune=500, chains=2, cores=1, step=step, random_seed=1, progressbar=False)
        seconds = elapsed()
    return seconds, [float(p) for p in trace.posterior["y"].mean(("chain", "draw"))]


def ask_peer(name: str, parents: int, limit: float) -> dict[str, object]:
    """One library's answer from a process of its own: {seconds, build, marginals}, or {gave_up: why}."""
    if find_spec(name) is None:
        return {"gave_up": "not installed"}
    command = [sys.executable, "-m", "benchmarks.inference_peers", name, str(parents)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"gave_up": f"no answer in {limit:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        problem = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"gave_up": f"over {MEMORY >> 30} GiB" if "alloc" in problem or "Memory" in problem else problem[:80]}
    answer: dict[str, object] = json.loads(lines[-1])
    return answer


def main() -> None:
    name, parents = sys.argv[1], int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    model, present = network(parents)
    elapsed = stopwatch()
    ask = {"pyagrum": pyagrum, "pgmpy": pgmpy, "pymc": pymc}[name]
    seconds, marginals = ask(model, set(present.tolist()))
    build = elapsed() - seconds
    print(json.dumps({"seconds": seconds, "build": build, "marginals": marginals}))


if __name__ == "__main__":
    main()
