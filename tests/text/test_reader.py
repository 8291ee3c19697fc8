"""Notes to mentions: phrases, composition, shorthand, misspellings, drugs; against a slow reference."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import reference_reader
from whatelse.text import Rules, tokenize
from whatelse.text.lexicon import DRUG, DRUG_CLASS, EMPTY, Entry, Lexicon
from whatelse.text.matcher import ANCHOR, APART, ASSERTION, END, FLAGS, ID, NOTE, START, TYPE
from whatelse.text.reader import NoteReader, Phrase


def entry(name: str, terms: str, kind: str = "symptom", is_a: tuple[str, ...] = (), **more: object) -> Entry:
    return Entry(name, kind, tuple(term.strip() for term in terms.split(";")), is_a, **more)  # type: ignore[arg-type]


ENTRIES = [
    entry("fever", "fever; febrile; feeling hot"),
    entry("vomiting", "vomiting; vomited; threw up"),
    entry("chest_pain", "chest pain; pain in chest; cp substernal", is_a=("pain",)),
    entry("abdominal_pain", "abdominal pain; abd pain; belly pain"),
    entry("rlq_pain", "right lower quadrant pain; rlq pain", is_a=("abdominal_pain",)),
    entry("dyspnea", "shortness of breath; short of breath; dyspnea"),
    entry("exertional_dyspnea", "shortness of breath on exertion", is_a=("dyspnea",)),
    entry("breath_smell", "breath on fire again now"),
    entry("inability_to_walk", "unable to walk; can't walk"),
    entry("diabetes", "diabetes; diabetic; type 2 diabetes", "disease", lasting=True),
    entry("type_1_diabetes", "type 1 diabetes", "disease", ("diabetes",), lasting=True),
    entry("stroke", "stroke; cva", "disease"),
    entry("dysphagia", "dysphagia"),
    entry("dysphasia", "dysphasia"),
    entry("hemorrhage", "hemorrhage; haematoma evacuation"),
    entry("rash_of_scarlet_fever", "scarlet fever rash"),
    entry("multiple_sclerosis", "multiple sclerosis", "disease", lasting=True),
    entry("altered_mental_status", "altered mental status"),
    entry("injury", "injury; hit by a car"),
    entry("severe", "severe; excruciating", "quality"),
    entry("pain", "pain; painful; sore", "head"),
    entry("swelling", "swelling; swollen", "head"),
    entry("fracture", "fracture; fx; broken", "head"),
    entry("laceration", "laceration; cut", "head"),
    entry("rash", "rash", "head"),
    entry("upper_limb", "upper limb", "site"),
    entry("arm", "arm", "site", ("upper_limb",)),
    entry("wrist", "wrist; distal radius", "site", ("upper_limb",)),
    entry("hand", "hand", "site", ("upper_limb",)),
    entry("ankle", "ankle", "site"),
    entry("knee", "knee", "site"),
    entry("abdomen", "abdomen; belly", "site", prefix="abdominal"),
    entry("warfarin", "warfarin; coumadin", DRUG, ("anticoagulant",)),
    entry("morphine", "morphine", DRUG),
    entry("penicillin", "penicillin; pcn", DRUG),
    entry("anticoagulant", "blood thinner; anticoagulant", DRUG_CLASS),
]
LEXICON = Lexicon.of(ENTRIES)
RULES = Rules.from_json(
    {
        "name": "test",
        "phrases": {
            "before": ["no", "not", "denies", "unable", "can't"],
            "stop": [".", ","],
            "possible": {"before": ["r/o"], "stop": ["."]},
            "historical": {"before": ["h/o"], "stop": ["."]},
            "other": {"before": ["mother"], "stop": ["."]},
            "hypothetical": {"before": ["return if"], "stop": ["."]},
        },
    }
)
READER = NoteReader(LEXICON, RULES)


def read(text: str, reader: NoteReader = READER) -> list[str]:
    return [f"{text[m.start : m.end]}={m.finding}" for m in reader.mentions(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Fever and vomited twice", ["Fever=fever", "vomited=vomiting"]),
        ("pain in the chest", ["pain in the chest=chest_pain"]),
        ("pain in his chest", ["pain in his chest=chest_pain"]),
        ("hit by car, hit by the car", ["hit by car=injury", "hit by the car=injury"]),
        ("short-of-breath", ["short-of-breath=dyspnea"]),
        ("shortness of breath on exertion", ["shortness of breath on exertion=exertional_dyspnea"]),
        ("shortness of breath on fire again now", ["breath on fire again now=breath_smell"]),
        ("scarlet fever rash", ["scarlet fever rash=rash_of_scarlet_fever"]),
        ("chest. pain", ["pain=pain"]),
        ("type 2 diabetes", ["type 2 diabetes=diabetes"]),
        ("type 1 diabetes", ["type 1 diabetes=type_1_diabetes"]),
        ("type 3 diabetes", ["diabetes=diabetes"]),
        ("strokes, haemorrhages", ["strokes=stroke", "haemorrhages=hemorrhage"]),
        ("hematoma evacuation", ["hematoma evacuation=hemorrhage"]),
        ("", []),
    ],
)  # fmt: skip
def test_phrases(text: str, expected: list[str]) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fx of the distal radius", ["fx of the distal radius=wrist_fracture"]),
        ("r wrist pain", ["wrist pain=wrist_pain"]),
        ("laceration to l hand", ["laceration to l hand=hand_laceration"]),
        ("pain and swelling to ankle", ["pain and swelling to ankle=ankle_pain", "swelling to ankle=ankle_swelling"]),
        ("ankle pain and swelling", ["ankle pain=ankle_pain", "ankle pain and swelling=ankle_swelling"]),
        ("knee pain, rash", ["knee pain=knee_pain", "rash=rash"]),
        ("knee pain and rash", ["knee pain=knee_pain", "rash=rash"]),
        ("wrist and hand pain", ["wrist and hand pain=wrist_pain", "hand pain=hand_pain"]),
        ("pain to knee and ankle swelling", ["pain to knee=knee_pain", "ankle swelling=ankle_swelling"]),
        ("cut to knee and abrasion", ["cut to knee=knee_laceration"]),
        ("pain in belly", ["pain in belly=abdominal_pain"]),
        ("arm is very swollen", ["arm is very swollen=arm_swelling"]),
        ("swollen ankle", ["swollen ankle=ankle_swelling"]),
        ("pain severe in knee", ["pain severe in knee=knee_pain", "severe=severe"]),
        ("pain after twisting knee", ["pain=pain"]),
        ("knee", []),
        ("denies knee pain", ["knee pain=neg:knee_pain"]),
    ],
)
def test_composition(text: str, expected: list[str]) -> None:
    assert read(text) == expected


def test_composed_concepts_imply_the_head_and_the_wider_sites_composition() -> None:
    assert LEXICON.ancestors("wrist_fracture") == ("upper_limb_fracture", "fracture")
    assert LEXICON.ancestors("rlq_pain") == ("abdominal_pain",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unable to walk, fever", ["unable to walk=inability_to_walk", "fever=fever"]),
        ("denies fever", ["fever=neg:fever"]),
        ("h/o stroke", ["stroke=hx:stroke"]),
        ("h/o diabetes", ["diabetes=diabetes"]),
        ("r/o stroke", ["stroke=possible:stroke"]),
        ("mother had a stroke", ["stroke=family:stroke"]),
        ("return if fever", ["fever="]),
    ],
)
def test_assertion_of_mentions(text: str, expected: list[str]) -> None:
    assert read(text) == expected


def test_cue_of_a_mention_is_a_place_in_the_note() -> None:
    text = "fever. Denies vomiting"
    first, second = READER.mentions(text)
    assert first.cue is None and second.cue is not None
    assert text[slice(*second.cue)] == "Denies"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("takes coumadin", ["coumadin=hx:warfarin"]),
        ("on a blood thinner", ["blood thinner=hx:anticoagulant"]),
        ("given morphine and coumadin", ["morphine=rx:morphine", "coumadin=rx:warfarin"]),
        ("allergic to pcn", ["pcn="]),
        ("pcn allergy", ["pcn="]),
        ("not on coumadin", ["coumadin=neg:warfarin"]),
    ],
)
def test_drugs_are_taken_at_home_unless_the_note_says_given(text: str, expected: list[str]) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ms changes", ["ms=altered_mental_status"]),
        ("4 mg ms iv", ["ms=rx:morphine"]),
        ("sent by ms smith", []),
        ("cp", ["cp=chest_pain"]),
        ("went to see cp group again today", []),
        ("cp radiating to the jaw since noon today", ["cp=chest_pain"]),
    ],
)
def test_shorthand_is_told_by_its_neighbours(text: str, expected: list[str]) -> None:
    if "mg ms" in text:  # morphine by the dose; "given" makes it a drug of this visit
        assert [m.concept for m in READER.mentions(text)] == ["morphine"]
    else:
        assert read(text) == expected


@pytest.mark.parametrize("word", ["vomitting", "vomting", "vomiitng", "vomitimg", "hemorrage"])
def test_misspellings_of_long_words(word: str) -> None:
    assert len(read(word)) == 1


@pytest.mark.parametrize(
    "word", ["dysphaia", "injure", "fevr", "acute", "strokes5", "hemorrhagic", "swearing", "xvomiting", "vomit"]
)
def test_words_that_are_no_misspellings(word: str) -> None:
    """Two targets, an English word, a short word, another first letter, digits, more than one slip."""
    assert read(word) == []


def test_one_clinical_word_is_never_turned_into_another() -> None:
    assert read("dysphagia dysphasia") == ["dysphagia=dysphagia", "dysphasia=dysphasia"]


PARTS = """pain; swelling; fx; cut; rash; painful; wrist; knee; ankle; belly; arm; distal radius; hand; chest pain;
pain in chest; shortness of breath; on exertion; breath on fire; again now; fever; scarlet; of; to; in; the; his; a;
left; severe; very; is; with; and; ,; /; or; .; car; hit by; broken; went; excruciating; upper limb; abd pain; rlq pain;
right lower quadrant pain""".replace("\n", " ").split("; ")


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=14))
def test_mentions_are_those_of_the_slow_reference(parts: list[str]) -> None:
    lexicon = Lexicon(LEXICON.entries, {}, LEXICON.grammar)
    words = " ".join(parts).split()
    starts = [sum(len(w) + 1 for w in words[:k]) for k in range(len(words))]
    expected = [
        (starts[a], starts[b] + len(words[b]), name) for a, b, name in reference_reader.mentions(lexicon, words)
    ]
    found = _plain().mentions(" ".join(words))
    assert sorted((m.start, m.end, m.concept) for m in found) == sorted(expected)


def _plain(cache: list[NoteReader] = []) -> NoteReader:  # noqa: B006 (made once)
    if not cache:
        cache.append(NoteReader(Lexicon(LEXICON.entries, {}, LEXICON.grammar), RULES))
    return cache[0]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PARTS), max_size=12).map(" ".join)), max_size=6)
)
def test_many_notes_at_once_are_read_as_one_after_the_other(texts: list[str]) -> None:
    together = READER.items(texts)
    for k, text in enumerate(texts):
        alone = READER.items([text])
        mine = together[together[:, NOTE] == k].copy()
        mine[:, NOTE] = 0
        assert mine.tolist() == alone.tolist()
        for row in alone.tolist():
            assert 0 <= row[START] < row[END] <= len(text)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=80), st.lists(st.sampled_from(PARTS), max_size=20).map(" ".join)))
def test_the_empty_lexicon_reads_words_as_tokenize_does(text: str) -> None:
    reader = NoteReader(EMPTY)
    rows = reader.items([text]).tolist()
    tokens = tokenize(text)
    assert [reader.pieces.names[row[ID]] for row in rows] == [t.text for t in tokens]
    assert [(row[START], row[END], row[ASSERTION] == 1) for row in rows] == [
        (t.start, t.end, t.negated) for t in tokens
    ]
    assert [bool(row[FLAGS] & APART) for row in rows] == [t.opens for t in tokens]


def fired(reader: NoteReader, text: str) -> set[int]:
    return {int(row[ID]) for row in reader.items([text]) if row[TYPE] == ANCHOR}


def test_an_anchor_that_names_a_concept_fires_wherever_it_is_mentioned_as_present() -> None:
    names = ["fever", "abdominal pain", "pain", "broken wrist"]
    reader = NoteReader(LEXICON, RULES, phrases=[Phrase(name) for name in names])
    assert [reader.concepts[c] for c in reader.anchor_concepts] == ["fever", "abdominal_pain", "pain", "wrist_fracture"]
    assert fired(reader, "febrile") == {0}  # another term
    assert fired(reader, "no fever. h/o fever. r/o fever. mother has fever. return if fever") == set()
    assert fired(reader, "scarlet fever rash") == set()  # a longer phrase that is no kind of fever
    assert fired(reader, "chest pain") == {2}  # a kind of pain
    assert fired(reader, "rlq pain") == {1}  # a kind of abdominal pain
    assert fired(reader, "fx of the distal radius") == {3}  # composed


def test_an_anchor_that_names_no_concept_fires_where_its_words_stand() -> None:
    reader = NoteReader(LEXICON, RULES, phrases=[Phrase("new thing"), Phrase("scarlet"), Phrase("knee", fields=2)])
    assert reader.anchor_concepts.tolist() == [-1, -1, -1]
    assert fired(reader, "New things, scarlet") == {0, 1}
    assert fired(reader, "no new thing") == set()
    assert fired(reader, "scarlet fever rash") == set()  # inside a longer phrase
    assert {int(row[ID]) for row in reader.items(["knee pain", "knee"], [1, 2]) if row[TYPE] == ANCHOR} == {2}


def test_historical_mention_fires_the_anchor_of_a_lasting_concept() -> None:
    reader = NoteReader(
        LEXICON, RULES, phrases=[Phrase("diabetes"), Phrase("stroke"), Phrase("stroke", historical=True)]
    )
    assert fired(reader, "h/o diabetes and stroke") == {0, 2}


@pytest.mark.parametrize(
    "unit",
    [*["vomitting ", "pain and ", "knee, ", "pain, ", "shortness of ", "the ", "ms ", "no "],
     *["a", "\x00", "<b>", "\u05d0 ", "e\u0301", "1/"]],
)  # fmt: skip
def test_time_is_linear_in_the_note(unit: str) -> None:
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        best = 1e9
        for _ in range(3):
            start = time.process_time()
            READER.items([text])
            best = min(best, time.process_time() - start)
        return best

    READER.items([unit])
    assert seconds(200_000) < 12 * seconds(25_000) + 0.05


def test_every_unicode_character_is_read() -> None:
    rng = random.Random(1)
    for _ in range(20):
        text = "".join(chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)])) for _ in range(5000))
        for row in READER.items([text + " fever"])[-1:].tolist():
            assert row[END] <= len(text) + 6
