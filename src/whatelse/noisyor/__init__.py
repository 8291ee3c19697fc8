"""The numerical core: a bipartite noisy-or network as arrays. No strings, no files, no visits."""

from whatelse.noisyor.attribution import Why, why
from whatelse.noisyor.inference.heldout import heldout_tag
from whatelse.noisyor.inference.posterior import posterior
from whatelse.noisyor.inference.solver import Posterior
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.likelihood import sample
from whatelse.noisyor.params import NoisyOr

__all__ = ["JointModel", "NoisyOr", "Posterior", "Why", "heldout_tag", "posterior", "sample", "why"]
