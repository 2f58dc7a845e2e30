"""What the ledger asks of its tables. All of it blocks; each function is the whole, or a part, of one transaction."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bubbles.bus import Address, InboundMessage
from bubbles.channels.contract import Piece
from bubbles.gateway.keeping import codec
from bubbles.gateway.keeping.codec import column

if TYPE_CHECKING:
    from sqlite3 import Connection

MAX_SETTLED = 2_000
"""Messages of a channel that are dealt with and still known, so that they are not taken a second time."""
MAX_CHATS = 10_000

SCHEMA = """
CREATE TABLE about (epoch TEXT NOT NULL);
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL, chat TEXT NOT NULL, message_id TEXT NOT NULL,
    taken_at REAL NOT NULL, tries INTEGER NOT NULL DEFAULT 0, body TEXT
);
CREATE UNIQUE INDEX known ON messages (channel, chat, message_id) WHERE message_id <> '';
CREATE INDEX settled ON messages (channel, seq) WHERE body IS NULL;
CREATE INDEX waiting ON messages (seq) WHERE body IS NOT NULL;
CREATE TABLE parcels (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL, body TEXT NOT NULL, sending INTEGER NOT NULL DEFAULT 0, put_at REAL NOT NULL
);
CREATE TABLE chats (
    channel TEXT NOT NULL, chat TEXT NOT NULL, is_group INTEGER NOT NULL,
    sender TEXT NOT NULL, name TEXT NOT NULL, seen_at REAL NOT NULL, PRIMARY KEY (channel, chat)
) WITHOUT ROWID;
CREATE TABLE memory (
    channel TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (channel, key)
) WITHOUT ROWID
"""
"""A message that is dealt with has no body any more."""


class Chat(NamedTuple):
    """A chat that somebody who is let in has written in."""

    address: Address
    is_group: bool
    sender: str
    """Who wrote last, by the platform's id."""
    name: str
    """How that person is called: the platform's text, shown only."""
    seen_at: float
    """Seconds of the epoch."""


def epoch(db: Connection) -> str:
    """What no other ledger has: a ticket of one that was set aside means nothing to the one after it."""
    found = db.execute("SELECT epoch FROM about").fetchone()
    if found is None:
        found = (secrets.token_hex(4),)
        db.execute("INSERT INTO about VALUES (?)", found)
    return str(found[0])


def known(db: Connection, address: Address, message_id: str) -> bool:
    where = (column(address.channel), column(address.chat_id), column(message_id))
    # The last condition is what lets SQLite take the index.
    query = "SELECT 1 FROM messages WHERE channel = ? AND chat = ? AND message_id = ? AND message_id <> ''"
    return db.execute(query, where).fetchone() is not None


def take(db: Connection, message: InboundMessage, name: str, now: float) -> int | None:
    """None: it is known."""
    channel, chat = column(message.address.channel), column(message.address.chat_id)
    added = db.execute(
        "INSERT INTO messages (channel, chat, message_id, taken_at, body) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        (channel, chat, column(message.message_id), now, codec.inbound(message)),
    )
    if added.rowcount != 1 or added.lastrowid is None:
        return None
    db.execute(
        "INSERT OR REPLACE INTO chats VALUES (?, ?, ?, ?, ?, ?)",
        (channel, chat, message.is_group, column(message.sender), column(name), now),
    )
    return added.lastrowid


def begun(db: Connection, seq: int) -> None:
    db.execute("UPDATE messages SET tries = tries + 1 WHERE seq = ? AND body IS NOT NULL", (seq,))


def waiting(db: Connection) -> list[tuple[int, str, int, float]]:
    """Seq, body, tries, moment; oldest first."""
    return db.execute("SELECT seq, body, tries, taken_at FROM messages WHERE body IS NOT NULL ORDER BY seq").fetchall()


def settle(db: Connection, seqs: Iterable[int]) -> None:
    channels = set()
    for seq in seqs:
        found = db.execute("SELECT channel, message_id FROM messages WHERE seq = ? AND body IS NOT NULL", (seq,))
        for channel, message_id in found.fetchall():
            channels.add(channel)
            if message_id:
                db.execute("UPDATE messages SET body = NULL WHERE seq = ?", (seq,))
            else:  # nothing could know it again
                db.execute("DELETE FROM messages WHERE seq = ?", (seq,))
    for channel in channels:
        db.execute(
            "DELETE FROM messages WHERE body IS NULL AND channel = ?1 AND seq <= (SELECT seq FROM messages "
            "WHERE body IS NULL AND channel = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)",
            (channel, MAX_SETTLED),
        )


def put(db: Connection, pieces: Iterable[tuple[Address, Piece]], now: float) -> list[int]:
    ids = []
    for address, piece in pieces:
        added = db.execute(
            "INSERT INTO parcels (channel, body, put_at) VALUES (?, ?, ?)",
            (column(address.channel), codec.piece(piece), now),
        )
        ids.append(added.lastrowid or 0)
    return ids


def parcels(db: Connection) -> list[tuple[int, str, str, int, float]]:
    """Id, channel, body, whether it was being sent, moment; in the order in which they came."""
    return db.execute("SELECT id, channel, body, sending, put_at FROM parcels ORDER BY id").fetchall()


def mark(db: Connection, row: int, *, sending: bool) -> None:
    db.execute("UPDATE parcels SET sending = ? WHERE id = ?", (sending, row))


def remove(db: Connection, rows: Sequence[int]) -> None:
    db.executemany("DELETE FROM parcels WHERE id = ?", [(row,) for row in rows])


def expire(db: Connection, before: float) -> list[str]:
    """The channel of each that went."""
    gone = db.execute("SELECT channel FROM parcels WHERE put_at < ?", (before,)).fetchall()
    db.execute("DELETE FROM parcels WHERE put_at < ?", (before,))
    return [row[0] for row in gone]


def chats(db: Connection) -> list[Chat]:
    """Those longest unheard of are forgotten first, and come first."""
    db.execute(
        "DELETE FROM chats WHERE seen_at < (SELECT seen_at FROM chats ORDER BY seen_at DESC LIMIT 1 OFFSET ?)",
        (MAX_CHATS - 1,),
    )
    rows = db.execute("SELECT channel, chat, is_group, sender, name, seen_at FROM chats ORDER BY seen_at").fetchall()
    return [
        Chat(Address(channel=channel, chat_id=chat), bool(is_group), sender, name, seen_at)
        for channel, chat, is_group, sender, name, seen_at in rows
    ]


def load(db: Connection, channel: str, key: str) -> str | None:
    found = db.execute("SELECT value FROM memory WHERE channel = ? AND key = ?", (column(channel), column(key)))
    row = found.fetchone()
    return None if row is None else str(row[0])


def save(db: Connection, channel: str, key: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO memory VALUES (?, ?, ?)", (column(channel), column(key), column(value)))
