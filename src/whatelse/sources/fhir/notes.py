"""Attachments -> text: plain, HTML and RTF. What is anything else, too large or damaged is None.

Nothing in a note is ever run, fetched or unpacked: HTML and RTF are read as text, scripts and pictures are dropped.
"""

from __future__ import annotations

import base64
import binascii
import html
import re

from striprtf.striprtf import rtf_to_text

LARGEST = 2_000_000  # bytes of one note; a longer document is not read
SILENT = frozenset(
    {"script", "style", "head", "title", "template", "noscript", "svg", "math", "object", "iframe", "textarea"}
)
RAW = ("script", "style")  # what follows is none of the note's words even where they never end
LINES = frozenset(
    {"p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "table", "ul", "ol", "section", "hr"}
)
_TAG = re.compile(r"</?([a-zA-Z][^\s/>]*+)(?:[^>\"']++|\"[^\"]*+\"|'[^']*+')*+>")
_NAME = re.compile(r"</?([a-zA-Z][^\s/>]*+)")
_HUGE = re.compile(r"&#\d{8,};?")  # no character has such a number, and turning it into one takes for ever

_RTF_FONTS = re.compile(r"\\fonttbl", re.IGNORECASE)
_RTF_FIELD = re.compile(r"\\field(?![a-z])", re.IGNORECASE)
_RTF_SIGNS = str.maketrans({"\u00a0": " ", "\u00ad": "", "\u2011": "-", "\u2003": " ", "\u2002": " "})


def attachment_text(content_type: str | None, data: str | None) -> str | None:
    """The text of base64 `data`; None where it is no text that can be read."""
    if data is None or len(data) > LARGEST * 4 // 3 + 4:
        return None
    try:
        raw = base64.b64decode(re.sub(r"\s+", "", data), validate=True)
    except (binascii.Error, ValueError):
        return None
    return text_of(content_type, raw)


def text_of(content_type: str | None, raw: bytes) -> str | None:
    """The text of a document's bytes by its media type."""
    if len(raw) > LARGEST:
        return None
    kind, _, options = (content_type or "text/plain").lower().partition(";")
    kind = kind.strip()
    if kind in ("text/rtf", "application/rtf") or raw[:5] == b"{\\rtf":
        found = _rtf(raw)
        return None if found is None else _tidy(found)
    if kind not in ("text/plain", "text/html", "application/xhtml+xml", "text/markdown"):
        return None
    if b"\0" in raw:  # a picture or an archive under a wrong name
        return None
    charset = re.search(r"charset=\"?([\w.-]{1,40})", options)
    text = _decode(raw, charset[1] if charset else None)
    return _tidy(_html(text) if "html" in kind else text)


def _decode(raw: bytes, charset: str | None) -> str:
    for name in (charset, "utf-8-sig"):
        try:
            return raw.decode(name) if name else raw.decode("utf-8-sig")
        except (UnicodeDecodeError, LookupError):
            continue
    return raw.decode("cp1252", "replace")


def _rtf(raw: bytes) -> str | None:
    """The text of an RTF document; None if it is damaged.

    The patterns of striprtf for font tables and links take quadratic time on hostile input, and notes need neither:
    both control words are replaced before.
    """
    text = _RTF_FIELD.sub("", _RTF_FONTS.sub(r"\\*\\fonts", raw.decode("latin-1")))
    try:
        found: str = rtf_to_text(text, errors="replace")
    except (ValueError, TypeError, OverflowError):  # a number that is missing or too large
        return None
    return found.translate(_RTF_SIGNS).encode("utf-8", "ignore").decode()  # half a surrogate pair is no text


def _tidy(text: str) -> str:
    """No blanks at line ends, no runs of blank lines."""
    lines = [" ".join(line.split(" ")).rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _html(text: str) -> str:
    """The words of an HTML document, however broken. One pass: the end of a tag that never closes is
    searched for once, not at every tag.

    A tag that never closes is text; an element that is not shown and never closes is only its tag.
    """
    out: list[str] = []
    place, last, remarks, quoted, endless = 0, text.rfind(">"), text.rfind("-->"), True, set[str]()
    while 0 <= (start := text.find("<", place)) < last:
        _say(out, text[place:start])
        name, place, quoted = _tag(text, start, quoted, start + 4 <= remarks)
        if name is None:
            if place == start:
                _say(out, "<")
                place += 1
        elif name in SILENT and text[start + 1] != "/" and name not in endless:
            ending = re.compile(
                rf"</{name}(?![\w-])[^>]*+>?" + (r"|(?=<body)" if name == "head" else ""), re.IGNORECASE
            )
            if (over := ending.search(text, place)) is not None:
                place = over.end()
            elif name in RAW:
                place = last = len(text)
            else:
                endless.add(name)
        elif name in LINES:
            out.append("\n")
        elif name in ("td", "th") and text[start + 1] != "/":
            out.append("\t")
    _say(out, text[place:])
    return "\n".join(line.strip(" ") for line in "".join(out).split("\n"))


def _tag(text: str, start: int, quoted: bool, remarks: bool) -> tuple[str | None, int, bool]:
    """Name of the tag at `start` (None where it has none), where it ends (`start` where it is none), and whether
    quotes are still believed: one that never closes would be looked for again at every tag. remarks: one ends later."""
    if remarks and text.startswith("<!--", start):
        return None, text.find("-->", start + 4) + 3, quoted
    if text.startswith(("<!", "<?"), start):
        return None, text.find(">", start) + 1, quoted
    found = _TAG.match(text, start) if quoted else None
    if found is not None:
        return found[1].lower(), found.end(), True
    named = _NAME.match(text, start)
    if named is None:
        return None, start, quoted
    return named[1].lower(), text.find(">", start) + 1, False


def _say(out: list[str], text: str) -> None:
    if text:
        out.append(re.sub(r"\s+", " ", html.unescape(_HUGE.sub("\ufffd", text))))
