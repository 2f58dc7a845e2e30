"""Where the browser comes back to: one path of a server on 127.0.0.1, for one callback (RFC 8252, 7.3 and 8.3).

Whoever calls it otherwise is turned away and changes nothing: a page of another site (by ``Host``, ``Origin`` and what
browsers say of a request's purpose), a forged or missing ``state``, any other path, whoever is slow or talkative.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

PATH = "/auth/callback"
MAX_HEAD_BYTES = 16 * 1024
MAX_CODE = 4_096
PATIENCE_S = 10.0
"""For the head of one request, and for its answer to be taken."""
MAX_AT_ONCE = 16
"""Connections; browsers open some that they never use."""
_SAFE = (
    "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\nConnection: close\r\n"
)
_REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 410: "Gone"}
_DONE = "Bubbles has what it needs. You can close this page; the terminal says how it went."
_DENIED = "The login was not granted. You can close this page; the terminal says what to do."


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """What the browser, or the person, brought back."""

    code: str = field(repr=False, default="")
    denied: str = ""
    """Why there is no code, as the vendor calls it."""


class RefusedReturnError(Exception):
    """What is wrong with it; one sentence without any of it."""


class CallbackServer:
    def __init__(self, port: int, state: str) -> None:
        self._hosts = frozenset(f"{name}:{port}" for name in ("localhost", "127.0.0.1"))
        self._state = state
        self._returned: asyncio.Future[Returned] = asyncio.get_running_loop().create_future()
        self._open: set[asyncio.Task[None]] = set()
        self.redirect_uri = f"http://localhost:{port}{PATH}"

    async def returned(self) -> Returned:
        """When the browser has come back, and has its page."""
        returned = await asyncio.shield(self._returned)
        if self._open:
            await asyncio.wait(self._open, timeout=1.0)
        return returned

    async def aclose(self) -> None:
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        task = asyncio.current_task()
        if task is None or len(self._open) >= MAX_AT_ONCE:
            writer.close()
            return
        self._open.add(task)
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, text = self._answer(head)
                writer.write(_page(status, text))
                await writer.drain()
        except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
            pass  # whoever it was gets nothing, and the real one may still come
        except asyncio.CancelledError:
            pass  # the login has ended; asyncio's own server would report this as a fault
        finally:
            self._open.discard(task)
            writer.close()

    def _answer(self, head: bytes) -> tuple[int, str]:
        try:
            method, target, headers = _parsed(head)
        except ValueError:
            return 400, "This is no request."
        if not self._is_ours(headers):
            return 403, "This address is for one login of this machine only."
        parts = urlsplit(target)
        if parts.path != PATH:
            return 404, "There is nothing here."
        if method != "GET":
            return 405, "This is not how a browser comes back."
        if self._returned.done():
            return 410, "This login has its answer already."
        try:
            returned = read_query(parts.query, self._state)
        except RefusedReturnError as error:
            return 400, f"{error} Begin again from the terminal."
        self._returned.set_result(returned)
        return 200, _DONE if returned.code else _DENIED

    def _is_ours(self, headers: Mapping[str, str]) -> bool:
        """A person's browser that was sent here; not a page's script, picture or frame, nor a name that was rebound."""
        return (
            headers.get("host", "") in self._hosts
            and headers.get("origin", "null") == "null"
            and headers.get("sec-fetch-mode", "navigate") == "navigate"
            and headers.get("sec-fetch-dest", "document") == "document"
        )


@asynccontextmanager
async def callback_server(ports: Sequence[int], state: str) -> AsyncIterator[CallbackServer | None]:
    """Listens on the first of the ``ports`` that is free, while the context lasts; None if none is."""
    found: CallbackServer | None = None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if found is not None:
            await found.serve(reader, writer)

    server: asyncio.Server | None = None
    for port in ports:
        with suppress(OSError):
            server = await asyncio.start_server(serve, "127.0.0.1", port, limit=MAX_HEAD_BYTES, backlog=MAX_AT_ONCE)
            break
    if server is None:
        yield None
        return
    found = CallbackServer(server.sockets[0].getsockname()[1], state)
    try:
        yield found
    finally:
        server.close()
        await found.aclose()


def read_query(query: str, state: str | None) -> Returned:
    """Raises ``RefusedReturnError``. ``state`` of None: it need not be there."""
    if len(query) > MAX_HEAD_BYTES:
        raise RefusedReturnError("The address is too long.")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise RefusedReturnError("The address has too many parts.") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RefusedReturnError("The address names a part twice.")
    if state is not None and not hmac.compare_digest(found.get("state", "").encode(), state.encode()):
        raise RefusedReturnError("The address belongs to another login.")
    code, denied = found.get("code", ""), found.get("error", "")
    if denied:
        return Returned(denied=denied if denied.isidentifier() and len(denied) <= 60 else "refused")
    if not code or len(code) > MAX_CODE or not (code.isascii() and code.isprintable()):
        raise RefusedReturnError("The address has no code.")
    return Returned(code=code)


def _parsed(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Raises ValueError. A name that comes twice is no request of a browser."""
    first, *lines = head.decode("ascii").removesuffix("\r\n\r\n").split("\r\n")
    method, target, version = first.split(" ")
    if not version.startswith("HTTP/1.") or not target.startswith("/"):
        raise ValueError
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        key = name.lower()
        if not colon or not key or key != key.strip() or (key in headers and key in ("host", "origin")):
            raise ValueError
        headers[key] = value.strip()
    return method, target, headers


def _page(status: int, text: str) -> bytes:
    body = f"<!doctype html><title>Bubbles</title><body style='font:1.1em sans-serif;margin:4em'><p>{text}</p>".encode()
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\n{_SAFE}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
