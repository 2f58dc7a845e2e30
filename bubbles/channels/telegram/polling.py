"""The updates of a bot, one batch after another: the server is told that a batch arrived once all of it was taken.

An album comes as several updates, with nothing that says which is the last. So what waits is asked for once more after
a moment, without having told that anything arrived, until the album does not grow any more: no part of it is held in
memory alone, and a kill loses nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bubbles.channels.contract import ChannelError, Link, Memory, SlowDownError
from bubbles.channels.telegram.errors import ConflictError, SecondPollerError, TokenRefusedError
from bubbles.channels.telegram.updates import Json, album_of

log = logging.getLogger(__name__)

KEY = "offset"
WANTED = ("message", "callback_query")
"""Kinds of updates. What is edited later was answered already."""
AT_ONCE = 100
"""Updates in a batch: the most that Telegram gives."""
MAX_LOOKS = 10
"""At an album that grows and grows."""
FORGOTTEN_S = 86_400.0
"""Telegram keeps updates for a day. After a week of silence it begins to count anew, perhaps below: an old number would
then hide what is new."""

Call = Callable[..., Awaitable[Any]]
Take = Callable[[Sequence[Json]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    poll_s: int = 25
    """How long a request for updates waits for one."""
    late_s: float = 15.0
    """More than that, and the connection is taken for dead."""
    album_s: float = 0.6
    """After which nothing more is thought to come."""
    empty_s: float = 0.5
    """A server that says at once that there is nothing is asked no more often."""


class Polling:
    def __init__(self, call: Call, memory: Memory, bot: str, pace: Pace, clock: Callable[[], float]) -> None:
        """``bot``: the id of it. Another bot has other numbers. ``clock`` as ``time.time``."""
        self._call = call
        self._memory = memory
        self._bot = bot
        self._pace = pace
        self._clock = clock
        self._offset: int | None = None
        self._told_at = 0.0

    async def run(self, take: Take, link: Link) -> None:
        """Until cancelled. ``take`` gets an update, or those of an album. Raises ChannelError, and what it raises."""
        await self._load()
        while True:
            batch = await self._whole(await self._next(link), link)
            await _taken(take, grouped(batch))
            if batch:
                await self._told(batch[-1]["update_id"] + 1)

    async def _next(self, link: Link) -> list[Json]:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        batch = await self._ask(self._pace.poll_s, link)
        if not batch and self._pace.poll_s and loop.time() - begun < self._pace.empty_s:
            await asyncio.sleep(self._pace.empty_s)
        return batch

    async def _whole(self, batch: list[Json], link: Link) -> list[Json]:
        for _ in range(MAX_LOOKS):
            albums = _parts_of_albums(batch)
            if not albums:
                break
            await asyncio.sleep(self._pace.album_s)
            batch = _room_to_grow(await self._ask(0, link))
            if _parts_of_albums(batch) == albums:
                break
        return batch

    async def _ask(self, poll_s: int, link: Link) -> list[Json]:
        if self._clock() - self._told_at > FORGOTTEN_S:
            self._offset = None
        batch, wait_s = [], 0.0
        try:
            batch = await asked(self._call, self._offset, poll_s, poll_s + self._pace.late_s)
        except SlowDownError as error:
            wait_s = min(error.retry_after_s, self._pace.poll_s)
        link.alive()
        await asyncio.sleep(wait_s)
        return batch

    async def _load(self) -> None:
        try:
            kept = json.loads(await self._memory.load(KEY) or "{}")
            if kept.get("bot") == self._bot:
                self._offset, self._told_at = int(kept["next"]), float(kept["at"])
        except (ValueError, TypeError, LookupError, AttributeError):
            log.warning("how far Telegram was read cannot be read: what comes again is known by its id")

    async def _told(self, offset: int) -> None:
        self._offset, self._told_at = offset, self._clock()
        await self._memory.save(KEY, json.dumps({"bot": self._bot, "next": offset, "at": self._told_at}))


async def asked(call: Call, offset: int | None, poll_s: int, answer_s: float) -> list[Json]:
    """One batch, which has arrived once ``offset`` is beyond it. A webhook is taken away.

    Raises FatalChannelError for a token that is not known, SecondPollerError, SlowDownError, other ChannelError.
    """
    more = {"offset": offset, "timeout": poll_s, "limit": AT_ONCE, "allowed_updates": list(WANTED)}
    failure: ChannelError
    try:
        found = await call("getUpdates", answer_s=answer_s, **more)
    except TokenRefusedError as error:
        failure = error.fatal()
    except ConflictError as error:
        if "webhook" in str(error):
            log.warning("the bot of channels.telegram.token had a webhook, which is taken away: messages come here now")
            await call("deleteWebhook")
            return []
        failure = SecondPollerError()
    else:
        if isinstance(found, list):
            known = [each for each in found if isinstance(each, dict) and isinstance(each.get("update_id"), int)]
            return sorted(known, key=lambda each: int(each["update_id"]))
        failure = ChannelError("what the server of channels.telegram.baseUrl answers is not what Telegram does")
    raise failure


def grouped(batch: Sequence[Json]) -> list[list[Json]]:
    """Each update by itself, and those of an album together, in the place of its first."""
    found: dict[object, list[Json]] = {}
    for update in batch:
        found.setdefault(_album(update) or update["update_id"], []).append(update)
    return list(found.values())


def by_chat(groups: Sequence[list[Json]]) -> list[list[list[Json]]]:
    """What belongs to one chat, in order; a button counts as its card's chat."""
    found: dict[object, list[list[Json]]] = {}
    for parts in groups:
        found.setdefault(_chat(parts[0]), []).append(parts)
    return list(found.values())


async def _taken(take: Take, groups: Sequence[list[Json]]) -> None:
    """All of them. A chat that sends large files does not hold up the others. Raises what ``take`` raised first."""
    try:
        async with asyncio.TaskGroup() as chats:
            for waiting in by_chat(groups):
                chats.create_task(_in_order(take, waiting))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed


async def _in_order(take: Take, groups: Sequence[list[Json]]) -> None:
    for parts in groups:
        await take(parts)


def _chat(update: Json) -> object:
    try:
        return (update.get("message") or update["callback_query"]["message"])["chat"]["id"]
    except (LookupError, TypeError, AttributeError):
        return update["update_id"]


def _parts_of_albums(batch: Sequence[Json]) -> set[int]:
    return {update["update_id"] for update in batch if _album(update) is not None}


def _room_to_grow(batch: list[Json]) -> list[Json]:
    """A full batch ends before an album, of which a part may not have had room in it."""
    if len(batch) < AT_ONCE:
        return batch
    first = _album(batch[0])
    cut = next((n for n, update in enumerate(batch) if _album(update) not in (None, first)), len(batch))
    return batch[:cut]


def _album(update: Json) -> tuple[str, str] | None:
    try:
        return album_of(update)
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
