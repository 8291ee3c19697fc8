"""Attachments -> text: HTML and RTF however broken, and what is no text at all."""

from __future__ import annotations

import base64
import time
import zipfile
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whatelse.sources.fhir.notes import LARGEST, attachment_text, text_of


def test_html_is_text_without_scripts() -> None:
    html = (
        "<html><head><title>t</title><script>steal()</script></head><body onload=x()><p>BP&nbsp;90/60<br>no&lt;b&gt;"
        "<style>p{}</style></p><table><tr><td>a</td><td>b</td></tr></table><svg><script>x</script></svg>end</body></html>"
    )
    text = text_of("text/html; charset=utf-8", html.encode())
    assert text is not None and "steal" not in text and "x()" not in text and "p{}" not in text
    assert text.split() == ["BP", "90/60", "no<b>", "a", "b", "end"]


def test_rtf_is_text() -> None:
    rtf = (
        r"{\rtf1\ansi{\fonttbl{\f0 Arial;}}{\*\generator Word;}\pard\b HPI:\b0  81F s/p fall\par "
        r"caf\'e9 \u8217?s na\u239\'efve{\pict\wmetafile8 0102ff}\tab end\}}"
    )
    assert text_of("text/rtf", rtf.encode()) == "HPI: 81F s/p fall\ncafé ’s naïve\tend}"
    assert text_of("application/octet-stream", b"\x00\x01") is None
    deep = text_of("text/rtf", b"{\\rtf1 " + b"{" * 100_000 + b"x" + b"}" * 100_000)
    assert deep == "x"


def test_rtf_links_and_fonts_are_not_part_of_the_text() -> None:
    link = r'{\rtf1 see {\field{\*\fldinst{HYPERLINK "http://x.example"}}{\fldrslt{the record}}} now}'
    assert text_of("text/rtf", link.encode()) == "see the record now"
    assert text_of("text/rtf", rb"{\rtf1{\fonttbl\f0\fcharset0 Arial;}a\~b\_c\-d}") == "a b-cd"


def test_damaged_rtf_is_no_text() -> None:
    assert text_of("text/rtf", rb"{\rtf1 \uc x}") is None
    assert text_of("text/rtf", rb"{\rtf1 \u9999999999 x}") is None


@pytest.mark.parametrize(
    "part", [rb"{\field{\*\fldinst{HYPERLINK ", rb"{\FIELD{\*\fldinst{HYPERLINK ", rb"\f1\fcharset0 ", rb"\f1 "]
)
def test_hostile_rtf_takes_linear_time(part: bytes) -> None:
    begun = time.process_time()
    text_of("text/rtf", rb"{\rtf1{\fonttbl" + part * (200_000 // len(part)))
    assert time.process_time() - begun < 5


def test_what_is_no_text_is_not_read() -> None:
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("a", b"0" * 10_000_000)
    packed = base64.b64encode(archive.getvalue()).decode()
    assert attachment_text("application/zip", packed) is None
    assert attachment_text("text/plain", packed) is None, "an archive under a wrong name is no note"
    assert attachment_text("text/plain", "no base64!") is None
    assert attachment_text("text/plain", base64.b64encode(b"x" * (LARGEST + 1)).decode()) is None
    assert attachment_text(None, base64.b64encode("naïve".encode("cp1252")).decode()) == "naïve"
    assert attachment_text("text/plain; charset=bogus", base64.b64encode(b"ok").decode()) == "ok"


@given(st.binary(max_size=300), st.sampled_from(["text/plain", "text/html", "text/rtf"]))
def test_any_bytes_give_text_or_nothing(raw: bytes, kind: str) -> None:
    text = text_of(kind, raw)
    assert text is None or isinstance(text, str)
    rtf = text_of("text/rtf", b"{\\rtf1 " + raw)
    assert rtf is None or isinstance(rtf, str)


@pytest.mark.parametrize(
    ("html", "says"),
    [
        ("<p>fell</p><p>ct head <b", "fell\n\nct head <b"),
        ("spo2 < 90, hr > 100", "spo2 < 90, hr > 100"),
        ("<html><head><title>t</title><body><p>fell</p>", "fell"),  # the end tag of a head may be left out
        ("<p>fell</p><script>steal()", "fell"),
        ("<p>fell</p><svg><text>x</text> on ice", "fell\nx on ice"),  # a word too many, not half a note lost
        ("fell <!-- not said --> on ice <!-- left open, hit head", "fell  on ice <!-- left open, hit head"),
        ("<p title='a > b'>fell</p>", "fell"),
        ('<p class="x>fell</p><p>hit head</p>', "fell\n\nhit head"),  # a quote that never closes
        ("<P>fell</P><SCRIPT>steal()</Script >end", "fell\nend"),
        ("caf&eacute; &#8217; &#" + "9" * 5_000 + "; &bogus;", "café ’ \ufffd &bogus;"),
    ],
)
def test_html_that_is_not_closed_loses_no_note(html: str, says: str) -> None:
    assert text_of("text/html", html.encode()) == says


PIECES = [
    "<a ",
    "<a b='",
    "<!--",
    "<!--x>",
    "<?x ",
    "<svg>",
    "<head>",
    "<script>",
    "</script",
    "</",
    "<",
    "&#1",
    "<td>",
]


@pytest.mark.parametrize("piece", PIECES)
def test_what_never_closes_takes_no_longer_than_it_is_long(piece: str) -> None:
    """300 kB of each: looked for anew at every tag, an end that never comes takes minutes."""
    for end in ("", ">"):
        began = time.process_time()
        assert text_of("text/html", (piece * (300_000 // len(piece)) + end).encode()) is not None
        assert time.process_time() - began < 10
