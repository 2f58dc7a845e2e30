"""The gateway tells how it is: ``/healthz``, ``/readyz``, ``/metrics`` (OPS-02).

It is for programs: one request a connection, no body, and nothing for a page of a browser. On an address of this
machine alone, a page of another site could get here by a name that it rebinds, which ``Host`` gives away, or send a
request, which ``Origin`` and ``Sec-Fetch-Site`` do. Whoever is slow, talkative or too many gets nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

import h11

from bubbles import __version__
from bubbles.gateway.listening import EVERYWHERE, authority, bare, is_loopback, listening_on
from bubbles.gateway.metrics import CONTENT_TYPE, Metrics
from bubbles.gateway.process import ProcessFacts

if TYPE_CHECKING:
    from bubbles.gateway.turned_away import Visitor

MAX_HEAD_BYTES = 8 * 1024
PATIENCE_S = 5.0
"""For the head of a request to come, and again for the answer to be taken."""
LINGER_S = 1.0
"""For the other side to close: what it still sends would else destroy the answer on its way (RFC 9112, 9.6)."""
MAX_AT_ONCE = 32
PATHS = ("/healthz", "/readyz", "/metrics")
TEXT = "text/plain; charset=utf-8"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHealth:
    name: str
    phase: str
    """A word: starting, up, waiting, off."""
    up: bool
    who: str = ""
    """As whom the platform has let us in."""
    why: str = ""
    """A sentence, if it is not up."""
    since: float
    """Seconds since 1970, of this phase."""
    restarts: int = 0
    turned_away: tuple[Visitor, ...] = ()
    """The last few, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """How all of it is. Nothing in it is a secret."""

    ready: bool
    why: str = ""
    """A sentence, if it is not ready."""
    channels: tuple[ChannelHealth, ...] = ()
    jobs: int = 0
    job_problems: tuple[str, ...] = ()
    waiting: int = 0
    """Messages that were taken and are not dealt with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: HTTPStatus
    body: str = ""
    kind: str = TEXT
    more: tuple[tuple[str, str], ...] = ()


class Health:
    """Listens on ``host:port`` while the context lasts; with port 0 nothing does.

    Entering raises ConfigError or BubblesError with a sentence that names gateway.host or gateway.port. ``look`` is
    called in the event loop and must not block.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: str | None,
        look: Callable[[], Readiness],
        metrics: Metrics,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._host = bare(host)
        self._port = port
        self._token = token
        self._look = look
        self._metrics = metrics
        self._patience_s = patience_s
        self._started = time.monotonic()
        self._facts = ProcessFacts()
        self._open: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._over = False
        self._watched()

    @property
    def url(self) -> str | None:
        """Where a program of this machine finds it; None while nothing listens."""
        return f"http://{authority(EVERYWHERE.get(self._host, self._host), self._port)}" if self._servers else None

    async def __aenter__(self) -> Self:
        if self._port:
            sockets = await listening_on(self._host, self._port)
            try:
                for each in sockets:
                    self._servers.append(await asyncio.start_server(self._serve, sock=each, limit=MAX_HEAD_BYTES))
            except BaseException:
                await self.__aexit__()
                for each in sockets:
                    each.close()
                raise
        return self

    async def __aexit__(self, *how: object) -> None:
        self._over = True
        for server in self._servers:
            server.close()
        self._servers.clear()
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)

    def _watched(self) -> None:
        def channels() -> Iterator[tuple[Mapping[str, str], float]]:
            yield from (({"channel": each.name}, float(each.up)) for each in self._look().channels)

        watch = self._metrics.watch
        watch("bubbles_info", "What runs.", lambda: [({"version": __version__}, 1)])
        watch("bubbles_uptime_seconds", "Since the gateway was started.", lambda: [({}, self._uptime_s())])
        watch("bubbles_ready", "Whether all is up.", lambda: [({}, float(self._look().ready))])
        watch("bubbles_channel_up", "Whether a channel is connected, by channel.", channels)
        watch("bubbles_messages_waiting", "Messages taken and not dealt with.", lambda: [({}, self._look().waiting)])
        self._facts.watched(self._metrics)

    def _uptime_s(self) -> float:
        return time.monotonic() - self._started

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        task = asyncio.current_task()
        if task is None or len(self._open) >= MAX_AT_ONCE or self._over:
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            await self._exchange(reader, writer)
        except (TimeoutError, OSError):
            pass  # whoever it was has left, or does not take the answer
        except asyncio.CancelledError:
            pass  # the gateway ends; asyncio's own server would report this as a fault
        finally:
            self._open.discard(task)
            writer.transport.abort()  # all that was to be sent is sent

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # drain then returns once the kernel has all of it
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        request: h11.Request | None = None
        try:
            request = await self._asked(connection, reader)
            if request is None:
                return
            answer = await self._answer(request)
        except h11.RemoteProtocolError as error:
            answer = _plain(HTTPStatus(error.error_status_hint))
        except TimeoutError:
            answer = _plain(HTTPStatus.REQUEST_TIMEOUT)
        except ConnectionError:
            return
        except Exception:  # an edge: whatever one request breaks, the gateway and its next requests go on
            log.exception("a request for how the gateway is broke off")
            answer = _plain(HTTPStatus.INTERNAL_SERVER_ERROR)
        async with asyncio.timeout(self._patience_s):
            writer.write(_written(connection, answer, bodiless=request is not None and request.method == b"HEAD"))
            await writer.drain()
            writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while await reader.read(MAX_HEAD_BYTES):
                    pass

    async def _asked(self, connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
        """None if the other side has left. Raises TimeoutError, h11.RemoteProtocolError."""
        taken = 0
        async with asyncio.timeout(self._patience_s):
            while (event := connection.next_event()) is h11.NEED_DATA:
                if taken == MAX_HEAD_BYTES:
                    raise h11.RemoteProtocolError("the head is too long", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                data = await reader.read(MAX_HEAD_BYTES - taken)
                taken += len(data)
                connection.receive_data(data)
        return event if isinstance(event, h11.Request) else None

    async def _answer(self, request: h11.Request) -> _Answer:
        headers = dict(request.headers)
        if not self._for_a_program(headers):
            return _plain(HTTPStatus.FORBIDDEN)
        if not self._may_ask(headers):
            return _plain(HTTPStatus.UNAUTHORIZED, ("WWW-Authenticate", 'Bearer realm="bubbles gateway"'))
        path = request.target.partition(b"?")[0].decode("ascii")
        if path not in PATHS:
            return _plain(HTTPStatus.NOT_FOUND)
        if request.method not in (b"GET", b"HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED, ("Allow", "GET, HEAD"))
        if b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0":
            return _plain(HTTPStatus.BAD_REQUEST)
        if path == "/healthz":
            return _Answer(status=HTTPStatus.OK, body="ok\n")
        if path == "/metrics":
            await self._facts.learn()
            return _Answer(status=HTTPStatus.OK, body=self._metrics.render(), kind=CONTENT_TYPE)
        found = self._look()
        status = HTTPStatus.OK if found.ready else HTTPStatus.SERVICE_UNAVAILABLE
        body = json.dumps(as_json(found, self._uptime_s()), indent=2) + "\n"
        return _Answer(status=status, body=body, kind="application/json")

    def _for_a_program(self, headers: Mapping[bytes, bytes]) -> bool:
        """Not for a page of a browser. A request of HTTP/1.0 may have no Host; no browser sends one."""
        if b"origin" in headers or headers.get(b"sec-fetch-site", b"none") != b"none":
            return False
        host = headers.get(b"host")
        return host is None or not is_loopback(self._host) or _names_this_machine(host.decode("latin-1"))

    def _may_ask(self, headers: Mapping[bytes, bytes]) -> bool:
        if self._token is None:
            return True
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token.encode())


def _names_this_machine(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    return is_loopback(name if colon and port.isdecimal() and name != ":" else host)


def _plain(status: HTTPStatus, *more: tuple[str, str]) -> _Answer:
    return _Answer(status=status, body=f"{status.phrase}\n", more=more)


def _written(connection: h11.Connection, answer: _Answer, *, bodiless: bool) -> bytes:
    body = answer.body.encode()
    headers = [
        ("Content-Type", answer.kind),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "close"),
        *answer.more,
    ]
    said = [connection.send(h11.Response(status_code=answer.status, headers=headers, reason=answer.status.phrase))]
    if not bodiless:
        said.append(connection.send(h11.Data(data=body)))
    said.append(connection.send(h11.EndOfMessage()))
    return b"".join(part for part in said if part)


def as_json(found: Readiness, uptime_s: float) -> dict[str, Any]:
    """What ``/readyz`` says. Moments are RFC 3339."""
    return {
        "ready": found.ready,
        "why": found.why or None,
        "version": __version__,
        "uptime_s": round(uptime_s, 1),
        "channels": [
            {
                "name": each.name,
                "phase": each.phase,
                "up": each.up,
                "who": each.who or None,
                "why": each.why or None,
                "since": _moment(each.since),
                "restarts": each.restarts,
                "turned_away": [
                    {"id": one.id, "name": one.name, "at": _moment(one.at), "why": str(one.why)}
                    for one in each.turned_away
                ],
            }
            for each in found.channels
        ],
        "jobs": {"count": found.jobs, "problems": list(found.job_problems)},
        "waiting": found.waiting,
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
