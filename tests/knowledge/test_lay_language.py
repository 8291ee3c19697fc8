"""How people tell common findings is read: `tests/data/lay_language.yaml`."""

from __future__ import annotations

from pathlib import Path

import yaml

from whatelse.text import NoteReader, load_lexicon


def test_lay_language_of_common_findings_is_read() -> None:
    lexicon = load_lexicon()
    reader = NoteReader(lexicon)
    phrases = yaml.safe_load((Path(__file__).parents[1] / "data" / "lay_language.yaml").read_text("utf-8"))
    missed, count = [], 0
    for concept, ways in phrases.items():
        assert concept in lexicon.by_name, concept
        for way in ways:
            mentions = reader.note(f"Patient says: {way}.").mentions
            read = {name for m in mentions for name in (m.finding, m.concept, *lexicon.ancestors(m.concept))}
            count += 1
            if concept not in read:
                missed.append((concept, way))
    assert len(missed) <= 0.06 * count, missed
