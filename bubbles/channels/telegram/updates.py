"""What Telegram tells, as the program understands it. Pure: JSON in, ``Incoming`` out.

https://core.telegram.org/bots/api#message. Offsets of entities count UTF-16 units. Whatever a person can write is
hostile; what Telegram adds to it, such as entities and ids, is believed. What does not have the shape that is written
there raises LookupError, TypeError, ValueError or AttributeError.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bubbles.channels.contract import Attachment, Incoming, RefusedError
from bubbles.channels.markup import is_mentioned
from bubbles.channels.telegram.enclosed import NO_BRACKETS, Fetch, attachments, told

Json = Mapping[str, Any]

BUTTON = re.compile(r"(approve|deny):([a-z0-9]{4,8})")
"""Of an approval card, as it goes out and as it must come back."""
GROUPS = frozenset({"group", "supergroup"})
MAX_NAME = 128
SET_IN = "  "
"""Before each line of somebody else: none of it looks like a line of the program, or of who passes it on."""

_CHAT = re.compile(r"(-?[0-9]{1,20})(?:/([0-9]{1,20}))?")
_COMMAND = re.compile(r"/[^@\s]+@(\S+)")
_SOMEBODY = "<@0>"
_AFTER_OWN_NAME = re.compile(r"^[,:]?\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    id: str
    username: str
    """As Telegram writes it; any letter case means the same."""
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Somebody who was met in a group."""

    id: str
    name: str
    username: str = ""


def chat_of(message: Json) -> str:
    """A topic of a group that has topics is a chat; the thread of replies in another group is none."""
    chat = str(int(message["chat"]["id"]))
    return f"{chat}/{int(message['message_thread_id'])}" if message.get("is_topic_message") else chat


def place(chat_id: str) -> tuple[int, int | None]:
    """The chat and the topic that ``chat_id`` means. Raises RefusedError."""
    found = _CHAT.fullmatch(chat_id)
    if found is None:
        raise RefusedError("there is no such chat in Telegram: its id is a number, and /NUMBER after it is a topic")
    return int(found[1]), int(found[2]) if found[2] else None


def is_group(message: Json) -> bool:
    return str(message["chat"]["type"]) != "private"


def author(message: Json) -> Seen | None:
    """Who wrote it; None for who is not answered: bots, and what a linked channel puts into its group.

    Whoever writes in the name of a chat (an administrator without a name, a channel) is that chat. Telegram puts a bot
    in its place in ``from``.
    """
    if message.get("is_automatic_forward"):
        return None
    chat = message.get("sender_chat")
    if chat is not None:
        return Seen(id=str(int(chat["id"])), name=_short(chat.get("title", "")))
    return person(message["from"]) if "from" in message else None


def person(user: Json) -> Seen | None:
    if user.get("is_bot"):
        return None
    name = _short(f"{user.get('first_name', '')} {user.get('last_name', '')}")
    return Seen(id=str(int(user["id"])), name=name, username=str(user.get("username", "")))


def met(message: Json) -> Iterator[Seen]:
    """Everybody whom a message of a group tells about."""
    users = [entity["user"] for entity in _entities(message) if "user" in entity]
    for user in [*users, *message.get("new_chat_members", ())]:
        if (somebody := person(user)) is not None:
            yield somebody
    if (writer := author(message)) is not None:
        yield writer


def album_of(update: Json) -> tuple[str, str] | None:
    """What the parts of an album have in common."""
    message = update.get("message")
    return (
        None
        if message is None or "media_group_id" not in message
        else (chat_of(message), str(message["media_group_id"]))
    )


def message(parts: Sequence[Json], me: Me, usernames: Mapping[str, str], fetch: Fetch) -> Incoming | None:
    """A message, or the parts of an album. None: nothing that concerns us.

    ``usernames``: ids of people by their names of that kind, in lower case.
    """
    first = parts[0]
    writer = author(first)
    if writer is None or first["chat"]["type"] not in GROUPS | {"private"}:
        return None
    read = [_Text(part, me, usernames) for part in parts]
    answered = _answered(first)
    addressed = not is_group(first) or any(text.addressed for text in read) or _is_ours(answered, me)
    if any(text.for_another_bot for text in read) and not (is_group(first) and addressed):
        return None
    lines = [line for part, text in zip(parts, read, strict=True) for line in (text.text, told(part)) if line]
    files: list[Attachment] = [file for part in parts for file in attachments(part, fetch)]
    if not lines and not files and not any(text.addressed for text in read):
        return None
    if whose := list(_of_others(first)):
        lines = [*whose, *(f"{SET_IN}{row}".rstrip() for line in lines for row in line.splitlines())]
    return Incoming(
        chat_id=chat_of(first),
        message_id=str(int(first["message_id"])),
        sender=writer.id,
        name=writer.name,
        text="\n".join(lines),
        is_group=is_group(first),
        addressed=addressed,
        reply_to=_replied_to(first),
        attachments=tuple(files),
    )


