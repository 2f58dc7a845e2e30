"""Markdown as Telegram's own HTML (CHAN-08), https://core.telegram.org/bots/api#html-style.

The text becomes runs, each with the marks that hold for it, and the tags are written from those: so they nest whatever
the Markdown was, and nothing that a model wrote is ever taken for a tag.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from bubbles.channels.markup import MENTION

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.tree import SyntaxTreeNode

LIMIT = 4096
"""UTF-16 units of one message, once the tags are taken out."""
MAX_TEXT = 4000
"""Of the Markdown. What is between is room for names of mentions and for tables."""
MAX_NAME = 64

_PERSON = re.compile(r"tg://user\?id=([0-9]+)", re.IGNORECASE)
_LINK = re.compile(r"(?:https?://|mailto:|tg://).", re.IGNORECASE)
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")
_UNSENDABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_RULE = "———"

Mark = tuple[str, str]
"""A tag and its one attribute's value, or nothing."""
_QUOTE: Mark = ("blockquote", "")
_CODE: Mark = ("code", "")
_ORDER = ("blockquote", "a", "b", "i", "s", "code", "pre")
"""From the outside to the inside. A link is not torn apart by what is in it."""
_STYLES: Mapping[str, Mark] = {"strong": ("b", ""), "em": ("i", ""), "s": ("s", "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    html: str
    plain: str
    """What a person sees of it: ``utf16_length`` of it is at most ``LIMIT`` if the Markdown's is."""


@dataclass(frozen=True, slots=True)
class _Run:
    text: str
    marks: frozenset[Mark] = frozenset()


def utf16_length(text: str) -> int:
    """Telegram counts in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def render(markdown: str, names: Mapping[str, str]) -> Rendered:
    """``names``: of the people who may be mentioned, by id. Blank if there is nothing to be seen in ``markdown``."""
    source = _UNSENDABLE.sub("", markdown.replace("\r\n", "\n")).strip()
    # References such as &#13; are characters only now.
    runs = [_Run(_UNSENDABLE.sub("", run.text), run.marks) for run in _Blocks(names).rendered(source)]
    while runs and not runs[0].text.strip():
        del runs[0]
    plain = "".join(run.text for run in runs)
    if not plain.strip() or utf16_length(plain) > LIMIT:
        return Rendered(html=escape(source, quote=False), plain=source)
    return Rendered(html=_tagged(runs), plain=plain)


def _tagged(runs: Sequence[_Run]) -> str:
    out: list[str] = []
    opened: list[Mark] = []
    for run in filter(lambda run: run.text, runs):
        wanted = sorted(run.marks, key=lambda mark: _ORDER.index(mark[0]))
        same = 0
        while same < min(len(opened), len(wanted)) and opened[same] == wanted[same]:
            same += 1
        out += [_closing(mark) for mark in reversed(opened[same:])]
        out += [_opening(mark) for mark in wanted[same:]]
        opened = wanted
        out.append(escape(run.text, quote=False))
    return "".join([*out, *(_closing(mark) for mark in reversed(opened))])


def _opening(mark: Mark) -> str:
    tag, value = mark
    if tag == "a":
        return f'<a href="{escape(value)}">'
    return f'<pre><code class="language-{escape(value)}">' if tag == "pre" and value else f"<{tag}>"


def _closing(mark: Mark) -> str:
    tag, value = mark
    return "</code></pre>" if tag == "pre" and value else f"</{tag}>"


class _Blocks:
    """Walks through the Markdown's tree."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def rendered(self, source: str) -> Iterator[_Run]:
        from markdown_it.tree import SyntaxTreeNode

        yield from self._blocks(SyntaxTreeNode(_parser().parse(source)).children, frozenset(), 0)

    def _blocks(self, nodes: Sequence[SyntaxTreeNode], marks: frozenset[Mark], depth: int) -> Iterator[_Run]:
        before: SyntaxTreeNode | None = None
        for node in nodes:
            if before is not None:
                yield _Run(_between(before, node), marks)
            yield from self._block(node, marks, depth)
            before = node

    def _block(self, node: SyntaxTreeNode, marks: frozenset[Mark], depth: int) -> Iterator[_Run]:
        if node.type == "heading":
            yield from self._inline(node, marks | {_STYLES["strong"]})
        elif node.type == "blockquote":
            yield from self._blocks(node.children, marks | {_QUOTE}, depth)
        elif node.type in ("bullet_list", "ordered_list"):
            yield from self._list(node, marks, depth)
        elif node.type in ("fence", "code_block"):
            language = _LANGUAGE.match(node.info.strip()) if node.type == "fence" else None
            yield _Run(node.content.rstrip("\n"), marks | {("pre", language[0] if language else "")})
        elif node.type == "table":
            yield _Run(_table(self._cells(node)), marks | {("pre", "")})
        elif node.type == "hr":
            yield _Run(_RULE, marks)
        else:
            yield from self._inline(node, marks)

    def _list(self, node: SyntaxTreeNode, marks: frozenset[Mark], depth: int) -> Iterator[_Run]:
        number = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
        for place, item in enumerate(node.children):
            sign = "•" if number is None else f"{number + place}."
            yield _Run("\n" * (place > 0) + "  " * depth + sign + " " * bool(item.children), marks)
            yield from self._blocks(item.children, marks, depth + 1)

    def _cells(self, table: SyntaxTreeNode) -> list[list[str]]:
        rows = [row for part in table.children for row in part.children]
        return [["".join(run.text for run in self._inline(cell, frozenset())) for cell in row.children] for row in rows]

    def _inline(self, node: SyntaxTreeNode, marks: frozenset[Mark]) -> Iterator[_Run]:
        for child in node.children:
            yield from self._word(child, marks)

    def _word(self, node: SyntaxTreeNode, marks: frozenset[Mark]) -> Iterator[_Run]:
        in_link = any(tag == "a" for tag, _ in marks)
        if node.type == "text":
            yield _Run(node.content, marks)
        elif node.type in ("softbreak", "hardbreak"):
            yield _Run("\n", marks)
        elif node.type == "code_inline":  # code takes no other mark, and a link says more than it
            yield _Run(node.content, marks if in_link else (marks & {_QUOTE}) | {_CODE})
        elif node.type in _STYLES:
            yield from self._inline(node, marks | {_STYLES[node.type]})
        elif node.type == "mention":
            yield self._mention(node.content, marks, in_link)
        elif node.type in ("link", "image") and not in_link:
            yield from self._link(node, marks)
        else:
            yield from self._inline(node, marks)

    def _mention(self, ident: str, marks: frozenset[Mark], in_link: bool) -> _Run:
        name = self._names.get(ident)
        if name is None:  # with an @ before it, a name would call whoever has it
            return _Run(f"@{ident}" if ident.isdecimal() else ident, marks)
        shown = _UNSENDABLE.sub("", " ".join(name.split()))[:MAX_NAME].strip() or ident
        return _Run(shown, marks if in_link or not ident.isdecimal() else marks | {("a", f"tg://user?id={ident}")})

    def _link(self, node: SyntaxTreeNode, marks: frozenset[Mark]) -> Iterator[_Run]:
        """``tg://user`` is Telegram's mention: nobody is called by a link whom ``<@id>`` would not call."""
        target = str(node.attrs.get("src" if node.type == "image" else "href", ""))
        allowed = bool(_LINK.match(target))
        if target.lower().startswith("tg://user"):
            person = _PERSON.fullmatch(target)
            allowed = person is not None and person[1] in self._names
        inside = list(self._inline(node, marks | {("a", target)} if allowed else marks))
        if not any(run.text.strip() for run in inside):
            inside = [_Run(target, marks | {("a", target)} if allowed else marks)] if target else []
        elif not allowed and target and not target.lower().startswith("tg:"):
            inside.append(_Run(f" ({target})", marks))
        yield from inside


def _between(before: SyntaxTreeNode, after: SyntaxTreeNode) -> str:
    """What is code stands apart by itself; what was written without an empty line between stays together."""
    if before.type in ("fence", "code_block", "table") or after.type in ("fence", "code_block", "table"):
        return "\n"
    touches = before.map is not None and after.map is not None and before.map[1] == after.map[0]
    return "\n" if touches and (before.type == "heading" or after.type.endswith("_list")) else "\n\n"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns under each other, unless that would take more room than a message has."""
    cells = [[" ".join(cell.split()) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=False)]
    if sum(widths) * len(cells) > MAX_TEXT // 2:
        widths = [0] * len(widths)
    lines = []
    for row in cells:
        padded = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)]
        lines.append(" | ".join(padded).rstrip())
    lines.insert(1, "-+-".join("-" * max(width, 1) for width in widths))
    return "\n".join(lines)


def _width(text: str) -> int:
    """Columns of a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 100}).enable(["table", "strikethrough"])
    parser.disable("reference")  # its lines would not be shown
    parser.inline.ruler.before("autolink", "mention", _mention_rule)
    return parser


def _mention_rule(state: StateInline, silent: bool) -> bool:
    found = MENTION.match(state.src, state.pos)
    if found is None or found.end() > state.posMax:
        return False
    if not silent:
        state.push("mention", "", 0).content = found[1]
    state.pos = found.end()
    return True
