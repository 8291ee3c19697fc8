"""The numerical core: a bipartite noisy-or network as arrays. No strings, no files, no visits."""

from whatelse.noisyor.params import NoisyOr

__all__ = ["NoisyOr"]
