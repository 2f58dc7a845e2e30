"""A real HTTP server on 127.0.0.1 that plays a vendor: scripted answers, and every request byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class Ending(enum.Enum):
    """What becomes of the connection after an answer."""

    KEEP = "keep"
    """It is whole, and the connection may be used again."""
    CLOSE = "close"
    """Closed, with the end of a chunked body left out: half an answer."""
    RESET = "reset"
    STALL = "stall"
    """Nothing more comes, and it stays open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """``chunks`` are sent one by one, as chunks of HTTP; or, with ``raw``, as all there is, head too."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: Sequence[bytes] = ()
    ending: Ending = Ending.KEEP
    raw: bool = False
    repeat: bool = False
    """The last chunk is sent again and again, until the client goes away."""
    every_s: float = 0.0
    """Between two chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request as it arrived."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]]
    body: bytes = field(repr=False)
    connection: int
    """Which connection it came over, from 0."""

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(found) < 2, f"{name} was sent {len(found)} times"
        return found[0] if found else None

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Playback:
    """The server. The answers are played in the order in which requests come; the last one is repeated."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.url = ""
        self.requests: list[Received] = []
        self.connections = 0
        self.arrived = asyncio.Event()
        """There was a request."""
        self.hung_up = asyncio.Event()
        """A client went away while an answer was held back or repeated."""
        self._answers = answers
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        number, self.connections = self.connections, self.connections + 1
        try:
            while (request := await _request(reader, writer, number)) is not None:
                self.requests.append(request)
                self.arrived.set()
                answer = self._answers[min(len(self.requests), len(self._answers)) - 1]
                if not await self._play(answer, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            self.hung_up.set()
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self._serving.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
                await writer.wait_closed()

    async def aclose(self) -> None:
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _play(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        if not answer.raw and (answer.chunks or answer.ending is not Ending.STALL):
            headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked", **answer.headers}
            lines = [f"HTTP/1.1 {answer.status} Played", *(f"{name}: {value}" for name, value in headers.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode())
        for chunk in answer.chunks:
            await self._chunk(answer, chunk, writer)
        while answer.repeat:
            await self._chunk(answer, answer.chunks[-1], writer)
        if answer.ending is Ending.STALL:
            await reader.read()
            self.hung_up.set()
        elif answer.ending is Ending.RESET:
            gone = writer.get_extra_info("socket")
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        elif answer.ending is Ending.KEEP and not answer.raw:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        return False

    async def _chunk(self, answer: Answer, chunk: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(chunk if answer.raw else b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await writer.drain()
        await asyncio.sleep(answer.every_s)


async def _request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> Received | None:
    if (begun := await reader.read(1)) == b"\x16":  # TLS, which real servers that know none answer in plain text
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    if begun in (b"", b"\x16"):
        return None
    head = (begun + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    lengths = [int(value) for name, value in headers if name.lower() == "content-length"]
    body = await reader.readexactly(lengths[0]) if lengths else b""
    return Received(method=method, target=target, headers=headers, body=body, connection=connection)


@contextlib.asynccontextmanager
async def playing(*answers: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Playback]:
    server = Playback(answers)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=2**26, ssl=tls)
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        await server.aclose()
        await listener.wait_closed()


def free_port() -> int:
    """Nobody listens there."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port


# What vendors send, in OpenAI's format.


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status=status, headers=headers or {}, chunks=(json.dumps(value).encode(),))


def refusal(status: int, message: str, *, headers: Mapping[str, str] | None = None, **more: object) -> Answer:
    """``{"error": {"message": …}}``; ``more`` are further fields of the error."""
    return json_answer({"error": {"message": message, **more}}, status, headers)


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def piece(text: str = "", *, finish: str | None = None, **delta: object) -> dict[str, object]:
    """A chunk of a streamed reply."""
    fields = {**({"content": text} if text else {}), **delta}
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def usage(prompt: int, completion: int, cached: int = 0) -> dict[str, object]:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {"choices": [], "usage": {**counts, "prompt_tokens_details": {"cached_tokens": cached}}}


def stream(*pieces: object, done: bool = True, ending: Ending = Ending.KEEP) -> Answer:
    """Objects are sent as events, texts as pieces of the reply's text, bytes as they are."""
    chunks = [
        item if isinstance(item, bytes) else event(piece(item) if isinstance(item, str) else item) for item in pieces
    ]
    return Answer(
        headers={"Content-Type": "text/event-stream"},
        chunks=(*chunks, *([b"data: [DONE]\n\n"] if done else [])),
        ending=ending,
    )


def said(*texts: str, prompt: int = 7, completion: int = 3) -> Answer:
    """A whole streamed reply."""
    return stream(*texts, piece(finish="stop"), usage(prompt, completion))


SILENCE = Answer(ending=Ending.STALL)
"""Not even headers."""
