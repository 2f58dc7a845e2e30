"""One request over HTTP and the reply to it, which comes as a stream or whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from bubbles.providers.contract import Category, ModelReply, ProviderError, TextSink
from bubbles.providers.failures import broken, of_response, scrubbed
from bubbles.providers.sse import EventReader
from bubbles.providers.wire import Body

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

MAX_REPLY_BYTES = 32 * 2**20
MAX_ERROR_BYTES = 64 * 2**10
WHOLE_FACTOR = 10
"""A request may take this many times the longest silence: signs of life do not keep it for ever."""
USAGE_WAIT_S = 5.0
"""For the token counts, which come after the reason why a reply ended, or never."""
ERROR_WAIT_S = 5.0
"""For the words of a refusal; its status is known."""
END_WAIT_S = 0.05
"""For the end of the answer after the last event: then the connection can be used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where requests go."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    proxy: str | None = field(repr=False, default=None)
    secrets: tuple[str, ...] = field(repr=False, default=())
    """What must not be in any error."""


class Reading(Protocol):
    """Makes a reply of what comes, in the format of one API. Every method raises ``ProviderError``."""

    finished: bool
    """The reply is whole, though token counts may still come."""
    done: bool
    """Nothing follows."""

    def event(self, data: str) -> str:
        """One event of a stream; returns the text that it adds."""
        ...

    def whole(self, data: str) -> str:
        """The answer of a server that does not stream; returns its text."""
        ...

    def reply(self) -> ModelReply:
        """What has come, if it is all of the reply."""
        ...


class Exchange:
    """Used once. ``silence_s``: seconds without a byte, of the request or of the answer, after which it has failed."""

    def __init__(self, session: ClientSession, target: Target, silence_s: float) -> None:
        self._session = session
        self._target = target
        self._silence_s = silence_s
        self._loop = asyncio.get_running_loop()
        self._silence: asyncio.Timeout | None = None

    async def run(self, body: Body, assembly: Reading, on_text: TextSink | None) -> None:
        """Until the reply is whole in ``assembly``, or there is no more of it.

        Raises ``ProviderError``, aiohttp's errors, OSError and TimeoutError.
        """
        try:
            async with asyncio.timeout(self._silence_s * WHOLE_FACTOR), asyncio.timeout(self._silence_s) as silence:
                self._silence = silence
                async with await self._sent(body) as response:
                    await self._received(response, assembly, on_text)
        except TimeoutError:
            if not (assembly.finished or assembly.done):
                raise self._timed_out() from None
        finally:
            self._silence = None

    async def _sent(self, body: Body) -> ClientResponse:
        headers = {**self._target.headers, "Content-Length": str(body.size)}
        return await self._session.post(
            self._target.url,
            data=self._blocks(body),
            headers=headers,
            proxy=self._target.proxy,
            allow_redirects=False,  # the key is for this server, and so is the conversation
        )

    async def _blocks(self, body: Body) -> AsyncIterator[bytes]:
        for block in body.blocks():
            self._alive()
            yield block
        self._alive()

    def _alive(self, wait_s: float | None = None) -> None:
        """There was a byte; for the next one there are ``wait_s``, or as long as for any other."""
        silence = self._silence  # a server may answer, and be left, before it has read all of the request
        if silence is not None and not silence.expired():
            silence.reschedule(self._loop.time() + (self._silence_s if wait_s is None else wait_s))

    def _timed_out(self) -> ProviderError:
        silent = self._silence is not None and self._silence.expired()
        seconds = self._silence_s if silent else self._silence_s * WHOLE_FACTOR
        return broken(f"{'nothing came' if silent else 'the reply was not whole'} within {seconds:g} s")

    async def _received(self, response: ClientResponse, assembly: Reading, on_text: TextSink | None) -> None:
        self._alive()
        if not 200 <= response.status < 300:
            raise await self._refused(response)
        if response.content_type == "text/html":
            raise ProviderError(Category.REJECTED, "it answers with a page for people: baseUrl is not an API's address")
        reader = _Reader(assembly)
        size = 0
        patience = self._silence_s
        while chunk := await response.content.readany():
            size += len(chunk)
            if size > MAX_REPLY_BYTES:
                if assembly.finished or assembly.done:
                    return
                raise broken(f"the reply is longer than {MAX_REPLY_BYTES} bytes")
            for piece in reader.feed(chunk):
                if piece and on_text is not None:
                    on_text.text(piece)
            left = self._patience(assembly)
            if left != patience or left == self._silence_s:  # once the reply is whole, more bytes gain no time
                self._alive(left)
            patience = left
        for piece in reader.finish():
            if piece and on_text is not None:
                on_text.text(piece)

    def _patience(self, assembly: Reading) -> float:
        """Seconds that are worth waiting for what may still come."""
        if assembly.done:
            return END_WAIT_S
        return min(USAGE_WAIT_S, self._silence_s * 0.9) if assembly.finished else self._silence_s

    async def _refused(self, response: ClientResponse) -> ProviderError:
        """What the answer says; what cannot be read of it does not matter."""
        import aiohttp

        secrets = self._target.secrets
        if 300 <= response.status < 400:
            where = scrubbed(response.headers.get("Location", "nowhere"), secrets, 200)
            return ProviderError(
                Category.REJECTED, f"it redirects to {where}: set baseUrl to the address that is meant"
            )
        text = bytearray()
        try:
            async with asyncio.timeout(min(ERROR_WAIT_S, self._silence_s * 0.5)):
                while len(text) < MAX_ERROR_BYTES and (chunk := await response.content.read(MAX_ERROR_BYTES)):
                    text += chunk
        except (aiohttp.ClientError, OSError):
            pass
        error = of_response(response.status, response.headers, text.decode("utf-8", "replace"), secrets=secrets)
        error.status = response.status
        return error


class _Reader:
    """Tells by its first character whether the answer is a stream or one object, whatever its headers say."""

    def __init__(self, assembly: Reading) -> None:
        self._assembly = assembly
        self._events = EventReader()
        self._is_object: bool | None = None
        self._object = bytearray()

    def feed(self, chunk: bytes) -> list[str]:
        """The pieces of text that these bytes complete."""
        if self._is_object is None and (begun := chunk.lstrip()):
            self._is_object = begun.startswith((b"{", b"["))
        if self._is_object:
            self._object += chunk
            return []
        return [self._assembly.event(data) for data in self._events.feed(chunk) if not self._assembly.done]

    def finish(self) -> list[str]:
        if self._is_object:
            return [self._assembly.whole(self._object.decode("utf-8", "replace"))]
        return [self._assembly.event(data) for data in self._events.finish() if not self._assembly.done]
