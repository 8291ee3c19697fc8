"""Text to mentions beside medspaCy with the same terms, in one run: `python -m benchmarks.text_peers NOTES`.

NOTES is a JSON-lines file with `triage_note`, gzipped. Both read the same notes on one core: the terms of the
shipped lexicon as target rules, and medspaCy's own ConText rules. Rounds alternate; the best of three counts. Needs the
extra `bench`.
"""

from __future__ import annotations

import argparse
import gzip
import json
from itertools import islice
from pathlib import Path
from time import perf_counter

from whatelse.text import NoteReader, load_lexicon

ROUNDS = 3


def main() -> None:
    import medspacy
    from loguru import logger
    from medspacy.ner import TargetRule

    logger.remove()  # its sentence splitter logs every token, which would count against it

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("notes", type=Path)
    parser.add_argument("--count", type=int, default=400)
    args = parser.parse_args()
    with gzip.open(args.notes, "rt") as stream:
        notes = [json.loads(line)["triage_note"] for line in islice(stream, args.count)]
    lexicon = load_lexicon()
    reader = NoteReader(lexicon)
    peer = medspacy.load(enable=["medspacy_pyrush", "medspacy_target_matcher", "medspacy_context"])
    rules = [TargetRule(term, entry.name) for entry in lexicon.entries for term in entry.terms]
    peer.get_pipe("medspacy_target_matcher").add(rules)
    reader.items(notes)
    best = [float("inf")] * 2
    for _ in range(ROUNDS):
        begin = perf_counter()
        with reader.lock:
            items = reader.items(notes * 10)
        best[0] = min(best[0], (perf_counter() - begin) / 10)
        begin = perf_counter()
        found = sum(len(doc.ents) for doc in peer.pipe(notes))
        best[1] = min(best[1], perf_counter() - begin)
    ours, theirs = (len(notes) / seconds for seconds in best)
    print(f"{len(rules):,} terms, {len(notes)} notes: {found:,} entities, {len(items) // 10:,} items of whatelse")
    print(f"whatelse {ours:,.0f} notes/s, medspaCy {theirs:,.0f} notes/s: {ours / theirs:.0f} times")


if __name__ == "__main__":
    main()
