"""Files that come with messages: into data/received/ and nowhere else, however they are called and come."""

from __future__ import annotations

import asyncio
import os
import stat
import unicodedata
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.channels.contract import Attachment, ChannelError
from bubbles.channels.fake import attached
from bubbles.gateway import media
from bubbles.gateway.media import FOLDER, MAX_FILES, Fetched, Files, clear, folder, safe_name
from bubbles.sessions.session import Sessions

KEY = "fake.1"
DAY = "2026-03-01"
PLENTY = 1_000_000


class Desk:
    """A data directory with one session's desk."""

    def __init__(self, root: Path) -> None:
        self.data_dir = root / "home"
        self.sessions = Sessions(self.data_dir, skills=root / "none")
        self.path = self.data_dir / "sessions" / KEY

    def files(self, limit_s: float = 10.0, max_bytes: int = PLENTY) -> Files:
        return Files(
            self.data_dir, self.sessions, max_bytes, limit_s=limit_s, today=lambda: datetime(2026, 3, 1, tzinfo=UTC)
        )

    async def fetch(self, *attachments: Attachment, limit_s: float = 10.0, max_bytes: int = PLENTY) -> Fetched:
        return await self.files(limit_s, max_bytes).fetch(attachments, KEY, PLENTY)

    async def received(self) -> dict[str, bytes]:
        def look() -> dict[str, bytes]:
            place = self.path / FOLDER
            return {path.name: path.read_bytes() for path in place.iterdir()} if place.is_dir() else {}

        return await asyncio.to_thread(look)

    async def half_way(self) -> list[str]:
        place = folder(self.data_dir)
        return await asyncio.to_thread(lambda: os.listdir(place) if place.is_dir() else [])


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def coming(source: Callable[[], AsyncIterator[bytes]], name: str = "a.bin", size: int | None = None) -> Attachment:
    @asynccontextmanager
    async def fetch() -> AsyncIterator[AsyncIterator[bytes]]:
        yield source()

    return Attachment(name=name, size=size, fetch=fetch)


@pytest.mark.req("CHAN-05")
async def test_a_file_comes_into_the_sessions_data_and_the_model_is_told_where(desk: Desk) -> None:
    fetched = await desk.fetch(attached("Cat on a mat.PNG", b"12", b"345", mime="image/png"))
    assert fetched.lines == (f"[Attached: data/received/{DAY}-Cat-on-a-mat.PNG (image/png, 5 bytes)]",)
    assert await desk.received() == {f"{DAY}-Cat-on-a-mat.PNG": b"12345"}
    assert await desk.half_way() == []


@pytest.mark.req("CHAN-05", "SESS-09")
async def test_a_file_can_be_read_by_a_sandbox_of_another_user(desk: Desk) -> None:
    await desk.fetch(attached("a.txt", b"1"))
    place = desk.path / FOLDER
    assert stat.S_IMODE((await asyncio.to_thread(place.stat)).st_mode) == 0o755
    assert stat.S_IMODE((await asyncio.to_thread((place / f"{DAY}-a.txt").stat)).st_mode) == 0o644


async def test_two_files_of_one_name_are_both_kept(desk: Desk) -> None:
    fetched = await desk.fetch(attached("a.txt", b"first"), attached("a.txt", b"second"))
    assert len(set(fetched.names)) == 2
    assert sorted((await desk.received()).values()) == [b"first", b"second"]


async def test_what_is_no_kind_is_not_repeated_to_the_model(desk: Desk) -> None:
    fetched = await desk.fetch(attached("a.bin", b"1", mime="image/png)]\n[Attached: /etc/passwd (text/plain"))
    assert fetched.lines == (f"[Attached: data/received/{DAY}-a.bin (1 bytes)]",)


@pytest.mark.req("CHAN-05", "SESS-09")
@pytest.mark.parametrize("where", ["data", FOLDER])
async def test_a_link_in_the_place_of_the_directory_is_not_followed(desk: Desk, tmp_path: Path, where: str) -> None:
    def plant() -> Path:
        outside = tmp_path / "outside"
        outside.mkdir()
        place = desk.path / where
        if place.is_dir():
            place.rmdir()
        place.symlink_to(outside)
        return outside

    await desk.sessions.open(KEY)
    outside = await asyncio.to_thread(plant)
    fetched = await desk.fetch(attached("a.txt", b"secret"))
    assert fetched.lines == ("[Not attached: a.txt, since data/received does not take it.]",)
    assert (await asyncio.to_thread(os.listdir, outside), await desk.half_way()) == ([], [])


