"""Much output, odd output, input that nobody reads, limits that are reached: the session goes on (SBX-06)."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sandbox_backends.contract import MAX_LIST_ENTRIES, ExecRequest, Limits, Outcome, SandboxSession, StreamName
from sandbox_backends.errors import FileError, InvalidRequestError, SandboxLostError
from sandbox_backends.link import Link
from sandbox_backends.runner import wire
from tests.places import HARD, REAL, Bench, make_bench
from tests.processes import comes_true, marked, named, runner_of

MIB = 1 << 20
FLOOD = 400_000_000
TRUE = ExecRequest(argv=("true",), timeout_s=5)

every_place = pytest.mark.parametrize("name", REAL)
both_kinds = pytest.mark.parametrize("name", [param for param in REAL if param.id in ("bubblewrap", "local")])
"""Where the runner is the first process of its namespace, and where it is one among others."""
pytestmark = pytest.mark.req("SBX-06")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    yield made
    made.owner.close()


def sh(script: str, timeout_s: float = 10.0, **more: object) -> ExecRequest:
    return ExecRequest(argv=("/bin/bash", "--norc", "-c", script), timeout_s=timeout_s, **more)  # type: ignore[arg-type]


# -- output --


@every_place
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "kept"])
async def test_flood_of_400_mb_is_counted_and_costs_the_controller_no_memory(
    bench: Bench, name: str, streamed: bool
) -> None:
    seen, peak = 0, 0
    me = psutil.Process()

    def on_output(stream: StreamName, data: bytes) -> None:
        nonlocal seen, peak
        seen += len(data)
        if seen % 64 == 0:
            peak = max(peak, me.memory_info().rss)

    request = ExecRequest(argv=("head", "-c", str(FLOOD), "/dev/zero"), timeout_s=19, max_output_bytes=100_000)
    async with bench.open(name) as session:
        await session.exec(sh("head -c 8000000 /dev/zero"), on_output=on_output)  # buffers have their size
        before = peak = me.memory_info().rss
        seen = 0
        result = await session.exec(request, on_output=on_output if streamed else None)
        peak = max(peak, me.memory_info().rss)
        assert result.ok
        assert (len(result.stdout), result.dropped_bytes) == (100_000, FLOOD - 100_000)
        assert seen == (FLOOD if streamed else 0)
        assert peak - before <= 8 * MIB
        assert FLOOD / MIB / result.duration_s >= 40
        assert (await session.exec(TRUE)).ok


@every_place
async def test_binary_output_of_both_streams_arrives_byte_for_byte(bench: Bench, name: str) -> None:
    data = random.Random(4).randbytes(3 * MIB) + bytes(range(256)) + b"\r\n\0\xff\xfe"
    (bench.project / "data").write_bytes(data)
    got = {"stdout": bytearray(), "stderr": bytearray()}
    async with bench.open(name) as session:
        request = sh("cat data & rev=$(cat data >&2); wait", max_output_bytes=8 * MIB)
        kept = await session.exec(request)
        streamed = await session.exec(request, on_output=lambda stream, piece: got[stream].extend(piece))
    assert kept.stdout == kept.stderr == data
    assert streamed.stdout == streamed.stderr == data
    assert got == {"stdout": data, "stderr": data}
    assert (kept.dropped_bytes, streamed.dropped_bytes) == (0, 0)


NUMBERED = "import sys, struct\nfor n in range(768): sys.stdout.buffer.write(struct.pack('!I', n) * 2**14)"
"""48 MiB, every word of which says where it belongs."""


@pytest.mark.blocking  # the point of it: what takes the output stands still
@both_kinds
async def test_output_waits_for_a_reader_that_stands_still_and_fills_no_memory(bench: Bench, name: str) -> None:
    """The command stops at its full pipe; nothing piles up in the runner, and nothing is lost."""
    digest, stalls = hashlib.sha256(), 0

    def on_output(stream: StreamName, data: bytes) -> None:
        nonlocal stalls
        digest.update(data)
        if stalls < 2:
            stalls += 1
            time.sleep(0.4)

    async with bench.open(name) as session:
        runner = runner_of(name, session)
        peak = before = runner.memory_info().rss
        request = ExecRequest(argv=("python3", "-c", NUMBERED), timeout_s=15)
        task = asyncio.create_task(session.exec(request, on_output=on_output))
        while not task.done():
            await asyncio.wait({task}, timeout=0.02)
            peak = max(peak, runner.memory_info().rss)
        assert (await task).ok
    assert stalls == 2
    assert digest.digest() == hashlib.sha256(b"".join(n.to_bytes(4, "big") * 2**14 for n in range(768))).digest()
    assert peak - before <= 24 * MIB


@both_kinds
async def test_callback_that_fails_ends_its_own_command_only(bench: Bench, name: str) -> None:
    def fail(stream: StreamName, data: bytes) -> None:
        raise ZeroDivisionError

    async with bench.open(name) as session:
        other = asyncio.create_task(session.exec(sh("sleep 0.5; echo other")))
        with pytest.raises(ZeroDivisionError):
            await session.exec(sh("yes"), on_output=fail)
        assert (await other).stdout == b"other\n"
        assert await comes_true(lambda: not named(marked(session.id), "yes"))


# -- input --


@both_kinds
async def test_input_that_is_not_read_hangs_nothing(bench: Bench, name: str) -> None:
    data = bytes(20 * MIB)
    async with bench.open(name) as session:
        for script, outcome in (("exec 0<&-; sleep 0.2; echo done", Outcome.EXITED), ("sleep 9", Outcome.TIMED_OUT)):
            result = await session.exec(sh(script, 1.0, stdin=data))
            assert result.outcome is outcome
            assert result.duration_s < 3
        assert (await session.exec(sh("head -c 3", stdin=b"abcdef" * MIB))).stdout == b"abc"
        assert (await session.exec(sh("cat | wc -c", stdin=data))).stdout.strip() == str(len(data)).encode()


@both_kinds
async def test_input_for_a_command_that_has_ended_already_costs_nothing(bench: Bench, name: str) -> None:
    """Or that never began: the input is on its way while the answer comes back."""
    async with bench.open(name) as session:
        for _ in range(100):
            assert (await session.exec(ExecRequest(argv=("true",), stdin=b"x" * 300_000, timeout_s=5))).ok
            missing = ExecRequest(argv=("no-such-program",), stdin=b"x" * 300_000, timeout_s=5)
            assert (await session.exec(missing)).exit_code == 127
            with pytest.raises(FileError):
                await session.exec(ExecRequest(argv=("cat",), stdin=b"x" * 300_000, cwd="missing", timeout_s=5))
            process = await session.start(ExecRequest(argv=("true",), timeout_s=5))
            with pytest.raises(FileError):
                await process.write(b"x" * 3_000_000)
        assert session.lost is None


@every_place
async def test_commands_have_no_input_of_the_controller_s(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        result = await session.exec(sh("readlink /proc/self/fd/0; exec 0<&- 1>&-; cat; echo $? >&2"))
        assert result.stdout == b"/dev/null\n"
        assert result.stderr.endswith(b"1\n")
        background = await session.start(sh("exec 0<&-; exec sleep 1000", timeout_s=100))
        await background.signal(9)
        assert (await background.wait(5)) is not None


@both_kinds
async def test_background_process_gets_its_first_input_in_order_and_may_ignore_it(bench: Bench, name: str) -> None:
    data = random.Random(5).randbytes(400_000)
    async with bench.open(name) as session:
        async with asyncio.timeout(5):
            deaf = await session.start(ExecRequest(argv=("sleep", "1000"), stdin=bytes(MIB), timeout_s=100))
            gone = await session.start(ExecRequest(argv=("true",), stdin=bytes(MIB), timeout_s=100))
            digest = await session.start(ExecRequest(argv=("sha256sum",), stdin=data, timeout_s=100))
            await digest.write(b"more")
            await digest.write(b"", eof=True)
            assert (await gone.wait()) is not None
            assert (await digest.wait()) is not None
            assert digest.poll().data.startswith(hashlib.sha256(data + b"more").hexdigest().encode())
            await deaf.signal(9)
            assert (await deaf.wait()) is not None


@both_kinds
async def test_background_process_that_cannot_begin_is_an_error_at_once(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        for cwd in ("..", "missing", "/"):
            with pytest.raises(FileError):
                await session.start(ExecRequest(argv=("true",), cwd=cwd, timeout_s=5))
        missing = await session.start(ExecRequest(argv=("no-such-program",), timeout_s=5))
        result = await missing.wait(5)
        assert result is not None
        assert result.exit_code == 127


async def test_stream_that_takes_nothing_any_more_is_a_lost_sandbox() -> None:
    """A runner that is stopped while a large file is on its way to it."""
    ours, theirs = socket.socketpair()
    link = await Link.connect(ours)
    call = link.begin(wire.WRITE, {"path": "x", "mode": None, "eof": False}, b"")

    async def send_much() -> None:
        for _ in range(100):
            await link.send(wire.DATA, call, {"eof": False}, bytes(wire.CHUNK), within_s=0.2)

    with pytest.raises(SandboxLostError, match="did not answer"):
        await send_much()
    assert link.lost
    await link.closed.wait()
    theirs.close()


# -- requests --

ODD: dict[str, dict[str, Any]] = {
    "half a character": {"argv": ("echo", "\ud800")},
    "half a character in cwd": {"argv": ("pwd",), "cwd": "\ud800"},
    "a list for cwd": {"argv": ("pwd",), "cwd": ["../secret"]},
    "a number in argv": {"argv": ("echo", 3)},
    "a variable without a name": {"argv": ("env",), "env": {"": "x"}},
    "a variable with = in its name": {"argv": ("env",), "env": {"A=B": "x"}},
    "a time limit of nothing": {"argv": ("true",), "timeout_s": 0},
    "a time limit in the past": {"argv": ("true",), "timeout_s": -1},
    "a time limit that is no number": {"argv": ("true",), "timeout_s": float("nan")},
    "more output than is kept": {"argv": ("true",), "max_output_bytes": 1 << 40},
    "five megabytes of arguments": {"argv": ("echo", *("x" * 1000,) * 5000)},
}


async def test_request_that_no_place_can_carry_out_is_refused_before_it_is_sent(bench: Bench) -> None:
    async with bench.open("local") as session:
        for what, fields in ODD.items():
            for begin in (session.exec, session.start):
                with pytest.raises(InvalidRequestError):
                    await begin(ExecRequest(**{"timeout_s": 5, **fields}))
                assert session.lost is None, what
        assert (await session.exec(TRUE)).ok


async def test_time_limit_may_be_further_off_than_the_kernel_counts(bench: Bench) -> None:
    async with bench.open("local") as session:
        for limit in (2**31 / 1000 + 1, 1e9, float("inf")):
            assert (await session.exec(sh("sleep 0.1", limit))).ok


async def test_directory_of_more_entries_than_one_listing_has_is_cut_and_says_so(bench: Bench) -> None:
    odd = b"\xff" * 240  # six characters each on the way
    for number in range(MAX_LIST_ENTRIES + 5):
        os.close(os.open(os.fsencode(bench.project) + b"/%05d" % number + odd, os.O_CREAT))
    async with bench.open("local") as session:
        listing = await session.list_dir()
        assert listing.truncated
        assert len(listing.entries) == MAX_LIST_ENTRIES
        assert os.fsencode(listing.entries[0].name)[5:] == odd


# -- what limits do --


@pytest.mark.parametrize("name", HARD)
@pytest.mark.req("SBX-04", "SBX-05")
async def test_fork_bomb_is_bounded_and_the_session_goes_on(bench: Bench, name: str) -> None:
    async with bench.open(name, bench.spec(limits=Limits(pids=64))) as session:
        result = await session.exec(sh("bomb() { bomb | bomb & }; bomb; sleep 5", 1.5))
        assert result.outcome in (Outcome.TIMED_OUT, Outcome.EXITED)
        await settled(session)
        assert (
            await session.exec(sh("for i in 1 2 3 4 5 6 7 8; do sleep 0.1 & done; wait; echo ok"))
        ).stdout == b"ok\n"


async def settled(session: SandboxSession) -> None:
    """What a fork bomb has detached is still dying, or still at it: another command ends it with its time limit."""
    for _ in range(20):
        result = await session.exec(sh("true"))
        if result.ok:
            return
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.needs("root")
async def test_memory_that_runs_out_is_told_and_the_session_goes_on(bench: Bench, name: str) -> None:
    if name == "local":
        pytest.skip("local has no limits")
    async with bench.open(name, bench.spec(limits=Limits(memory_bytes=96 * MIB, tmp_bytes=None))) as session:
        for _ in range(3):
            result = await session.exec(ExecRequest(argv=("python3", "-c", "len(b'x' * 2**30)"), timeout_s=10))
            assert (result.outcome, result.exit_code) == (Outcome.OOM, None)
            assert (await session.exec(sh("echo ok"))).stdout == b"ok\n"
        assert session.lost is None


@pytest.mark.parametrize("name", HARD)
async def test_temporary_directory_that_is_full_blocks_nothing(bench: Bench, name: str) -> None:
    async with bench.open(name, bench.spec(limits=Limits(tmp_bytes=MIB))) as session:
        result = await session.exec(sh("head -c 9000000 /dev/zero >/tmp/filler"))
        assert b"No space left" in result.stderr
        await session.write_file("file", b"x" * MIB)
        assert (await session.exec(sh("wc -c <file; echo x >/tmp/more || rm /tmp/filler; echo y >/tmp/more"))).ok
    assert (bench.project / "file").stat().st_size == MIB


@both_kinds
@pytest.mark.needs("root")  # nobody else may look at the runner's descriptors
async def test_nothing_piles_up_in_the_runner(bench: Bench, name: str) -> None:
    """Whatever goes wrong with a request, its pipes and files are closed and its children waited for."""

    async def trouble(session: SandboxSession) -> None:
        for path in ("missing", "..", "a\0b", "dir"):
            for begin in (session.read_file(path), session.write_file(f"{path}/", b""), session.write_file("dir", b"")):
                with pytest.raises(FileError):
                    await begin
        for argv in (("no-such-program",), ("./dir",), ("true",), ("sh", "-c", "kill -9 $$")):
            await session.exec(ExecRequest(argv=argv, timeout_s=5, stdin=b"x" * 300_000))
        await session.exec(sh("sleep 5 & sleep 5", 0.02))
        for begun in (session.exec(sh("sleep 5")), session.write_file("half", bytes(16 * MIB))):
            task = asyncio.create_task(begun)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
        process = await session.start(sh("cat", timeout_s=5))
        await process.write(b"x" * 300_000)
        await process.signal(9)
        await process.wait()

    async with bench.open(name) as session:
        await session.write_file("dir/file", b"")
        runner = await asyncio.to_thread(runner_of, name, session)
        await trouble(session)
        before = runner.num_fds()
        for _ in range(20):
            await trouble(session)
        assert await comes_true(lambda: runner.num_fds() <= before), (before, runner.open_files())
        assert await comes_true(lambda: runner.children() == [])
        calls = session._link._calls  # type: ignore[attr-defined]
        assert await comes_true(lambda: not calls), calls
    assert sorted(os.listdir(bench.project)) == ["dir"]


# -- reports about others --


@both_kinds
async def test_b001_b003_thirty_time_limits_leave_no_child_that_has_ended(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        script = "(while true; do echo x; sleep 0.01; done) & wait"
        began = time.monotonic()
        results = [await session.exec(sh(script, 0.05)) for _ in range(30)]
        assert time.monotonic() - began < 10
        assert {result.outcome for result in results} == {Outcome.TIMED_OUT}
        assert all(result.stdout.startswith(b"x\n") for result in results[5:])
        runner = runner_of(name, session)
        await asyncio.sleep(0.1)
        assert [one for one in runner.children(recursive=True) if one.status() == psutil.STATUS_ZOMBIE] == []
    zombies = [one for one in psutil.Process().children() if one.status() == psutil.STATUS_ZOMBIE]
    assert zombies == []


@both_kinds
async def test_b004_b014_what_a_command_leaves_is_neither_waited_for_nor_runs_on_past_its_limit(
    bench: Bench, name: str
) -> None:
    async with bench.open(name) as session:
        began = time.monotonic()
        tee = await session.exec(sh("exec > >(tee -a out.log) 2>&1; echo done"))
        assert tee.ok
        assert time.monotonic() - began < 2
        late = await session.exec(sh("sleep 1; touch late", 0.2))
        assert late.outcome is Outcome.TIMED_OUT
        await asyncio.sleep(1.2)
        listing = [entry.name for entry in (await session.list_dir()).entries]
        assert listing == ["out.log"]
        assert await comes_true(lambda: not named(marked(session.id), "tee"))
    assert (bench.project / "out.log").read_bytes() == b"done\n"


async def test_b007_time_limit_of_one_session_is_nothing_to_the_controller_or_another(bench: Bench) -> None:
    me = os.getpid(), os.getpgid(0), os.getsid(0)
    async with bench.open("local", bench.spec(session="a")) as a, bench.open("local", bench.spec(session="b")) as b:
        limited = asyncio.create_task(a.exec(sh("kill -TERM 0; trap '' TERM; kill -TERM 0; sleep 100", 0.5)))
        answers = [(await b.exec(sh("sleep 0.1; echo still here"))).stdout for _ in range(7)]
        assert (await limited).outcome in (Outcome.TIMED_OUT, Outcome.SIGNALED)
    assert set(answers) == {b"still here\n"}
    assert (os.getpid(), os.getpgid(0), os.getsid(0)) == me


@every_place
@pytest.mark.req("SEC-03")
async def test_b120_profile_files_bring_nothing_into_a_command(bench: Bench, name: str) -> None:
    home = bench.base / "person"
    bench.host_env = {**bench.host_env, "HOME": str(home), "LEAK": "canary", "BASH_ENV": f"{home}/.bash_profile"}
    persistent = bench.base / "data" / "session_homes" / "test"
    async with bench.open(name, bench.spec(home=persistent)) as session:
        files = ".bash_profile .bash_login .profile .bashrc .kshrc"
        planted = await session.exec(sh(f"cd && for f in {files}; do echo 'export LEAK=canary' >$f; done; ls -A"))
        assert planted.stdout.split() == sorted(files.encode().split())
        for shell in (("/bin/bash", "--noprofile", "--norc", "-c"), ("/bin/sh", "-c")):
            result = await session.exec(ExecRequest(argv=(*shell, "echo [$LEAK$BASH_ENV$ENV]"), timeout_s=5))
            assert result.stdout == b"[]\n"
