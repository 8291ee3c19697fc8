"""Words that carry grammar or form, not findings: whatever they are beside, they say nothing about a patient.

They are kept out of the findings unless asked for (`build --function-words`): left in, they become reasons ("on", "by",
"###", "pmh") because writers differ in how much they use them, and records in how much is written.
"""

from __future__ import annotations

_GRAMMAR = """
a about above after again all also although am an and another any are as at back be became because been before being
below between both but by came can come could did do does doing done down during each either else etc even every few for
from further gave get gets getting give given go goes going gone got had has have having he her here hers herself him
himself his how however i if in into is it its itself just let like made make many may me might more most much must my
no nor not now of off on once one ones only onto or other others our out over own per put said same saw see seen she
should since so some still such take taken than that the their them themselves then there these they this those though
through to too took two under until up upon us very via was we well went were what when where whether which while who
whom whose why will with within without would yet you your
"""
_FORM = """
c/o cc ccl comes complains complaint complaining dept describes ed emt er exam hpi hx md mr mrs ms note noted notes np
patient patients pe pmd pmh pmhx presenting presents pt pta pts reported reporting reports rn ros says sent since
started states stated stating told today tonight w w/ wants yesterday
left right lt rt bilat bilateral l r
am pm hour hours hr hrs day days week weeks wk wks month months mo yr yrs year years old yo y/o
"""
FUNCTION_WORDS = frozenset(f"{_GRAMMAR} {_FORM}".split())


def says_nothing(word: str) -> bool:
    """Whether a word, joined (`of_the`) or not, negated (`neg:`) or not, is nothing but such words and numbers."""
    parts = word.removeprefix("neg:").split("_")
    return all(part in FUNCTION_WORDS or not any(map(str.isalpha, part)) for part in parts)
