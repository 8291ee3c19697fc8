"""From visits to arrays: findings by name, the vocabulary of a model, and many visits as one sparse matrix."""

from whatelse.cohort.build import build_cohort
from whatelse.cohort.cohort import Cohort
from whatelse.cohort.concepts import concepts_of_finding
from whatelse.cohort.vocabulary import Vocabulary

__all__ = ["Cohort", "Vocabulary", "build_cohort", "concepts_of_finding"]
