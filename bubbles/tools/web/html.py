"""Reading HTML that may be made to be hard to read: time and memory are bounded by what is built, not by what comes.

libxml2 tells of tags and text as they pass, in time linear in the page but for a few tricks, which the deadline between
two pieces ends. Of what it tells, two things are made: all the text, with the addresses of links, and a tree for
trafilatura with so few elements, levels and attributes that it is done with them in seconds, whatever they are.
"""

from __future__ import annotations

import importlib
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

MAX_ELEMENTS = 20_000
"""Of the tree. A page with more has no main text that could be told from the rest: a table, a log, a trap."""
MAX_DEPTH = 100
"""Levels of the tree; what lies deeper is put there."""
MAX_TREE_TEXT = 1_000_000
MAX_ATTRIBUTE = 500
"""Characters of an attribute's value that the tree has."""
MAX_LINK = 1_000
MAX_TITLE = 300
READ_S = 3.0
PIECE = 16_384
MAX_WAITING = 64
"""Texts of at most a piece each."""
FEW = 250
"""Characters of a main text below which all the text is more likely what is wanted."""

_KEPT = frozenset(
    "id class role itemprop itemtype href src alt style hidden aria-hidden rel lang name content property datetime "
    "colspan rowspan type".split()
)
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_NO_XML = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_HIDDEN = frozenset("script style template svg math iframe object noframes".split())
_LINES = frozenset(
    "address article aside blockquote body br caption dd details div dl dt fieldset figcaption figure footer form "
    "h1 h2 h3 h4 h5 h6 header hr legend main nav ol option p pre section summary table tbody tfoot thead tr ul".split()
)
_CELLS = frozenset(("td", "th"))
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    title: str
    text: str
    remark: str = ""
    """What the model should know of how it was read."""


class _AllText:
    """All the text of a page, by lines; with ``page`` the address of each link behind its text."""

    def __init__(self, page: str | None) -> None:
        self._page = page
        self._pieces: list[str] = []
        self._links: list[str] = []
        self._hidden = 0
        self._pre = 0
        self._had_pre = False
        """Then blanks at the beginning of a line may mean something."""
        self._title: list[str] | None = None
        self.title = ""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag in _HIDDEN:
            self._hidden += 1
        elif tag == "title" and not self.title:
            self._title = []
        elif tag == "li":
            self._pieces.append("\n- ")
        elif tag in _CELLS:
            self._pieces.append(" | ")
        elif tag in _LINES:
            self._pieces.append("\n" if tag in ("br", "tr", "dd", "option") else "\n\n")
            self._pre += tag == "pre"
            self._had_pre = self._had_pre or tag == "pre"
        elif tag == "a" and self._page is not None:
            self._links.append(attributes.get("href", ""))

    def end(self, tag: str) -> None:
        if tag in _HIDDEN:
            self._hidden -= 1
        elif tag == "title" and self._title is not None:
            self.title, self._title = " ".join("".join(self._title).split())[:MAX_TITLE], None
        elif tag in _LINES:
            self._pieces.append("\n")
            self._pre -= tag == "pre"
        elif tag == "a" and self._links:
            self._link(self._links.pop().strip())

    def data(self, text: str) -> None:
        if self._title is not None:
            self._title.append(text)
        elif not self._hidden:
            self._pieces.append(text if self._pre else _BLANKS.sub(" ", text))

    def text(self) -> str:
        kept: list[str] = []
        for line in "".join(self._pieces).split("\n"):  # by lines: no pattern is quick with every kind of gap
            stripped = line.rstrip() if self._had_pre else line.strip()
            if stripped or (kept and kept[-1]):
                kept.append(stripped)
        return "\n".join(kept).strip("\n")

    def _link(self, href: str) -> None:
        if not href or len(href) > MAX_LINK or href.startswith(("#", "javascript:", "data:")) or self._hidden:
            return
        try:
            self._pieces.append(f" <{urljoin(self._page or '', href)}>")
        except ValueError:  # an address in brackets that is none
            pass


