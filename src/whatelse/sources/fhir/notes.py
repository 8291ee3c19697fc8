"""Attachments -> text: plain, HTML and RTF. What is anything else, too large or damaged is None.

Nothing in a note is ever run, fetched or unpacked: HTML and RTF are read as text, scripts and pictures are dropped.
"""

from __future__ import annotations

import base64
import binascii
import html
import re

LARGEST = 2_000_000  # bytes of one note; what is longer is no note
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
_RTF = re.compile(r"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)")
_RTF_SILENT = frozenset(
    [
        "fonttbl",
        "colortbl",
        "stylesheet",
        "info",
        "pict",
        "object",
        "header",
        "footer",
        "headerl",
        "headerr",
        "footerl",
        "footerr",
        "fldinst",
        "themedata",
        "datastore",
        "listtable",
        "listoverridetable",
        "generator",
        "xmlnstbl",
        "rsidtbl",
        "latentstyles",
    ]
)
_RTF_SAYS = {"par": "\n", "line": "\n", "row": "\n", "sect": "\n", "page": "\n", "tab": "\t", "cell": "\t"}
_RTF_SAYS |= {
    "emdash": "—",
    "endash": "–",
    "bullet": "•",
    "lquote": "‘",
    "rquote": "’",
    "ldblquote": "“",
    "rdblquote": "”",
}


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
        return _tidy(_rtf(raw.decode("latin-1")))
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


def _tidy(text: str) -> str:
    """No blanks at line ends, no runs of blank lines."""
    lines = [" ".join(line.split(" ")).rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _html(text: str) -> str:
    """The words of an HTML document, however broken. One pass: what never closes is looked for once, not at every tag.

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


def _rtf(text: str) -> str:
    """The words of an RTF document. One pass over its tokens; groups nest in a list, so depth costs no stack."""
    out: list[str] = []
    groups: list[tuple[bool, int]] = []
    silent, skip, to_skip = False, 1, 0
    opened = False  # the first word of a group says what the group is
    for word, number, byte, sign, brace, plain in (m.groups() for m in _RTF.finditer(text)):
        if brace == "{":
            groups.append((silent, skip))
            opened = True
            continue
        if brace == "}":
            silent, skip = groups.pop() if groups else (False, 1)
        elif word:
            if opened and word in _RTF_SILENT:
                silent = True
            elif word == "uc":
                skip = min(max(int(number or 1), 0), 16)
            elif word == "u" and number and not silent:
                out.append(_character(int(number)))
                to_skip = skip
            elif not silent and word in _RTF_SAYS:
                out.append(_RTF_SAYS[word])
        elif sign == "*":
            silent = True
        elif not silent:
            if byte:
                said = bytes([int(byte, 16)]).decode("cp1252", "replace")
            elif sign:
                said = {"~": " ", "_": "-"}.get(sign, sign if sign in "{}\\" else "")
            else:
                said = plain or ""
            if to_skip and said:
                said, to_skip = said[to_skip:], max(0, to_skip - len(said))
            out.append(said)
        opened = False
    return "".join(out)


def _character(number: int) -> str:
    number %= 65_536
    return "" if 0xD800 <= number < 0xE000 else chr(number)
