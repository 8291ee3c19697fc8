"""The numerical core: a bipartite noisy-or network as arrays. No strings, no files, no visits."""

from whatelse.noisyor.gibbs import Gibbs, gibbs, gibbs_many, held_out_anchor
from whatelse.noisyor.params import NoisyOr

__all__ = ["Gibbs", "NoisyOr", "gibbs", "gibbs_many", "held_out_anchor"]
