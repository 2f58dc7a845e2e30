"""How what happens in a turn looks: replies as Markdown, everything else in one dim line each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import fill
from typing import TYPE_CHECKING

from bubbles.cli.chat.text import one_line, shown
from bubbles.cli.report import STYLES, size

if TYPE_CHECKING:
    from markdown_it.token import Token

Write = Callable[[str], None]
"""Takes whole lines of text that is safe to show."""
MIN_WIDTH = 20
"""Columns below which Markdown is shown as it is written."""
MAX_WIDTH = 120
"""Longer lines are hard to read."""
MAX_REASON = 300
"""Characters of why a call failed."""
MAX_RENDERED = 20_000
"""Characters of a block; a longer one is shown as it is written."""


def colours(host_env: Mapping[str, str], *, terminal: bool) -> bool:
    """Whether to use colours and styles at all. Source: no-color.org; a dumb terminal has none."""
    return terminal and not host_env.get("NO_COLOR") and host_env.get("TERM", "") not in ("", "dumb", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """``out`` takes what the model says, ``aside`` everything else."""

    out: Write
    aside: Write
    coloured: bool
    live: Callable[[str], None] = field(default=lambda _: None)
    columns: Callable[[], int] = field(default=lambda: shutil.get_terminal_size().columns)
    folds: bool = False
    """Whether ``aside`` writes to a terminal, where sentences are broken between words."""

    def block(self, markdown: str) -> None:
        """A finished block of a reply."""
        text = shown(markdown)
        if self.coloured and len(text) <= MAX_RENDERED and self.columns() >= MIN_WIDTH:
            text = rendered(text, min(self.columns(), MAX_WIDTH))
        self.out(f"{text}\n\n")

    def hint(self, hint: str) -> None:
        self.aside(self._styled(f"· {one_line(hint, self._room)}", "dim") + "\n")

    def result(self, text: str, *, is_error: bool, duration_s: float) -> None:
        how = one_line(text, MAX_REASON) if is_error else f"ok, {size(len(text.encode('utf-8', 'replace')))}"
        self._say(f"  {'error: ' if is_error else ''}{how.removesuffix('.')}, {duration_s:.1f} s", "dim", indent="  ")

    def notice(self, text: str) -> None:
        self._say(shown(text).rstrip("\n"), "yellow")

    def remark(self, text: str) -> None:
        """Of the command line itself."""
        self._say(shown(text).rstrip("\n"), "dim")

    def _say(self, text: str, style: str, indent: str = "") -> None:
        """What has several lines, such as a prompt, is shown as it is."""
        columns = self.columns()
        if self.folds and columns >= MIN_WIDTH and columns <= len(text) <= MAX_RENDERED and "\n" not in text:
            text = fill(text, columns - 1, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        self.aside(self._styled(text, style) + "\n")

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self.coloured else text

    @property
    def _room(self) -> int:
        return max(self.columns(), MIN_WIDTH + 20) - 4


def rendered(markdown: str, width: int) -> str:
    """Markdown for a terminal that has colours. Addresses are shown: a link could claim another than it leads to."""
    import io

    from markdown_it import MarkdownIt
    from rich.console import Console
    from rich.markdown import Markdown

    page = io.StringIO()
    console = Console(file=page, force_terminal=True, width=width, highlight=False, legacy_windows=False)
    shape = Markdown("", hyperlinks=False, code_theme="ansi_dark")
    # HTML is text: rich would leave it out, and List<int> with it (B100). Entities are characters only from here on.
    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")
    shape.parsed = parser.parse(markdown)
    for token in _all_of(shape.parsed):
        token.content = shown(token.content)
    console.print(shape)
    lines = [line.rstrip() for line in page.getvalue().split("\n")]
    return "\n".join(lines).strip("\n")


def _all_of(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _all_of(token.children or ())
