"""The numerical core: a bipartite noisy-or network as arrays. No strings, no files, no visits."""

from whatelse.noisyor.attribution import Why, why
from whatelse.noisyor.inference.enumeration import enumerate_posterior
from whatelse.noisyor.inference.gibbs import Gibbs, gibbs, held_out_anchor
from whatelse.noisyor.inference.heldout import heldout_tag
from whatelse.noisyor.inference.posterior import posterior
from whatelse.noisyor.inference.solver import Posterior
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.likelihood import finding_marginals, log_joint, sample
from whatelse.noisyor.params import NoisyOr

__all__ = [
    "Gibbs",
    "JointModel",
    "NoisyOr",
    "Posterior",
    "Why",
    "enumerate_posterior",
    "finding_marginals",
    "gibbs",
    "held_out_anchor",
    "heldout_tag",
    "log_joint",
    "posterior",
    "sample",
    "why",
]
