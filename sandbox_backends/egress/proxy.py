"""The egress proxy: the only way out of a sandbox whose network is an allow-list (SBX-07, SEC-01).

It runs in the controller, outside the sandbox, on a unix socket that is bind-mounted into the place; ``bridge.py``
inside leads 127.0.0.1 to it. It takes CONNECT and absolute ``http://`` requests, one a connection:

    read the head -> host and port on the list? -> resolve once -> drop addresses that may not be dialled -> dial one

What was checked is what is dialled, so a name that changes its address in between (DNS rebinding) gains nothing. A
refusal is a 403 that names the host, the reason and the mend; it never holds a header, a path or a query.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from functools import partial

from sandbox_backends.egress.allow import AllowList, IPAddress, entry_for, host_text, is_odd_spelling, plain
from sandbox_backends.egress.request import RequestHead, parse_head, read_head, relay_body, relay_response_head
from sandbox_backends.egress.stream import AnswerError, ByteStream, Idle, connect, pump
from sandbox_backends.egress.tls import REFUSED_ALERT, IncompleteHelloError, is_tls, server_name

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""``(name, port)`` to address texts, best first; raises ``OSError`` when the name has none."""
OnRefusal = Callable[[str], None]
"""Called on the event loop with one sentence for the person; it must not block."""

_MAX_ADDRESSES = 8
_ACCEPT_PAUSE_S = 0.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressLimits:
    """Bounds of one proxy. A connection holds at most two chunks of 64 KiB beside what the kernel buffers."""

    connections: int = 128
    """At once; one more is answered 503."""
    head_s: float = 10.0
    """For the whole request head, and for a TLS client hello once it began."""
    connect_s: float = 10.0
    """For resolving, and again for dialling all addresses."""
    idle_s: float = 300.0
    """A connection on which no byte moved for so long is closed."""


class _RefusedError(AnswerError):
    """The list says no. The person hears of it, and the client unless it already talks to the server."""


_UNREACHABLE = (502, 504)
"""Told too: a client that asked by CONNECT shows the number alone."""
_TELL_AT_ONCE = 50
"""Refusals told in a burst; then one a second."""


