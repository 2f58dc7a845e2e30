"""The stdio transport: a program that says one JSON text a line.

Not the SDK's, which keeps a line however long it gets, and whose programs outlive a killed parent.
Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Literal

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError

from bubbles.bus import Origin
from bubbles.controller.programs import Program
from bubbles.errors import BubblesError
from bubbles.mcp.client.closing import Closing
from bubbles.mcp.client.endpoint import Endpoint
from bubbles.mcp.client.filter import MAX_MESSAGE_BYTES, MessageFilter, TooMuchError
from bubbles.mcp.client.lines import Lines, TooLongError
from bubbles.mcp.client.stderr import StderrLog
from bubbles.mcp.client.streams import Outbox
from bubbles.mcp.client.weight import is_heavy
from bubbles.mcp.contract import Starter, Talker

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

Incoming = SessionMessage | Exception
LAST_WORDS_S = 0.5
"""How long the end of a program that no longer reads is awaited."""


@asynccontextmanager
async def spoken_with(
    starter: Starter, program: Program, origin: Origin | None, ear: Ear
) -> AsyncIterator[TransportStreams]:
    """The streams to a program that runs until the context is left. Raises ``BubblesError``."""
    with closing(ear):
        async with starter.start(program, ear.hear, origin) as talker:
            outbox = Outbox(lambda _, text: _deliver(talker, text, ear.closing), ear.messages, ear.closing)
            tasks = [asyncio.create_task(outbox.pump()), asyncio.create_task(_watch(talker, ear.closing))]
            try:
                yield ear.reading, outbox
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)


def program_of(endpoint: Endpoint) -> Program:
    settings = endpoint.settings
    return Program(
        name=endpoint.name,
        argv=(settings.command or "", *settings.args),
        env={name: held.get_secret_value() for name, held in settings.env.items()},
        cwd=settings.cwd,
    )


async def _deliver(talker: Talker, text: bytes, closing: Closing) -> None:
    try:
        await talker.write(text + b"\n")
    except BubblesError as error:
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                reason = await talker.ended()  # says more
        except TimeoutError:
            reason = str(error)
        closing.end(reason)


async def _watch(talker: Talker, closing: Closing) -> None:
    closing.end(await talker.ended())


class Ear:
    """Takes in what a program says."""

    def __init__(self, messages: MessageFilter, closing: Closing, stderr: StderrLog) -> None:
        self.messages = messages
        self.closing = closing
        self._stderr = stderr
        self._lines = Lines(MAX_MESSAGE_BYTES)
        # Without a bound, but not more than was asked and than the filter admits.
        self._heard, self.reading = anyio.create_memory_object_stream[Incoming](math.inf)
        closing.on_end(self._heard.close)  # the SDK then finds its stream at its end

    def hear(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        """Called with each piece of output. Never raises."""
        if self.closing.reason is not None:
            return
        if stream == "stderr":
            if not self._stderr.feed(data):
                self.closing.end("it writes to standard error without end")
            return
        try:
            for line in self._lines.feed(data):
                if self.closing.reason is None:
                    self._take(line)
        except TooLongError:
            self.closing.end(f"it said more than {MAX_MESSAGE_BYTES >> 20} MiB without an end of line")
        except TooMuchError as error:
            self.closing.end(str(error))

    def _take(self, line: bytes) -> None:
        if is_heavy(line):
            raise TooMuchError("it said a message of too many parts")
        message = _message(line)
        if message is None:
            # Many print a greeting. It is let go, like blank lines.
            self.messages.charge(len(line))
            self._stderr.odd(line)
        elif self.messages.admits(message, len(line)):
            self._heard.send_nowait(SessionMessage(message))

    def close(self) -> None:
        self._heard.close()
        self.reading.close()


def _message(line: bytes) -> JSONRPCMessage | None:
    """An answer that is none is an error for whoever waits for it."""
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        pass
    try:
        found = json.loads(line)
        if isinstance(found, dict) and "method" not in found and type(found.get("id")) in (int, str):
            error = ErrorData(code=INVALID_REQUEST, message="its answer is none that the protocol knows")
            return JSONRPCError(jsonrpc="2.0", id=found["id"], error=error)
    except (ValueError, RecursionError):
        pass
    return None
