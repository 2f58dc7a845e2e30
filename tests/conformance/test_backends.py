"""The contract of a sandbox, as one suite over every backend and the fake (SBX-02)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from sandbox_backends.contract import (
    BackgroundProcess,
    ExecRequest,
    ExecResult,
    Limits,
    Outcome,
    Root,
    SandboxBackend,
    SandboxSpec,
    StreamName,
)
from sandbox_backends.errors import (
    FileError,
    InvalidRequestError,
    InvalidSpecError,
    SandboxError,
    SandboxLostError,
)
from tests.places import EVERY, HARD, REAL, Bench

every_place = pytest.mark.parametrize("name", EVERY)
real_place = pytest.mark.parametrize("name", REAL)
pytestmark = pytest.mark.req("SBX-02")


def sh(script: str, timeout_s: float = 10.0, **more: object) -> ExecRequest:
    return ExecRequest(argv=("/bin/sh", "-c", script), timeout_s=timeout_s, **more)  # type: ignore[arg-type]


@every_place
async def test_backend_meets_the_protocol_and_says_whether_it_is_usable(bench: Bench, name: str) -> None:
    backend = bench.backend(name)
    assert isinstance(backend, SandboxBackend)
    probe = await backend.probe()
    assert probe.usable, probe.reason


@every_place
async def test_command_gives_its_output_and_exit_status(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        result = await session.exec(ExecRequest(argv=("echo", "a b", "c"), timeout_s=10))
        assert (result.outcome, result.exit_code, result.stdout) == (Outcome.EXITED, 0, b"a b c\n")
        assert (await session.exec(ExecRequest(argv=("false",), timeout_s=10))).exit_code == 1


@every_place
async def test_missing_program_is_a_value_as_in_a_shell(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        result = await session.exec(ExecRequest(argv=("no-such-program-here",), timeout_s=10))
        assert (result.outcome, result.exit_code) == (Outcome.EXITED, 127)
        assert b"no-such-program-here" in result.stderr


@every_place
async def test_stdin_is_what_was_given_byte_for_byte(bench: Bench, name: str) -> None:
    data = bytes(range(256)) * 4096
    async with bench.open(name) as session:
        request = ExecRequest(argv=("cat",), stdin=data, timeout_s=10, max_output_bytes=len(data))
        assert (await session.exec(request)).stdout == data


@every_place
async def test_stdin_is_empty_when_none_is_given(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        assert (await session.exec(ExecRequest(argv=("cat",), timeout_s=10))).stdout == b""


@every_place
@pytest.mark.req("SBX-06")
async def test_time_limit_ends_the_command(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        result = await session.exec(ExecRequest(argv=("sleep", "60"), timeout_s=0.3))
        assert (result.outcome, result.exit_code) == (Outcome.TIMED_OUT, None)
        assert result.duration_s < 5


@every_place
@pytest.mark.req("TOOL-02", "SBX-06")
async def test_output_is_kept_head_and_tail_and_counted(bench: Bench, name: str) -> None:
    data = b"HEAD" + b"x" * 500_000 + b"TAIL"
    async with bench.open(name) as session:
        result = await session.exec(ExecRequest(argv=("cat",), stdin=data, timeout_s=10, max_output_bytes=1000))
    assert len(result.stdout) == 1000
    assert result.stdout.startswith(b"HEAD")
    assert result.stdout.endswith(b"TAIL")
    assert result.dropped_bytes == len(data) - 1000


@every_place
async def test_output_streams_in_order_when_asked_for(bench: Bench, name: str) -> None:
    data = bytes(range(256)) * 3000
    pieces: list[bytes] = []
    async with bench.open(name) as session:
        request = ExecRequest(argv=("cat",), stdin=data, timeout_s=10, max_output_bytes=100)
        result = await session.exec(request, on_output=lambda stream, piece: pieces.append(piece))
    assert b"".join(pieces) == data
    assert len(result.stdout) == 100
    assert result.dropped_bytes == len(data) - 100


@every_place
async def test_environment_is_exactly_what_the_request_says(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        request = ExecRequest(argv=("printenv",), env={"PATH": "/usr/bin:/bin", "A": "b=c d"}, timeout_s=10)
        lines = (await session.exec(request)).stdout.decode().splitlines()
    assert sorted(line for line in lines if not line.startswith("BUBBLES_XID=")) == ["A=b=c d", "PATH=/usr/bin:/bin"]


@every_place
async def test_spec_environment_reaches_commands_by_default(bench: Bench, name: str) -> None:
    async with bench.open(name, bench.spec(env={"FROM_SPEC": "yes"})) as session:
        assert session.env["FROM_SPEC"] == "yes"
        assert b"FROM_SPEC=yes\n" in (await session.exec(ExecRequest(argv=("printenv",), timeout_s=10))).stdout


@every_place
async def test_working_directory_is_the_root_at_its_own_path(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        await session.write_file("sub/file", b"")
        assert session.cwd == str(bench.project)
        for cwd, expected in ((None, ""), ("", ""), ("sub", "/sub"), (f"{bench.project}/sub", "/sub")):
            result = await session.exec(ExecRequest(argv=("pwd",), cwd=cwd, timeout_s=10))
            assert result.stdout.decode() == f"{bench.project}{expected}\n"


@every_place
@pytest.mark.req("DEC-13")
async def test_working_directory_outside_the_roots_is_refused(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        for cwd in ("..", "/", "sub/../..", f"{bench.project}-evil"):
            with pytest.raises(FileError):
                await session.exec(ExecRequest(argv=("pwd",), cwd=cwd, timeout_s=10))


@every_place
async def test_impossible_requests_are_refused_without_harm(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        for argv in ((), ("",), ("echo", "a\0b")):
            with pytest.raises(InvalidRequestError):
                await session.exec(ExecRequest(argv=argv, timeout_s=10))
        with pytest.raises(InvalidRequestError):
            await session.exec(ExecRequest(argv=("true",), timeout_s=None))
        assert (await session.exec(ExecRequest(argv=("true",), timeout_s=10))).ok


@every_place
@pytest.mark.req("TOOL-02")
async def test_background_process_is_polled_written_and_ended(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        process = await session.start(ExecRequest(argv=("cat",), timeout_s=None))
        await process.write(b"one\n")
        assert await process.wait(0.05) is None
        await process.write(b"two\n", eof=True)
        result = await process.wait(10)
        assert result is not None
        assert result.ok
        chunk = process.poll()
        assert chunk.data == b"one\ntwo\n"
        assert process.poll(chunk.next).data == b""
        assert chunk.result == result


@every_place
async def test_output_of_a_program_that_one_speaks_with_goes_to_whom_it_is_for(bench: Bench, name: str) -> None:
    heard = {"stdout": bytearray(), "stderr": bytearray()}

    def listen(stream: StreamName, data: bytes) -> None:
        heard[stream] += data

    async with bench.open(name) as session:
        process = await session.start(ExecRequest(argv=("cat",), timeout_s=None), on_output=listen)
        await process.write(b"one\n")
        await process.write(b"two\n", eof=True)
        result = await process.wait(10)
        assert result is not None
        assert result.ok
        assert (bytes(heard["stdout"]), bytes(heard["stderr"])) == (b"one\ntwo\n", b"")
        assert process.poll().data == b""

        heard["stdout"].clear()
        failing = await session.start(ExecRequest(argv=("no-such-program",), timeout_s=None), on_output=listen)
        assert await failing.wait(10) is not None
        assert heard["stdout"] == b""
        assert b"no-such-program" in heard["stderr"]


async def polled_to_its_end(process: BackgroundProcess) -> ExecResult:
    """By polling alone: nobody waits for the process."""
    async with asyncio.timeout(10):
        while (result := process.poll().result) is None:  # noqa: ASYNC110  # polling is what is tested
            await asyncio.sleep(0.01)
    return result


@every_place
@pytest.mark.req("TOOL-02")
async def test_end_of_a_background_process_is_seen_by_polling_alone(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        process = await session.start(ExecRequest(argv=("echo", "out"), timeout_s=None))
        result = await polled_to_its_end(process)
        assert result.ok
        assert (result.stdout, process.poll().data) == (b"", b"out\n")
        assert await process.wait(0) == result


@every_place
@pytest.mark.req("SBX-06")
async def test_time_limit_ends_a_background_process_that_nobody_waits_for(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        process = await session.start(ExecRequest(argv=("sleep", "60"), timeout_s=0.3))
        result = await polled_to_its_end(process)
        assert (result.outcome, result.exit_code) == (Outcome.TIMED_OUT, None)


@every_place
async def test_background_process_can_be_killed(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        process = await session.start(ExecRequest(argv=("sleep", "60"), timeout_s=None))
        await process.signal(signal.SIGKILL)
        result = await process.wait(10)
        assert result is not None
        assert (result.outcome, result.exit_code) == (Outcome.SIGNALED, -9)


@every_place
async def test_many_commands_at_once_get_their_own_answers(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        requests = [ExecRequest(argv=("echo", str(number)), timeout_s=10) for number in range(32)]
        results = await asyncio.gather(*map(session.exec, requests))
    assert [result.stdout for result in results] == [f"{number}\n".encode() for number in range(32)]


@every_place
async def test_cancelled_command_ends_and_the_session_goes_on(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        task = asyncio.create_task(session.exec(ExecRequest(argv=("sleep", "60"), timeout_s=100)))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await session.exec(ExecRequest(argv=("true",), timeout_s=10))).ok


@every_place
async def test_closed_session_says_so(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        assert not session.lost
    with pytest.raises(SandboxLostError):
        await session.exec(ExecRequest(argv=("true",), timeout_s=10))
    assert session.lost
    with pytest.raises(SandboxError):
        await session.read_file("x")


@real_place
@pytest.mark.req("SBX-06")
async def test_time_limit_ends_children_that_made_their_own_session(bench: Bench, name: str) -> None:
    """B001, B003, B005, B014, B025: setsid, double forks, busy loops, pipes held open; other commands go on."""
    mine = f".{os.getpid():07}"  # where a place sees the host's processes, those of another run are among them
    script = (
        f"(while true; do echo x; sleep 0.1; done) & setsid sleep 311{mine} &"
        f" (setsid sh -c 'sleep 312{mine} & sleep 313{mine}' &) ;"
        f" for i in 1 2; do (while :; do :; done) & done; sleep 314{mine}"
    )
    async with bench.open(name) as session:
        other = asyncio.create_task(session.exec(sh("sleep 1.5; echo other")))
        result = await session.exec(sh(script, timeout_s=0.7))
        assert result.outcome is Outcome.TIMED_OUT
        assert b"x\n" in result.stdout
        left = await session.exec(sh("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"))
        assert not [number for number in (311, 312, 313, 314) if f"sleep {number}{mine}".encode() in left.stdout]
        assert (await other).stdout == b"other\n"
        zombies = await session.exec(sh("grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l"))
        if name in ("docker", "bubblewrap"):
            assert zombies.stdout.strip() == b"0"


@real_place
@pytest.mark.blocking  # the slow reader is the point
@pytest.mark.parametrize("size", [5_000_000, pytest.param(12_345_678, marks=pytest.mark.slow)])
async def test_slow_reader_gets_every_byte(bench: Bench, name: str, size: int) -> None:
    got = 0

    def read(_: str, piece: bytes) -> None:
        nonlocal got
        time.sleep(0.01)
        got += len(piece)

    async with bench.open(name) as session:
        result = await session.exec(sh(f"head -c {size} /dev/zero"), on_output=read)
    assert (got, result.detached, result.exit_code) == (size, False, 0)


@real_place
async def test_request_too_large_for_any_place_costs_nothing(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        for request in (
            ExecRequest(argv=("echo", *("😀" * 30_000 for _ in range(13))), timeout_s=10),
            ExecRequest(argv=("echo",), cwd="a" * 5_000_000, timeout_s=10),
            ExecRequest(argv=("echo",), env={"A": "\x01" * 5_000_000}, timeout_s=10),
        ):
            with pytest.raises(InvalidRequestError):
                await session.exec(request)
        long = await session.exec(ExecRequest(argv=("echo", "x" * 3_000_000), timeout_s=10))
        assert long.exit_code == 126  # the kernel's own limit on an argument: a value, as in a shell
        assert (await session.exec(ExecRequest(argv=("true",), timeout_s=10))).ok


@real_place
async def test_writing_replaces_regular_files_only(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        assert (await session.exec(sh("mkfifo fifo; ln -s fifo link; mkdir dir"))).ok
        for path in ("fifo", "link", "dir"):
            for mode in (None, 0o600):
                with pytest.raises(FileError):
                    await session.write_file(path, b"x", mode=mode)


@real_place
@pytest.mark.req("SBX-06")
async def test_time_limit_of_the_first_command_spares_the_tenth(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        first = asyncio.create_task(session.exec(sh("sleep 60", timeout_s=0.5)))
        await asyncio.sleep(0)
        others = await asyncio.gather(*(session.exec(sh("sleep 1; echo ok")) for _ in range(12)))
        assert (await first).outcome is Outcome.TIMED_OUT
        assert [other.stdout for other in others] == [b"ok\n"] * 12


@pytest.mark.parametrize("name", HARD)
@pytest.mark.req("SBX-06")
async def test_processes_left_behind_make_room_when_none_is_left(bench: Bench, name: str) -> None:
    async with bench.open(name, bench.spec(limits=Limits(pids=40))) as session:
        running = asyncio.create_task(session.exec(sh("sleep 2; echo spared")))
        await asyncio.sleep(0.1)
        for _ in range(3):
            await session.exec(sh("i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done 2>/dev/null"))
            assert (await session.exec(sh("echo works"))).stdout == b"works\n"
        assert (await running).stdout == b"spared\n"


@real_place
@pytest.mark.req("SBX-06")
async def test_background_child_that_holds_the_pipe_hangs_nothing(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        result = await session.exec(sh("sleep 30 & echo hi"))
        assert (result.stdout, result.detached, result.exit_code) == (b"hi\n", True, 0)
        assert result.duration_s < 2
        tee = ExecRequest(argv=("/bin/bash", "-c", "exec > >(tee -a out.log) 2>&1; echo done"), timeout_s=10)
        result = await session.exec(tee)  # B004
        assert result.ok
        assert result.duration_s < 2


@real_place
async def test_signal_of_a_command_is_reported(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        result = await session.exec(sh("kill -TERM $$; sleep 5"))
        assert (result.outcome, result.exit_code) == (Outcome.SIGNALED, -15)


@real_place
async def test_streams_can_be_merged_in_the_order_written(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        result = await session.exec(sh("echo 1; echo 2 >&2; echo 3", merge_stderr=True))
        assert (result.stdout, result.stderr) == (b"1\n2\n3\n", b"")


@real_place
@pytest.mark.req("SESS-06")
async def test_two_roots_are_seen_and_the_project_is_where_commands_run(bench: Bench, name: str) -> None:
    desk = bench.base / "data" / "sessions" / "s"
    desk.mkdir(parents=True)
    roots = (Root(path=desk, label="desk"), Root(path=bench.project, label="project"))
    async with bench.open(name, SandboxSpec(session="two", roots=roots)) as session:
        assert session.cwd == str(bench.project)
        await session.write_file("in-project", b"p")
        if name != "local" or bench.project.owner() == desk.owner():
            await session.write_file(f"{desk}/in-desk", b"d")
            assert (desk / "in-desk").read_bytes() == b"d"
        assert (bench.project / "in-project").read_bytes() == b"p"


@real_place
@pytest.mark.req("SBX-03")
async def test_home_persists_between_sessions_of_one_key(bench: Bench, name: str) -> None:
    if name == "local":
        pytest.skip("local has the person's own home")
    home = bench.base / "data" / "session_homes" / "test"
    for expected in (b"", b"kept"):
        async with bench.open(name, bench.spec(home=home)) as session:
            result = await session.exec(sh("cat ~/.login 2>/dev/null; printf kept > ~/.login"))
            assert result.stdout == expected
            assert result.ok


@real_place
async def test_home_is_thrown_away_when_none_is_named(bench: Bench, name: str) -> None:
    if name == "local":
        pytest.skip("local has the person's own home")
    for _ in range(2):
        async with bench.open(name) as session:
            assert (await session.exec(sh("cat ~/.login 2>/dev/null; touch ~/.login && ls ~/.login"))).ok
    assert sorted(path.name for path in (bench.base / "data" / "run").iterdir() if path.name != "owners") == [
        path.name for path in (bench.base / "data" / "run").glob("runner-*")
    ]


@real_place
@pytest.mark.req("SBX-08", "SESS-07")
async def test_bad_roots_are_refused_in_a_sentence(bench: Bench, name: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/etc")
    file = tmp_path / "file"
    file.touch()
    bad = ["/", "/etc", "/usr/lib", "/tmp", "/proc/self", "/run", str(link), str(file), str(tmp_path / "missing")]
    bad += [str(bench.settings.person_home), str(bench.settings.data_dir), str(bench.base)]
    for path in bad:
        with pytest.raises(InvalidSpecError, match="--root"):
            async with bench.open(name, SandboxSpec(session="bad", roots=(Root(path=Path(path)),))):
                pass


@real_place
async def test_root_reached_through_a_link_is_resolved_once(bench: Bench, name: str, tmp_path: Path) -> None:
    (bench.project / "a.txt").write_bytes(b"a")
    link = tmp_path / "alias"
    link.symlink_to(bench.project)
    async with bench.open(name, SandboxSpec(session="alias", roots=(Root(path=link),))) as session:
        assert await session.read_file("a.txt") == b"a"


@real_place
async def test_thousand_commands_leave_nothing_behind(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        # Once the runner is at rest, and by the shell alone: whether a pipe's end has started is a matter of luck.
        count = sh("sleep 0.1; set -- /proc/1/fd/*; echo $#; set -- /proc/[0-9]*; echo $#")
        before = (await session.exec(count)).stdout
        for _ in range(1000):
            assert (await session.exec(ExecRequest(argv=("true",), timeout_s=10))).ok
        after = (await session.exec(count)).stdout
        if name in ("docker", "bubblewrap"):
            assert before == after
