"""build_cohort: a stream of visits -> Cohort."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from whatelse.annotators import AnchorSet
from whatelse.cohort.bands import learn_cuts
from whatelse.cohort.cohort import Cohort
from whatelse.cohort.counting import AT_ONCE, Collector, Labels
from whatelse.cohort.fields import FieldCollector, given_fields
from whatelse.cohort.findings import Finder
from whatelse.cohort.vocabulary import Vocabulary
from whatelse.errors import CohortError
from whatelse.sources import read_visits
from whatelse.sources.reader import is_frame
from whatelse.text import Rules
from whatelse.text.function_words import says_nothing
from whatelse.text.lexicon import Lexicon, load_lexicon
from whatelse.visits import TEXT_FIELDS, Visit


@dataclass(frozen=True)
class Choice:
    """Which findings become columns.

    max_share   findings in more than this share of visits go: they are the stop words
    max_terms   number of the most common findings that stay (None: all); anchors always stay
    min_visits  findings in fewer visits than this go
    bigrams     whether common pairs of words are joined
    function_words  whether words of grammar and form and bare numbers may be findings (`text/function_words.py`)
    bands       number of bands for each measurement, with about as many visits in each band (`bands.py`)
    """

    max_share: float = 0.5
    max_terms: int | None = 1000
    min_visits: int = 1
    bigrams: bool = True
    bands: int = 5
    function_words: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.max_share <= 1:
            raise CohortError(f"max_share is {self.max_share}, must be above 0 and at most 1")
        if (self.max_terms is not None and self.max_terms < 0) or self.min_visits < 0:
            raise CohortError("max_terms and min_visits must not be negative")
        if self.bands < 2:
            raise CohortError(f"bands is {self.bands}, must be at least 2")


def build_cohort(
    visits: Iterable[Visit] | Any,
    anchors: AnchorSet | str | Path | None = None,
    *,
    max_share: float = 0.5,
    max_terms: int | None = 1000,
    min_visits: int = 1,
    rules: str | Rules = "default",
    bigrams: bool = True,
    bands: int = 5,
    function_words: bool = False,
    like: Cohort | Vocabulary | None = None,
    about: Mapping[str, Any] | None = None,
    columns: str | Path | Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None,
    lexicon: str | Path | Lexicon = "default",
) -> Cohort:
    """Make a cohort of visits, which are read once.

    visits      visits, or a data frame (pandas, polars, Arrow), read as `read_visits(frame, columns=columns)` does
    anchors     the conditions, or the path of their file (None: the 23 shipped ones); not used with `like`
    rules       assertion rules: a shipped name, a path or loaded ones
    lexicon     the concepts that notes and codes are read for: `default`, `none` (words alone), a knowledge file, or
                a loaded one. Where no visit has a note (`coded_only`), codes stay findings by their labels
    like        use the vocabulary of this cohort as it is (for test data); the other options then do nothing
    max_share, max_terms, min_visits, bigrams, bands, function_words   which findings there are: see `Choice`
    about       where the visits came from, as JSON values; what the reader says if `read_visits` made them
    columns     which column of a data frame is which field; with `like`, as it was for `like` if not given
    source      how the visits were read, for the vocabulary to keep; that of the reader if `read_visits` made them

    Memory: 4 bytes for each word of the notes, and about as much again while findings are chosen.
    """
    choice = Choice(max_share, max_terms, min_visits, bigrams, bands, function_words)
    known = like.vocabulary if isinstance(like, Cohort) else like
    if is_frame(visits):
        visits = read_visits(visits, columns=columns, like=known.source if known is not None else None)
    elif columns is not None:
        raise CohortError("columns are for a data frame: give them to read_visits, which made these visits")
    about = getattr(visits, "about", None) if about is None else about
    if known is not None:
        return _known_findings(visits, known, about)
    source = source or getattr(visits, "description", None)
    anchors = AnchorSet.load(anchors) if isinstance(anchors, str | Path) else anchors
    concepts, stream = load_lexicon(lexicon), iter(visits)
    first = list(islice(stream, AT_ONCE))
    if coded_only(first):
        concepts = concepts.without_labels()
    finder = Finder(anchors or AnchorSet.shipped(), rules, concepts)
    return cohort_of(Collector(finder).add_all(chain(first, stream)), choice, about, source)


def coded_only(visits: Iterable[Visit]) -> bool:
    """Whether visits have codes but neither notes nor numbers: their labels are a closed list, made to be findings.

    Reading such labels as text would blur the list: on NHAMCS it cost two to four points of held-out accuracy.
    """
    visits = list(visits)
    notes = (*TEXT_FIELDS, "numbers")
    coded = any(visit.coded or visit.dispensed for visit in visits)
    return coded and not any(getattr(visit, field) for visit in visits for field in notes)


def cohort_of(
    collector: Collector,
    choice: Choice,
    about: Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None,
) -> Cohort:
    """The cohort of the visits that were collected."""
    collector.read()
    finder, N = collector.finder, len(collector)
    joined = collector.bigrams.learn() if choice.bigrams else frozenset()
    bands = {name: learn_cuts(values, choice.bands) for name, values in collector.numbers().items()}
    names, ends, numbers = collector.findings(joined, bands)
    counts = np.bincount(numbers, minlength=len(names))
    chosen = _choose(names, counts, N, collector, choice)
    column = np.full(len(names), -1, dtype=np.int32)
    column[chosen] = np.arange(len(chosen), dtype=np.int32)
    vocabulary = Vocabulary(
        tuple(names[j] for j in chosen),
        counts[chosen],
        N,
        finder.anchors,
        finder.rules,
        joined,
        bands=bands,
        source=source or {},
        lexicon=finder.lexicon,
    )
    numbers = column[numbers]
    kept = numbers >= 0
    ends = np.concatenate([[0], np.cumsum(kept)])[ends].astype(np.int32)
    ones = np.ones(np.count_nonzero(kept), np.uint8)
    X = csr_matrix((ones, numbers[kept], ends), shape=(N, len(vocabulary.names)))
    return _cohort(collector.labels, vocabulary, X, collector.fields, about)


def _known_findings(visits: Iterable[Visit], vocabulary: Vocabulary, about: Mapping[str, Any] | None) -> Cohort:
    """The cohort of visits whose findings are looked up in a vocabulary."""
    labels, fields, stream, parts = Labels(vocabulary.anchors), FieldCollector(), iter(visits), []
    while some := list(islice(stream, AT_ONCE)):
        for visit in some:
            labels.add(visit)
            fields.add(given_fields(visit))
        parts.append(vocabulary.reader.present(some))
    return _cohort(labels, vocabulary, vstack(parts, "csr") if parts else None, fields, about)


def _cohort(
    labels: Labels,
    vocabulary: Vocabulary,
    X: csr_matrix | None,
    fields: FieldCollector,
    about: Mapping[str, Any] | None,
) -> Cohort:
    if X is None or not labels.ids:
        raise CohortError("there are no visits to make a cohort of")
    ids, Y, known = labels.arrays()
    X.sort_indices()
    return Cohort(X, vocabulary, ids, Y, known, about or {}, fields.done())


def _choose(names: list[str], counts: NDArray[np.int64], N: int, collector: Collector, choice: Choice) -> list[int]:
    """Which of the names stay: ordinary findings, most common first, then all anchors in their order."""
    m, facts = len(collector.finder.anchors.names), len(collector.facts)
    common = np.flatnonzero((counts >= max(choice.min_visits, 1)) & (counts <= choice.max_share * N))
    order = sorted(common.tolist(), key=lambda j: (-counts[j], names[j]))
    chosen = choose(((names[j], j < facts, j) for j in order), collector.finder, collector.left, choice)
    return chosen + list(range(m))


def choose(common: Iterable[tuple[str, bool, int]], finder: Finder, left: Collection[str], choice: Choice) -> list[int]:
    """Choose the ordinary findings of the vocabulary.

    common   (name, whether it is a fact and no word, a number to call it by), in that order; read as far as is needed
    left     names of codes that were anchors
    """
    anchors = {f"anchor:{name}" for name in finder.anchors.names}
    concepts = frozenset(finder.reader.concepts)

    def stays(name: str, fact: bool) -> bool:
        if fact:
            return name in anchors or (name not in left and name not in finder.anchor_concepts)
        if name.removeprefix("neg:") in concepts:  # a body site alone
            return False
        return not finder.leaves(name) and (choice.function_words or not says_nothing(name))

    kept = islice(((name, fact, j) for name, fact, j in common if stays(name, fact)), choice.max_terms)
    return [j for name, fact, j in kept if not (fact and name in anchors)]
