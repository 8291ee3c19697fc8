"""Words that carry grammar or form, not findings: whatever they are beside, they say nothing about a patient.

They are kept out of the findings unless asked for (`function_words`): left in, they become reasons ("on", "by",
"###", "pmh") because writers differ in how much they use them, and records in how much is written.
"""

from __future__ import annotations

from importlib.resources import files

import yaml

_WORDS = yaml.safe_load((files("whatelse.text") / "function_words.yaml").read_text("utf-8"))
FUNCTION_WORDS = frozenset(word for name in ("grammar", "form", "account") for word in _WORDS[name])
LINKING_WORDS = frozenset(_WORDS["linking"])


def says_nothing(word: str) -> bool:
    """Whether a word, joined (`of_the`) or not, negated (`neg:`) or not, is nothing but such words and numbers.

    So are single letters and words that begin with a number ("#cm", "##aug", "x#").
    """
    return all(map(_is_form, word.removeprefix("neg:").split("_")))


def _is_form(part: str) -> bool:
    if part in FUNCTION_WORDS or len(part) < 2 or part.startswith(("#", "x#")):
        return True
    return not any(map(str.isalpha, part))
