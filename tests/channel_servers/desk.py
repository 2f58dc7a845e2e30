"""What a channel has of the program, in a test: a desk where messages are put down, and a memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from bubbles.channels.contract import Channel, Incoming


@dataclass(slots=True)
class Remembered:
    """A Memory that outlives channels."""

    kept: dict[str, str] = field(default_factory=dict)

    async def load(self, key: str) -> str | None:
        return self.kept.get(key)

    async def save(self, key: str, value: str) -> None:
        self.kept[key] = value


class DiskFullError(OSError):
    """What hinders the disk."""


@dataclass(slots=True)
class Desk:
    """A Link."""

    taken: list[Incoming] = field(default_factory=list)
    who: list[str] = field(default_factory=list)
    faults: deque[BaseException] = field(default_factory=deque)
    """What the next ``take`` raise, in the place of taking."""
    open: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared: too much waits already."""
    beats: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.open.set()

    async def take(self, message: Incoming) -> None:
        self._news.set()
        await self.open.wait()
        if self.faults:
            raise self.faults.popleft()
        self.taken.append(message)
        self._news.set()

    def connected(self, who: str) -> None:
        self.who.append(who)
        self._news.set()

    def alive(self) -> None:
        self.beats += 1
        self._news.set()

    async def got(self, count: int, within_s: float = 8.0) -> list[Incoming]:
        await self.until(lambda: len(self.taken) >= count, within_s)
        return self.taken

    async def until(self, is_so: Callable[[], object], within_s: float = 8.0) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not is_so():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"there are only {self.taken}") from None


@asynccontextmanager
async def running(channel: Channel, desk: Desk) -> AsyncIterator[asyncio.Task[None]]:
    """The channel is connected; at the end it is cancelled, unless it has ended by itself."""
    before = len(desk.who)
    task = asyncio.create_task(channel.run(desk))
    connected = asyncio.create_task(desk.until(lambda: len(desk.who) > before))
    await asyncio.wait({task, connected}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        connected.cancel()
        await task
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


async def failure(channel: Channel, desk: Desk, within_s: float = 8.0) -> BaseException:
    """What ``run`` ends with."""
    try:
        async with asyncio.timeout(within_s):
            await channel.run(desk)
    except Exception as error:  # noqa: BLE001 - whatever it is, a test looks at it
        return error
    raise AssertionError("it just ended")


async def until(is_so: Callable[[], object], within_s: float = 5.0) -> None:
    """For what tells nobody that it has changed."""
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
