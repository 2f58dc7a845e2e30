"""Lines over real pipes, sockets and files: whole, bounded, and their ends seen."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bubbles.mcp.serving.lines import LinesIn, LinesOut, OverlongError
from bubbles.mcp.serving.wire import MAX_OPEN, MAX_OPEN_BYTES, Ledger

MOST = 1_000


@pytest.fixture(params=["pipe", "socket"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """To read from and to write to. Not blocking, for the tests' own sake: the code must do with either."""
    if request.param == "pipe":
        read, write = os.pipe()
    else:
        read, write = (one.detach() for one in socket.socketpair())
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    yield read, write
    for fd in (read, write):
        try:
            os.close(fd)
        except OSError:
            continue


class Heard:
    """That something has ended, how often."""

    def __init__(self) -> None:
        self.times = 0
        self.happened = asyncio.Event()

    def __call__(self) -> None:
        self.times += 1
        self.happened.set()


async def _all(lines: LinesIn) -> list[bytes | None]:
    """None for each that was too long."""
    found: list[bytes | None] = []
    while True:
        try:
            line = await lines.next()
        except OverlongError:
            found.append(None)
            continue
        if line is None:
            return found
        found.append(line)


async def _written(fd: int, data: bytes, size: int = 700) -> None:
    """In pieces, such that lines end anywhere in them."""
    out = LinesOut(fd, lambda: None)
    while data:
        piece, data = data[:size], data[size:]
        while True:
            try:
                os.write(fd, piece)
                break
            except BlockingIOError:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
    out.close()
    os.close(fd)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n\n", [b"", b""]),
        (b"one\ntwo\n", [b"one", b"two"]),
        (b"one\ntwo", [b"one", b"two"]),
        (b"x" * MOST + b"\ny\n", [b"x" * MOST, b"y"]),
        (b"x" * (MOST + 1) + b"\ny\n", [None, b"y"]),
        (b"x" * (MOST + 1), [None]),
        (b"x" * 50 * MOST + b"\ny\n" + b"z" * 50 * MOST + b"\nw", [None, b"y", None, b"w"]),
        (b"x" * 50 * MOST, [None]),
    ],
)
async def test_lines_come_whole_and_those_too_long_not_at_all(
    ends: tuple[int, int], data: bytes, lines: list[bytes | None]
) -> None:
    heard = Heard()
    reader = LinesIn(ends[0], heard, MOST)
    writing = asyncio.create_task(_written(ends[1], data))
    assert await _all(reader) == lines
    await writing
    assert heard.times == 1


async def test_any_lines_in_any_pieces(ends: tuple[int, int]) -> None:
    chance = random.Random(7)
    lines = [bytes([chance.randrange(11, 256)]) * chance.randrange(2 * MOST) for _ in range(200)]
    reader = LinesIn(ends[0], lambda: None, MOST)
    writing = asyncio.create_task(_written(ends[1], b"\n".join(lines), chance.randrange(1, 5_000)))
    found = await _all(reader)
    assert found == [line if len(line) <= MOST else None for line in lines if line or line is not lines[-1]]
    await writing


async def test_the_end_is_seen_while_nobody_asks_for_lines(ends: tuple[int, int]) -> None:
    heard = Heard()
    reader = LinesIn(ends[0], heard)
    await _written(ends[1], b"one\n" * 1_000)
    await asyncio.wait_for(heard.happened.wait(), 5)
    assert await reader.next() == b"one"


async def test_no_more_is_read_ahead_than_a_line_may_have(ends: tuple[int, int]) -> None:
    reader = LinesIn(ends[0], lambda: None, 100_000)
    sent = 0
    for _ in range(3):  # until the writer finds no room, whatever the loop does
        try:
            while sent < 1_000_000:
                sent += os.write(ends[1], b"x\n" * 2_000)
        except BlockingIOError:
            for _ in range(20):
                await asyncio.sleep(0)
    assert sent < 1_000_000
    reader.close()


async def test_a_line_goes_out_whole_though_its_sender_was_stopped(ends: tuple[int, int]) -> None:
    out = LinesOut(ends[1], lambda: None, roomy_bytes=1_000)
    reader = LinesIn(ends[0], lambda: None)
    long = b"x" * 3_000_000
    await out.send(long)
    stopped = asyncio.create_task(out.send(b"never"))
    await asyncio.sleep(0)
    stopped.cancel()
    assert await reader.next() == long
    await out.send(b"next")
    assert await reader.next() == b"next"
    out.close()
    reader.close()


async def test_senders_wait_for_a_slow_reader(ends: tuple[int, int]) -> None:
    out = LinesOut(ends[1], lambda: None, roomy_bytes=1_000)
    sending = [asyncio.create_task(out.send(b"x" * 500_000)) for _ in range(5)]
    for _ in range(50):
        await asyncio.sleep(0)
    assert sum(task.done() for task in sending) == 1
    reader = LinesIn(ends[0], lambda: None)
    for _ in sending:
        assert await reader.next() == b"x" * 500_000
    await asyncio.gather(*sending)
    await out.idle()
    out.close()
    reader.close()


async def test_a_reader_that_is_gone_is_noticed_by_who_waits(ends: tuple[int, int]) -> None:
    heard = Heard()
    out = LinesOut(ends[1], heard, roomy_bytes=1_000)
    await out.send(b"x" * 3_000_000)
    waiting = asyncio.create_task(out.send(b"y"))
    await asyncio.sleep(0)
    os.close(ends[0])
    with pytest.raises(BrokenPipeError):
        await waiting
    with pytest.raises(BrokenPipeError):
        await out.send(b"z")
    await out.idle()
    assert heard.times == 1


@pytest.mark.blocking  # files of the disk are
async def test_files_are_read_and_written_too(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"one\n" + b"x" * 200_000 + b"\nlast")
    source = os.open(tmp_path / "in", os.O_RDONLY)
    target = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    reader, out = LinesIn(source, lambda: None), LinesOut(target, lambda: None)
    for line in await _all(reader):
        assert line is not None
        await out.send(line)
    os.close(source)
    os.close(target)
    assert (tmp_path / "out").read_bytes() == b"one\n" + b"x" * 200_000 + b"\nlast\n"


async def test_the_ledger_is_full_by_number_or_by_size_and_empties() -> None:
    ledger = Ledger()
    for number in range(MAX_OPEN):
        assert not ledger.full
        ledger.opened(number, 1)
    assert ledger.full
    ledger.closed("unknown")
    assert ledger.full
    for number in range(MAX_OPEN):
        ledger.closed(number)
    await asyncio.wait_for(ledger.empty(), 1)
    ledger.opened(1, MAX_OPEN_BYTES)
    ledger.opened(1, 5)
    assert ledger.full
    ledger.closed(1)
    assert not ledger.full
    ledger.closed(1)
    ledger.closed(1)
    await asyncio.wait_for(ledger.empty(), 1)
