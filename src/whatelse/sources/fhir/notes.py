"""Attachments -> text: plain, HTML and RTF. What is anything else, too large or damaged is None.

Nothing in a note is ever run, fetched or unpacked: HTML and RTF are read as text, scripts and pictures are dropped.
"""

from __future__ import annotations

import base64
import binascii
import re
from html.parser import HTMLParser

LARGEST = 2_000_000  # bytes of one note; what is longer is no note
SILENT = frozenset({"script", "style", "head", "template", "noscript", "svg", "math", "object", "iframe"})
LINES = frozenset(
    {"p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "table", "ul", "ol", "section", "hr"}
)
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


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in SILENT:
            self._silent += 1
        elif tag in LINES:
            self.out.append("\n")
        elif tag in ("td", "th"):
            self.out.append("\t")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in LINES:
            self.out.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in SILENT:
            self._silent = max(0, self._silent - 1)
        elif tag in LINES:
            self.out.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.out.append(re.sub(r"\s+", " ", data))


def _html(text: str) -> str:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return "\n".join(line.strip(" ") for line in "".join(reader.out).split("\n"))


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
