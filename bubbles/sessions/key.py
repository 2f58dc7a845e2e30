"""What a session is called: one key for each conversation, and for no other (SESS-02).

A key is a file name of at most 100 bytes out of ``a-z 0-9 - _ .``, so it means the same on a file system that does not
tell ``A`` from ``a`` or normalises Unicode. It begins with a letter, a digit or ``_``. A part of it is written so:

* ``a-z``, ``0-9`` and ``-`` stand for themselves, ``-`` not at the beginning
* ``__`` is ``_``; any other byte of the UTF-8 is ``_`` and two hexadecimal digits, so ``A`` is ``_41``
* ``_`` alone is nothing at all
* what would be too long is cut, and ends in ``_h`` and 32 hexadecimal digits of its SHA-256

A plain name of the command line is one part; ``channel.chat`` and ``person.name`` are two.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Literal

from bubbles.bus import InboundMessage, Trigger
from bubbles.sessions.contract import SessionError

Mode = Literal["channel", "user", "global"]
"""``channels.session_mode``."""

GLOBAL = "global"
"""Of all conversations, in the mode of this name. The command line's session ``global`` is this one."""
PERSON = "person"

NAME_BYTES = 100
CHANNEL_BYTES = 40
ID_BYTES = NAME_BYTES - CHANNEL_BYTES - 1
_DIGEST = 32
_CUT = "_h"
_LONGEST_TOKEN = len("_00")
_ESCAPED_PERSON = "_70erson"
"""A channel of that name, which there is not."""
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-")
_TOKEN = re.compile(r"[a-z0-9-]|__|_[0-9a-f]{2}")
_SHORT = re.compile(r"(?:[a-z0-9-]|__|_[0-9a-f]{2})+")
_LONG = re.compile(rf"((?:[a-z0-9-]|__|_[0-9a-f]{{2}})+){_CUT}([0-9a-f]{{{_DIGEST}}})")


def cli_key(name: str) -> str:
    """Of a plain name of the command line. SessionError if it is empty."""
    if not name:
        raise SessionError("A session needs a name: give one such as work.")
    return _encoded(name, NAME_BYTES)


def chat_key(channel: str, chat_id: str) -> str:
    """Of a chat, or of a person whom one channel knows."""
    first = _encoded(channel, CHANNEL_BYTES)
    return f"{_ESCAPED_PERSON if first == PERSON else first}.{_encoded(chat_id, ID_BYTES)}"


def person_key(name: str) -> str:
    """Of a person of ``channels.identities``."""
    return f"{PERSON}.{_encoded(name, ID_BYTES)}"


def key_of(message: InboundMessage, mode: Mode, identities: Mapping[str, Iterable[str]]) -> str:
    """The session that a message belongs to.

    ``identities``: name → ``channel:id`` by which channels know that person. Who is in no entry is a person of their
    own. A job speaks for nobody: in mode ``user``, it goes to the person whose chat it writes to.
    """
    if message.session_key is not None:
        return message.session_key
    if mode == "global":
        return GLOBAL
    address = message.address
    if mode == "channel":
        return chat_key(address.channel, address.chat_id)
    who = message.sender if message.trigger in (Trigger.USER, Trigger.BYSTANDER) else address.chat_id
    known_as = f"{address.channel}:{who}"
    name = next((name for name, ids in identities.items() if known_as in ids), None)
    return chat_key(address.channel, who) if name is None else person_key(name)


def named(text: str) -> str:
    """The key that a person means by ``-s TEXT``: a plain name, or a whole key such as ``telegram.12345``.

    SessionError for what has a ``.`` and is no key.
    """
    if "." not in text:
        return cli_key(text)
    if is_key(text):
        return text
    raise SessionError(
        f"There is no session {text[:80]!r}: a plain name has no '.'; a chat's is channel.id, "
        "as `bubbles status` and the folder's name show it."
    )


def is_key(text: str) -> bool:
    """Whether some name, chat or person has exactly this key."""
    first, dot, second = text.partition(".")
    if not dot:
        return _canonical(first, NAME_BYTES)
    return (first == _ESCAPED_PERSON or _canonical(first, CHANNEL_BYTES)) and _canonical(second, ID_BYTES)


def display(key: str) -> str:
    """The key as a person would write its parts. Not unique, and fit for one line of a terminal."""
    text = ".".join(map(_shown, key.split(".")))
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _encoded(text: str, max_bytes: int) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    whole = "".join(_tokens(raw[: max_bytes + 1])) or "_"
    if len(whole) <= max_bytes:
        return whole
    head = ""
    for token in _tokens(raw[:max_bytes]):
        if len(head) + len(token) > max_bytes - len(_CUT) - _DIGEST:
            break  # between two tokens, so that the mark behind them cannot be read as part of one
        head += token
    return f"{head}{_CUT}{hashlib.sha256(raw).hexdigest()[:_DIGEST]}"


def _tokens(raw: bytes) -> list[str]:
    return [_token(byte, first=place == 0) for place, byte in enumerate(raw)]


def _token(byte: int, *, first: bool) -> str:
    if byte == ord("_"):
        return "__"
    return chr(byte) if byte in _PLAIN and not (first and byte == ord("-")) else f"_{byte:02x}"


def _canonical(part: str, max_bytes: int) -> bool:
    if part == "_":
        return True
    if len(part) > max_bytes or not part.isascii():
        return False
    if (cut := _LONG.fullmatch(part)) is not None:
        return max_bytes - len(part) < _LONGEST_TOKEN and "".join(_tokens(_raw(cut[1]))) == cut[1]
    return _SHORT.fullmatch(part) is not None and "".join(_tokens(_raw(part))) == part and _is_text(_raw(part))


def _raw(part: str) -> bytes:
    return bytes(map(_byte, _TOKEN.findall(part)))


def _byte(token: str) -> int:
    if len(token) == 1:
        return ord(token)
    return ord("_") if token == "__" else int(token[1:], 16)


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _shown(part: str) -> str:
    cut = _LONG.fullmatch(part)
    text = _raw(part if cut is None else cut[1]).decode("utf-8", "ignore" if cut else "replace")
    return text if cut is None else f"{text}…"