@pytest.mark.req("SESS-09")
async def test_what_is_planted_under_the_name_of_a_file_is_left_alone(desk: Desk, tmp_path: Path) -> None:
    def plant() -> Path:
        victim = tmp_path / "victim"
        victim.write_bytes(b"mine")
        place = desk.path / FOLDER
        place.mkdir()
        (place / f"{DAY}-a.txt").symlink_to(victim)
        return victim

    await desk.sessions.open(KEY)
    victim = await asyncio.to_thread(plant)
    fetched = await desk.fetch(attached("a.txt", b"new"))
    assert await asyncio.to_thread(victim.read_bytes) == b"mine"
    assert await asyncio.to_thread((desk.path / fetched.names[0]).read_bytes) == b"new"


@pytest.mark.req("CHAN-05")
async def test_a_file_that_lies_about_its_size_is_ended_at_the_limit(desk: Desk) -> None:
    seen = 0

    async def source() -> AsyncIterator[bytes]:
        nonlocal seen
        while True:
            seen += 1
            yield b"x" * 1000

    fetched = await desk.fetch(coming(source, size=10), max_bytes=5_000)
    assert fetched.lines == ("[Not attached: a.bin, since it is larger than 5,000 bytes.]",)
    assert (seen, await desk.received(), await desk.half_way()) == (6, {}, [])


async def test_the_platforms_own_limit_counts_if_it_is_lower(desk: Desk) -> None:
    fetched = await desk.files().fetch([attached("a.bin", b"123")], KEY, 2)
    assert fetched.lines == ("[Not attached: a.bin, since it is larger than 2 bytes.]",)
    assert (await desk.files(max_bytes=3).fetch([attached("a.bin", b"123")], KEY, 9)).names


async def test_what_says_that_it_is_too_large_is_not_fetched(desk: Desk) -> None:
    def never() -> AsyncIterator[bytes]:
        raise AssertionError("it was fetched")

    fetched = await desk.fetch(coming(never, size=PLENTY + 1))
    assert fetched.lines == ("[Not attached: a.bin, since it is larger than 1,000,000 bytes.]",)


@pytest.mark.req("CHAN-05")
@pytest.mark.parametrize("piece", [None, b"", b"x"], ids=["silent", "empty pieces", "drop by drop"])
async def test_a_file_that_never_ends_is_given_up_and_those_after_it_are_told_of(
    desk: Desk, piece: bytes | None
) -> None:
    async def source() -> AsyncIterator[bytes]:
        while True:
            if piece is None:
                await asyncio.sleep(100)
            yield piece or b""

    fetched = await desk.fetch(coming(source), attached("b.txt", b"1"), limit_s=0.1, max_bytes=10**9)
    assert fetched.lines == (
        "[Not attached: a.bin, since it had not come after 0.1 seconds.]",
        "[Not attached: b.txt, since it had not come after 0.1 seconds.]",
    )
    assert (await desk.received(), await desk.half_way()) == ({}, [])


@pytest.mark.parametrize(
    "error", [ChannelError("token-1 is wrong"), OSError("/secret/path"), TimeoutError(), KeyError(1)]
)
async def test_a_file_that_breaks_off_costs_a_sentence_and_not_the_others(desk: Desk, error: Exception) -> None:
    async def source() -> AsyncIterator[bytes]:
        yield b"half"
        raise error

    fetched = await desk.fetch(coming(source), attached("b.txt", b"whole"))
    assert fetched.lines[0] == "[Not attached: a.bin, since it could not be fetched.]"
    assert await desk.received() == {f"{DAY}-b.txt": b"whole"}
    assert await desk.half_way() == []


async def test_only_so_many_files_of_one_message_are_fetched(desk: Desk) -> None:
    fetched = await desk.fetch(*[attached(f"{number}.txt", b"1") for number in range(MAX_FILES + 3)])
    assert len(await desk.received()) == MAX_FILES
    assert fetched.lines[-1] == "[3 more not attached, since 20 files come with one message at most.]"