def press(query: Json) -> Incoming | None:
    """A button of ours that was pressed. None: its data is not ours, whoever sent it."""
    meant = BUTTON.fullmatch(str(query.get("data", "")))
    card = query.get("message")
    if meant is None or card is None or (presser := person(query["from"])) is None:
        return None
    return Incoming(
        chat_id=chat_of(card),
        message_id=str(query["id"]),
        sender=presser.id,
        name=presser.name,
        text=f"/{meant[1]} {meant[2]}",
        is_group=is_group(card),
        reply_to=str(int(card["message_id"])),
        press=True,
    )


class _Text:
    """Text or caption, with mentions as ``<@id>``."""

    def __init__(self, part: Json, me: Me, usernames: Mapping[str, str]) -> None:
        self._me = me
        self._own = f"<@{me.id}>"
        self._usernames = usernames
        self._units = str(part.get("text") or part.get("caption") or "").encode("utf-16-le", "surrogatepass")
        self.addressed = False
        self.for_another_bot = False
        self.text = self._read(sorted(_entities(part), key=lambda entity: int(entity["offset"])))

    def _read(self, entities: Sequence[Json]) -> str:
        pieces: list[str] = []
        untagged: list[str] = []
        at = 0
        for entity in entities:
            start, end = int(entity["offset"]), int(entity["offset"]) + int(entity["length"])
            if start < at or entity["type"] not in ("mention", "text_mention", "bot_command"):
                continue
            pieces.append(self._cut(at, start))
            first = not "".join(pieces).replace(self._own, "").strip()
            pieces.append(self._meant(entity, self._cut(start, end), first=first))
            untagged += [pieces[-2], _SOMEBODY]
            self.addressed |= pieces[-1] == self._own
            at = end
        pieces.append(self._cut(at, len(self._units)))
        # Whom a tag means, Telegram says; a name without one is looked for here (B104).
        self.addressed |= is_mentioned("".join([*untagged, pieces[-1]]), (self._me.username, self._me.name))
        while len(pieces) > 1 and pieces[0].strip() in ("", self._own):
            if pieces.pop(0) == self._own:
                pieces[0] = _AFTER_OWN_NAME.sub("", pieces[0])
        return "".join(pieces).strip()

    def _cut(self, start: int, end: int) -> str:
        return self._units[2 * start : 2 * end].decode("utf-16-le", "replace")

    def _meant(self, entity: Json, text: str, *, first: bool) -> str:
        if entity["type"] == "text_mention":
            return f"<@{int(entity['user']['id'])}>"
        if entity["type"] == "mention":
            name = text.removeprefix("@").lower()
            ident = self._me.id if name == self._me.username.lower() else self._usernames.get(name)
            return text if ident is None else f"<@{ident}>"
        command = _COMMAND.fullmatch(text)
        if command is None or not first:
            return text
        if command[1].lower() != self._me.username.lower():
            self.for_another_bot = True
            return text
        self.addressed = True
        return text.partition("@")[0]


def _entities(part: Json) -> list[Json]:
    return [*part.get("entities", ()), *part.get("caption_entities", ())]


def _answered(part: Json) -> Json | None:
    """The message that it replies to. All that is written in a topic "replies" to the message that began it."""
    reply: Json | None = part.get("reply_to_message")
    return None if reply is None or "forum_topic_created" in reply else reply


def _replied_to(part: Json) -> str | None:
    """A message of another chat, or a story, is none that is known here."""
    if (reply := _answered(part)) is not None:
        return str(int(reply["message_id"]))
    return "elsewhere" if part.keys() & {"external_reply", "reply_to_story"} else None


def _is_ours(reply: Json | None, me: Me) -> bool:
    return reply is not None and str(reply.get("from", {}).get("id")) == me.id


def _of_others(part: Json) -> Iterator[str]:
    """Whose words these are, if not the sender's: then they are no answer and no command, whatever they say."""
    if (origin := part.get("forward_origin")) is not None:
        yield f"[forwarded from {_forwarded(origin)}]"
    elif "forward_date" in part:  # a Bot API server of before 2024
        yield "[forwarded]"
    if (bot := part.get("via_bot")) is not None:
        yield f"[text of the bot {_short(bot.get('username', '')) or 'without a name'}]"


def _forwarded(origin: Json) -> str:
    user, chat = origin.get("sender_user"), origin.get("sender_chat") or origin.get("chat")
    if user is not None:
        return _short(f"{user.get('first_name', '')} {user.get('last_name', '')}")
    return _short((chat or {}).get("title", "") or origin.get("sender_user_name", "")) or "somebody"


def _short(name: object) -> str:
    """On one line, and not with what ends a line of the program."""
    return " ".join(str(name).translate(NO_BRACKETS).split())[:MAX_NAME]
