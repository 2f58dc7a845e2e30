"""A terminal with an editor for what is typed, which stays below whatever is written meanwhile.

One prompt application runs for the whole conversation. Enter never ends it: what was typed goes into a queue, so that
messages can be sent while a turn runs (CORE-06), and a question can take the editor over and give it back.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.keys import Keys as Key
from prompt_toolkit.styles import Style

from bubbles.cli.chat.bindings import bindings
from bubbles.cli.chat.contract import MAX_LINES, Keys, Question
from bubbles.cli.chat.past import Past
from bubbles.cli.chat.text import encodable, fitting, shown

PROMPT = "> "
LIVE_LINES = 3
MENU_LINES = 4
MIN_TOOLBAR_WIDTH = 40
REDRAW_S = 0.05
STYLE = Style.from_dict({"bottom-toolbar": "noreverse fg:ansibrightblack", "live": "fg:ansibrightblack", "own": "bold"})


@dataclass(slots=True)
class _Asked:
    """An open question, and what the editor held when it came."""

    before: Document
    prompt: str = ""
    lines: asyncio.Queue[str | None] = field(default_factory=lambda: asyncio.Queue(MAX_LINES))

    async def answer(self, prompt: str) -> str | None:
        self.prompt = prompt
        return await self.lines.get()


class PromptTerminal:
    """Use as an async context."""

    def __init__(self, keys: Keys, *, toolbar: Callable[[], str], completer: Completer, past: Past) -> None:
        self._keys = keys
        self._toolbar = toolbar
        self._past = past
        self._lines: asyncio.Queue[str | None] = asyncio.Queue(MAX_LINES)
        self._asked: _Asked | None = None
        self._live = ""
        self._pending: list[str] = []
        self._tasks = asyncio.TaskGroup()
        self._disk = ThreadPoolExecutor(1)
        talking = Condition(lambda: self._asked is None)
        self._session: PromptSession[None] = PromptSession(
            message=self._message,
            multiline=True,
            prompt_continuation="  ",
            completer=completer,
            complete_while_typing=talking,
            bottom_toolbar=self._bottom,
            reserve_space_for_menu=MENU_LINES,
            key_bindings=bindings(self, talking),
            enable_suspend=True,
            erase_when_done=True,
            style=STYLE,
            history=InMemoryHistory(),
        )
        self._session.app.min_redraw_interval = REDRAW_S

    async def __aenter__(self) -> Self:
        for text in await asyncio.get_running_loop().run_in_executor(self._disk, self._past.load):
            self._session.history.append_string(text)
        await self._tasks.__aenter__()
        self._tasks.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._session.app.is_running:
            with suppress(Exception):  # it may have ended in the same instant
                self._session.app.exit()
        await self._tasks.__aexit__(None, None, None)  # not told of an error: it would be wrapped in a group
        self._paint()
        self._disk.shutdown(wait=True)

    # Terminal

    def write(self, text: str) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._paint)
        self._pending.append(text)

    def live(self, text: str) -> None:
        self._live = text
        self._session.app.invalidate()

    def ready(self) -> None:
        self._session.app.invalidate()

    @property
    def encoding(self) -> str:
        return sys.stdout.encoding or "utf-8"

    def size(self) -> tuple[int, int]:
        size = self._session.app.output.get_size()
        return size.columns, size.rows

    async def line(self) -> str | None:
        return await self._lines.get()

    @asynccontextmanager
    async def asking(self, text: str) -> AsyncIterator[Question]:
        self.write(text)
        self._paint()
        self._forget_keys()
        buffer = self._session.default_buffer
        asked = self._asked = _Asked(before=buffer.document)
        buffer.reset()
        self._session.app.invalidate()
        try:
            yield asked
        finally:
            self._asked = None
            buffer.reset(asked.before)
            self._session.app.invalidate()

    # Typed: what the key bindings call

    def entered(self) -> None:
        """Enter: the text in the editor is a message, or the answer to the open question."""
        buffer = self._session.default_buffer
        text = encodable(buffer.text)
        buffer.cancel_completion()
        if self._asked is not None:
            buffer.reset()
            self.write(f"{self._asked.prompt}{shown(text)}\n")
            self._put(self._asked.lines, text)
            return
        if text.strip():
            self._session.history.append_string(text)
            self._disk.submit(self._past.add, text)
        buffer.reset()
        if text.strip():
            self._echo(text)
            self._put(self._lines, text)

    def interrupted(self) -> None:
        """Ctrl-C: no to an open question, else the end of the turn, else of what was typed."""
        buffer = self._session.default_buffer
        if self._asked is not None:
            self._put(self._asked.lines, None)
        elif self._keys.running or not buffer.text:
            self._keys.interrupted()
        else:
            buffer.reset()

    def ended(self) -> None:
        """Ctrl-D with nothing typed: no to an open question, else good-bye."""
        self._put(self._lines if self._asked is None else self._asked.lines, None)

    # Inner

    async def _run(self) -> None:
        """The prompt; it ends when the terminal is gone."""
        try:
            await self._session.prompt_async(set_exception_handler=False)
        except (EOFError, OSError, KeyboardInterrupt):
            pass
        finally:
            self._put(self._lines, None)
            if self._asked is not None:
                self._put(self._asked.lines, None)

    def _paint(self) -> None:
        """Write what waits, in place of the editor, which is then drawn anew below it.

        Not by ``run_in_terminal``: that gives the keys back to the terminal, which echoes what is typed meanwhile.
        """
        text, self._pending = "".join(self._pending), []
        app = self._session.app
        with suppress(OSError):  # the terminal is gone: its prompt ends by itself
            if app.is_running:
                app.renderer.erase()
            app.output.write_raw(fitting(text, self.encoding))
            app.output.flush()
            if app.is_running:
                app.renderer.reset()
                app.renderer.request_absolute_cursor_position()
                app.invalidate()

    def _forget_keys(self) -> None:
        """What was typed before the question could be read answers something else. The terminal's own answers stay."""
        app = self._session.app
        unread = app.key_processor.empty_queue()
        while keys := app.input.read_keys():
            unread += keys
        unread += app.input.flush_keys()
        app.key_processor.feed_multiple([press for press in unread if press.key == Key.CPRResponse])
        app.key_processor.process_keys()

    def _put(self, queue: asyncio.Queue[str | None], text: str | None) -> None:
        try:
            queue.put_nowait(text)
        except asyncio.QueueFull:
            self.write(f"{MAX_LINES} lines wait already: this one was not taken.\n")

    def _echo(self, text: str) -> None:
        first, *more = shown(text).split("\n")
        self.write("\n".join([f"{PROMPT}{first}", *(f"  {line}" for line in more)]) + "\n")

    def _message(self) -> StyleAndTextTuples:
        if self._asked is not None:
            return [("class:own", self._asked.prompt)]
        columns, rows = self.size()
        lines = [line for line in shown(self._live).split("\n") if line.strip()][-min(LIVE_LINES, rows // 4) :]
        live = "".join(f"{line.expandtabs(4)[: columns - 2]}\n" for line in lines) if rows >= 4 else ""
        return [("class:live", live), ("class:own", PROMPT)]

    def _bottom(self) -> str | None:
        columns, rows = self.size()
        if columns < MIN_TOOLBAR_WIDTH or rows < 4 or self._asked is not None:
            return None
        return shown(self._toolbar())[: columns - 1]