async def test_nothing_is_left_when_a_channel_is_stopped_while_its_files_come(desk: Desk) -> None:
    begun = asyncio.Event()

    async def source() -> AsyncIterator[bytes]:
        yield b"half"
        begun.set()
        await asyncio.sleep(100)

    task = asyncio.get_running_loop().create_task(desk.fetch(attached("first.txt", b"whole"), coming(source)))
    await begun.wait()
    assert len(await desk.received()) == 1
    assert len(await desk.half_way()) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await desk.received(), await desk.half_way()) == ({}, [])


async def test_what_a_killed_process_left_is_removed_at_the_start(desk: Desk) -> None:
    def leave() -> None:
        clear(desk.data_dir)  # nothing is there yet
        folder(desk.data_dir).mkdir(parents=True)
        (folder(desk.data_dir) / "0123").write_bytes(b"half")
        clear(desk.data_dir)

    await asyncio.to_thread(leave)
    assert await desk.half_way() == []


async def test_a_large_file_is_the_same_when_it_is_there(desk: Desk) -> None:
    parts = [bytes([number % 251]) * 10_007 for number in range(90)]
    fetched = await desk.fetch(attached("a.bin", *parts))
    assert await asyncio.to_thread((desk.path / fetched.names[0]).read_bytes) == b"".join(parts)


async def test_what_comes_is_nobody_elses_to_read(desk: Desk) -> None:
    modes = []

    async def source() -> AsyncIterator[bytes]:
        yield b"1"
        place = folder(desk.data_dir)
        paths = [place, *await asyncio.to_thread(lambda: list(place.iterdir()))]
        modes.extend([stat.S_IMODE((await asyncio.to_thread(path.stat)).st_mode) for path in paths])

    await desk.fetch(coming(source))
    assert modes == [0o700, 0o600]


@pytest.mark.req("CHAN-05")
@pytest.mark.parametrize(
    ("name", "mime", "safe"),
    [
        ("../../evil ü.png", "", "evil-ü.png"),
        ("..\\..\\evil.png", "", "evil.png"),
        ("/etc/passwd", "", "passwd"),
        ("a\nb\r\x00c.txt", "", "a-b-c.txt"),
        ("photo\u202egnp.exe", "", "photo-gnp.exe"),
        (".bashrc", "", "bashrc"),
        ("...", "", "file"),
        ("", "image/jpeg", "file.jpg"),
        ("/", "", "file"),
        ("-rf", "", "rf"),
        ("--help.txt", "", "help.txt"),
        ("voice", "audio/ogg", "voice.ogg"),
        ("a.tar.gz", "", "a.tar.gz"),
        ("a..b.c", "", "a-b.c"),
        ("$(reboot)`id`;&|<>.sh", "", "reboot-id.sh"),
        ("a.b c", "", "a.b-c"),
        ("报告 (最终).pdf", "", "报告-最终.pdf"),
        ("e\u0301te\u0301.txt", "", "été.txt"),
        ("हिन्दी.txt", "", "हिन्दी.txt"),
        ("a\u034fb\u3164c\ufe0f.txt", "", "a-b-c.txt"),
        ("\ud800x.txt", "", "x.txt"),
        ("notes.txt ", "", "notes.txt"),
        ("notes.", "", "notes"),
    ],
)
def test_a_name_of_anybodys_choice_becomes_a_harmless_one(name: str, mime: str, safe: str) -> None:
    assert safe_name(name, mime) == safe


@pytest.mark.parametrize("name", ["x" * 4_000 + ".png", "ü" * 4_000 + ".png", "😀é" * 2_000 + ".png"])
def test_a_long_name_is_cut_between_letters_and_keeps_its_ending(name: str) -> None:
    safe = safe_name(name, before=f"{DAY}-", mark="-abcdef")
    assert len(safe.encode()) <= media.MAX_NAME_BYTES
    assert safe.startswith(f"{DAY}-")
    assert safe.endswith("-abcdef.png")


@settings(max_examples=300)
@given(st.text(), st.sampled_from(["", "image/png", "x"]))
def test_no_name_leaves_its_directory_hides_or_holds_what_is_not_seen(name: str, mime: str) -> None:
    safe = safe_name(name, mime, before=f"{DAY}-")
    assert 0 < len(safe.encode()) <= media.MAX_NAME_BYTES
    assert safe.isprintable()
    assert not set(safe) & set("/\\:*?\"'<>|` $&;()[]{}!#~%\0")
    assert safe_name(name, mime)[0] not in "-."
    assert safe[-1] not in ". "
    assert all(unicodedata.category(each)[0] in "LNMP" for each in safe)
