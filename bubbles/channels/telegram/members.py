"""Who has been met in groups. Telegram has no list of members: there are its administrators, and who has written.

Kept over restarts, since without it no mention in an answer would call anybody. Bounded: strangers can put the bot into
groups of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from bubbles.channels.contract import Memory, Person
from bubbles.channels.telegram.updates import Seen

KEY = "people"
MAX_CHATS = 40
MAX_PEOPLE = 250
"""A chat. Who was met last stays."""


class People:
    """Chats are those of Telegram, with all their topics."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._chats: dict[str, dict[str, Seen]] | None = None
        self._alone: dict[str, Seen] = {}
        """In private chats, which need nothing kept: the chat's id is the person's."""

    async def load(self) -> None:
        """What was kept; what cannot be read counts as nothing."""
        if self._chats is not None:
            return
        try:
            kept = json.loads(await self._memory.load(KEY) or "{}")
            self._chats = {
                str(chat): {ident: Seen(id=ident, name=name, username=username) for ident, name, username in people}
                for chat, people in kept.items()
            }
        except (ValueError, TypeError, AttributeError):
            self._chats = {}

    async def learn(self, chat: str, people: Iterable[Seen]) -> None:
        """They are in this chat. On the disk when it returns, if it was news."""
        if self._note(chat, people):
            await self._save()

    async def forget(self, chat: str, ident: str) -> None:
        """They are not any more."""
        if self._known(chat).pop(ident, None) is not None:
            await self._save()

    def meet(self, chat: str, people: Iterable[Seen]) -> None:
        """Somebody writes in a private chat."""
        for seen in people:
            self._alone.pop(chat, None)
            self._alone[chat] = seen
        while len(self._alone) > MAX_PEOPLE:
            del self._alone[next(iter(self._alone))]

    def names(self, chat: str) -> Mapping[str, str]:
        """What they are called, by id: these may be mentioned there."""
        known = self._known(chat)
        if chat in self._alone:
            known = {chat: self._alone[chat]}
        return {ident: seen.name or seen.username for ident, seen in known.items()}

    def usernames(self, chat: str) -> Mapping[str, str]:
        """Ids by username, in lower case."""
        return {seen.username.lower(): ident for ident, seen in self._known(chat).items() if seen.username}

    def people(self, chat: str) -> tuple[Person, ...]:
        return tuple(
            Person(id=seen.id, names=tuple(filter(None, (seen.name, seen.username and f"@{seen.username}"))))
            for seen in self._known(chat).values()
        )

    def _known(self, chat: str) -> dict[str, Seen]:
        return (self._chats or {}).get(chat, {})

    def _note(self, chat: str, people: Iterable[Seen]) -> bool:
        chats = self._chats = {} if self._chats is None else self._chats
        found = chats.pop(chat, {})
        chats[chat] = found  # the one of which something was heard last is the last to go
        news = False
        for seen in people:
            if found.get(seen.id) == seen:
                continue
            news = True
            for ident, other in list(found.items()):  # a username can be given up, and taken by somebody else
                if seen.username and other.username.lower() == seen.username.lower():
                    found[ident] = Seen(id=ident, name=other.name)
            found.pop(seen.id, None)
            found[seen.id] = seen
        while len(found) > MAX_PEOPLE:
            del found[next(iter(found))]
        if not found:
            del chats[chat]
        while len(chats) > MAX_CHATS:
            del chats[next(iter(chats))]
        return news

    async def _save(self) -> None:
        kept = {
            chat: [[seen.id, seen.name, seen.username] for seen in people.values()]
            for chat, people in (self._chats or {}).items()
        }
        await self._memory.save(KEY, json.dumps(kept, ensure_ascii=False))