class _Passing:
    """What libxml2 tells of a page, as the target of lxml's parser."""

    def __init__(self, page: str | None, builder: Any) -> None:
        self.all = _AllText(page)
        self._builder = builder
        self._open: list[str | None] = []
        """Names of the elements that are open; None for one that the tree does not have."""
        self._depth = 0
        self._elements = 0
        self._text = 0
        self._waiting: list[str] = []
        self.root: Any = None

    @property
    def large(self) -> bool:
        return self._elements > MAX_ELEMENTS or self._text > MAX_TREE_TEXT

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._flush()
        self.all.start(tag, attributes)
        self._elements += 1
        held = not self.large and self._depth < MAX_DEPTH and _NAME.fullmatch(tag) is not None
        self._open.append(tag if held else None)
        if held:
            self._depth += 1
            kept = {name: attributes[name] for name in attributes if name in _KEPT} if attributes else {}
            self._builder.start(tag, {name: _NO_XML.sub("", value[:MAX_ATTRIBUTE]) for name, value in kept.items()})

    def end(self, tag: str) -> None:
        self._flush()
        self.all.end(tag)
        if self._open and (held := self._open.pop()) is not None:
            self._depth -= 1
            self._builder.end(held)

    def data(self, text: str) -> None:
        self._waiting.append(text)  # it may come letter by letter
        if len(self._waiting) >= MAX_WAITING:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        text = _NO_XML.sub("", "".join(self._waiting))
        self._waiting.clear()
        self.all.data(text)
        self._text += len(text)
        if self._depth and not self.large:
            self._builder.data(text)

    def comment(self, text: str) -> None:
        """Not for readers."""

    def pi(self, target: str, data: str | None = None) -> None:
        """Not for readers."""

    def close(self) -> None:
        self._flush()
        while self._open:
            if (held := self._open.pop()) is not None:
                self._builder.end(held)
        if self._elements and not self.large:
            self.root = self._builder.close()


def read_html(html: str, page: str, *, links: bool, read_s: float = READ_S) -> Reading:
    """The main text of ``html``, or with ``links`` all of it with the addresses of its links, made whole by ``page``.

    Takes seconds at most, and belongs into a thread. ``read_s``: seconds for libxml2.
    """
    etree, lxml_html = importlib.import_module("lxml.etree"), importlib.import_module("lxml.html")
    passing = _Passing(page if links else None, etree.TreeBuilder(element_factory=lxml_html.html_parser.makeelement))
    whole = _passed(etree, html, passing, read_s)
    everything = passing.all.text()
    title = passing.all.title
    remark = "" if whole else "the page takes long to be read: its end is missing"
    if not links and passing.root is not None:
        main = _main_text(passing.root)
        if len(main) >= FEW or len(everything) < 2 * len(main):
            return Reading(title=title, text=main, remark=remark)
    if not everything:
        remark = "there is no text in the page; it may be made by scripts, which are not run"
    elif not links:
        remark = remark or "there is no main text that could be told from the rest: this is all of it"
    return Reading(title=title, text=everything, remark=remark)


def _passed(etree: Any, html: str, passing: _Passing, read_s: float) -> bool:
    """Whether all of it was read in time."""
    parser = etree.HTMLParser(target=passing, encoding="utf-8")
    data = html.encode("utf-8", "replace").replace(b"\0", b"")
    deadline = time.monotonic() + read_s
    try:
        for at in range(0, len(data), PIECE):
            if time.monotonic() > deadline:
                passing.close()
                return False
            parser.feed(data[at : at + PIECE])
        parser.close()
    except etree.LxmlError:  # such as: no document at all
        passing.close()
    return True


def _main_text(root: Any) -> str:
    """What trafilatura takes for it; empty if nothing."""
    trafilatura = importlib.import_module("trafilatura")
    for name in ("trafilatura", "htmldate", "courlan", "justext", "readability"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # that a page is odd is no news
    try:
        # Not fast, it asks jusText too, whose time grows with the square of the paragraphs: minutes for some pages.
        found = trafilatura.extract(root, output_format="markdown", fast=True)
    except Exception:  # noqa: BLE001 - the edge to a library that reads hostile pages: one it stumbles over has its text
        return ""
    finally:
        importlib.import_module("trafilatura.meta").reset_caches()  # they hold texts of any length
    return (found or "").strip()