class EgressProxy:
    def __init__(
        self,
        allow: AllowList,
        on_refusal: OnRefusal,
        *,
        resolver: Resolver | None = None,
        limits: EgressLimits | None = None,
    ) -> None:
        self._allow = allow
        self._on_refusal = on_refusal
        self._may_tell = float(_TELL_AT_ONCE)
        self._told_at = 0.0
        self._untold = 0
        self._resolver = resolver or self._system_resolver
        self._limits = limits or EgressLimits()
        self._conversations: set[asyncio.Task[None]] = set()
        # Threads of its own: slow names asked for inside must not take the controller's default ones.
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="egress-dns")

    @asynccontextmanager
    async def serve(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serves on a listening, non-blocking socket until the context is left, which closes it and every connection.

        A proxy serves once.
        """
        loop = asyncio.get_running_loop()
        loop.add_reader(listener, self._accept, listener)
        try:
            yield
        finally:
            loop.remove_reader(listener)
            listener.close()
            self._threads.shutdown(wait=False, cancel_futures=True)
            for task in self._conversations:
                task.cancel()
            await asyncio.gather(*self._conversations, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            sock, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # out of file descriptors: they come back when connections end
            _log.warning("egress proxy: cannot accept: %s", error)
            loop.remove_reader(listener)
            loop.call_later(_ACCEPT_PAUSE_S, self._resume, listener)
            return
        sock.setblocking(False)
        if len(self._conversations) >= self._limits.connections:
            most = self._limits.connections
            with closing(sock), suppress(OSError):
                sock.send(AnswerError(503, f"More than {most} connections at once; close some first.").response())
            return
        task = loop.create_task(self._converse(ByteStream(sock)))
        self._conversations.add(task)
        task.add_done_callback(partial(self._ended, sock))

    def _resume(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _ended(self, sock: socket.socket, task: asyncio.Task[None]) -> None:
        sock.close()  # here, for a task that is cancelled before its first step runs nothing of its own
        self._conversations.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("egress proxy: a connection failed", exc_info=error)

    async def _converse(self, client: ByteStream) -> None:
        answers: list[AnswerError] = []
        try:
            await self._one_request(client)
        except* AnswerError as group:
            answers += [error for error in group.exceptions if isinstance(error, AnswerError)]
        except* (OSError, EOFError):
            pass  # a side went away or fell silent: nobody is left to tell
        for answer in answers:
            if isinstance(answer, _RefusedError) or answer.status in _UNREACHABLE:
                self._tell(answer.sentence)
        if answers and not client.written:
            await client.say(answers[0])

    def _tell(self, sentence: str) -> None:
        """Pass a refusal on, but not a flood: a hostile loop makes thousands a second."""
        now = time.monotonic()
        self._may_tell = min(float(_TELL_AT_ONCE), self._may_tell + now - self._told_at)
        self._told_at = now
        if self._may_tell < 1:
            self._untold += 1
            return
        self._may_tell -= 1
        more, self._untold = self._untold, 0
        self._on_refusal(f"{sentence} ({more} more refusals went before it.)" if more else sentence)

    async def _one_request(self, client: ByteStream) -> None:
        try:
            async with asyncio.timeout(self._limits.head_s):
                request = parse_head(await read_head(client))
        except TimeoutError:
            raise AnswerError(408, f"The request head took longer than {self._limits.head_s:g} s.") from None
        with closing(await self._dial(request, await self._addresses(request))) as server:
            try:
                async with asyncio.timeout(self._limits.idle_s) as timeout:
                    client.touch = server.touch = Idle(timeout, self._limits.idle_s).touch
                    if request.is_connect:
                        await self._tunnel(request, client, server)
                    else:
                        await _exchange(request, client, server)
            except TimeoutError:
                raise AnswerError(504, f"No byte moved for {self._limits.idle_s:g} s.") from None

    async def _addresses(self, request: RequestHead) -> list[IPAddress]:
        """The addresses that may be dialled for a request, best first. ``AnswerError`` 403, 502 or 504."""
        host, port = request.host, request.port
        where = f"{host_text(host)}:{port}"
        if is_odd_spelling(host):
            raise _refused(where, "it is an odd spelling of an address", "write it as four decimal numbers")
        if why := self._allow.refusal(host, port):
            raise _refused(where, why, f"allow it with --allow {entry_for(host, port)}")
        if not isinstance(host, str):
            return [host]
        try:
            async with asyncio.timeout(self._limits.connect_s):
                texts = await self._resolver(host, port)
        except TimeoutError:
            raise AnswerError(504, f"The name {host} was not resolved in {self._limits.connect_s:g} s.") from None
        except (OSError, UnicodeError):
            raise AnswerError(502, f"The name {host} has no address.") from None
        found = list(dict.fromkeys(plain(ipaddress.ip_address(text)) for text in texts))
        permitted = [address for address in found if self._allow.permits_address(address, port)]
        if found and not permitted:
            why = f"it resolves to {found[0]}, which is not on the public internet and not on the allow-list"
            raise _refused(where, why, f"if that is meant, allow it with --allow {entry_for(found[0], port)}")
        return permitted[:_MAX_ADDRESSES]

    async def _system_resolver(self, host: str, port: int) -> Sequence[str]:
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [str(entry[4][0]) for entry in found]

    async def _dial(self, request: RequestHead, addresses: list[IPAddress]) -> ByteStream:
        where = f"{host_text(request.host)}:{request.port}"
        deadline = time.monotonic() + self._limits.connect_s
        status, why = 502, "it has no address"
        for position, address in enumerate(addresses):
            # A fair share each: an address that swallows packets must not use up the time of the ones after it.
            share_s = (deadline - time.monotonic()) / (len(addresses) - position)
            try:
                async with asyncio.timeout(share_s):
                    return await connect(address, request.port)
            except TimeoutError:
                status, why = 504, "it did not answer in time"
            except OSError as error:
                status, why = 502, os.strerror(error.errno) if error.errno else "the connection failed"
        raise AnswerError(status, f"No connection to {where}: {why}.")

    async def _tunnel(self, request: RequestHead, client: ByteStream, server: ByteStream) -> None:
        await client.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as group:
            group.create_task(pump(server, client))
            group.create_task(self._tunnel_up(request, client, server))

    async def _tunnel_up(self, request: RequestHead, client: ByteStream, server: ByteStream) -> None:
        """Client to server. A TLS hello that names another host than was asked for goes nowhere."""
        begin = await client.read()
        if begin and is_tls(begin) and isinstance(request.host, str):
            try:
                async with asyncio.timeout(self._limits.head_s):
                    begin, name = await _read_hello(begin, client)
                why = "" if name == request.host else f"TLS names {'no host' if name is None else 'another host'}"
            except (ValueError, TimeoutError):
                why = "its TLS hello cannot be read"
            if why:
                await client.write(REFUSED_ALERT)
                raise _refused(f"{request.host}:{request.port}", why, "ask the proxy for the host that TLS names")
        await server.write(begin)
        await pump(client, server)


async def _exchange(request: RequestHead, client: ByteStream, server: ByteStream) -> None:
    await server.write(request.outgoing())
    async with asyncio.TaskGroup() as group:
        upward = group.create_task(_send_body(request, client, server))
        try:
            await relay_response_head(server, client)
        except EOFError:
            raise AnswerError(502, "The server closed the connection without an answer.") from None
        await pump(server, client)
        upward.cancel()


async def _send_body(request: RequestHead, client: ByteStream, server: ByteStream) -> None:
    """Then wait for the client to leave, so that a server that goes on for long is not kept at work for nobody."""
    try:
        await relay_body(request, client, server)
    except OSError:
        return  # a server may answer and close before it has read all: let its answer through
    if not await client.read(1):
        raise EOFError
    # Something follows the request. It is never read: the answer says that the connection ends.


async def _read_hello(begin: bytes, client: ByteStream) -> tuple[bytes, str | None]:
    data = bytearray(begin)
    while True:
        try:
            return bytes(data), server_name(bytes(data))
        except IncompleteHelloError as incomplete:
            while len(data) < incomplete.needed:
                more = await client.read()
                if not more:
                    raise EOFError from None
                data += more


def _refused(where: str, why: str, mend: str) -> _RefusedError:
    return _RefusedError(403, f"The sandbox may not reach {where}: {why}; {mend}.", f"Refused by the sandbox: {mend}")
