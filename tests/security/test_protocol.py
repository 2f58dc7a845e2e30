"""Both ends of the framed stream against the worst the other can send."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_backends.contract import ExecRequest, Outcome, Root
from sandbox_backends.errors import ProtocolError, SandboxError, SandboxLostError
from sandbox_backends.launch import launch
from sandbox_backends.link import Link
from sandbox_backends.local import runner_argv
from sandbox_backends.runner import wire
from sandbox_backends.session import GRACE_S, Place, RunnerSession

HELLO = {"version": wire.VERSION, "machine": "x86_64", "python": "3.11.2", "uid": 0, "caps": ""}
DONE = {"outcome": "exited", "code": 0, "dropped": 0, "duration": 0.1, "detached": False}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def frame(kind: int, request: int, meta: object = None, data: bytes = b"") -> bytes:
    head = b"" if meta is None else json.dumps(meta).encode()
    return wire.HEADER.pack(kind, request, len(head), len(data)) + head + data


@given(
    st.lists(st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=300)), max_size=8), st.data()
)
@settings(max_examples=60, deadline=None)
def test_frames_are_the_same_however_the_stream_is_cut(rows: list[tuple[int, int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(wire.pack(kind, request, {"n": request}, body) for kind, request, body in rows)
    parser, found, at = wire.FrameParser(1000), [], 0
    while at < len(stream):
        step = data.draw(st.integers(1, len(stream)))
        found += parser.feed(stream[at : at + step])
        at += step
    assert [(kind, request, body) for kind, request, _, body in found] == rows


@given(st.binary(max_size=2000))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_frames_or_one_kind_of_error(garbage: bytes) -> None:
    parser = wire.FrameParser(wire.MAX_META_FROM_RUNNER)
    try:
        parser.feed(garbage)
    except wire.FrameError:
        pass
    assert len(parser.buffer) <= len(garbage)


@pytest.mark.parametrize(
    "bad",
    [
        wire.HEADER.pack(wire.OUT, 1, 0, wire.MAX_DATA + 1),
        wire.HEADER.pack(wire.OUT, 1, wire.MAX_META_FROM_RUNNER + 1, 0),
        wire.HEADER.pack(wire.DONE, 1, 3, 0) + b"[1]",
        wire.HEADER.pack(wire.DONE, 1, 2, 0) + b"\xff\xff",
        wire.HEADER.pack(wire.DONE, 1, 60_000, 0) + b"[" * 60_000,
        wire.HEADER.pack(wire.DONE, 1, 22, 0) + b'{"code": 1e999999999} ',
    ],
    ids=["data over the limit", "meta over the limit", "not an object", "not ASCII", "deeply nested", "huge number"],
)
def test_bad_frames_are_refused(bad: bytes) -> None:
    parser = wire.FrameParser(wire.MAX_META_FROM_RUNNER)
    try:
        frames = parser.feed(bad)
    except wire.FrameError:
        return
    assert frames[0][2] == {"code": float("inf")}  # refused by the field check instead


@asynccontextmanager
async def hostile_runner(
    act: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    grace_s: float = GRACE_S,
) -> AsyncIterator[RunnerSession]:
    """A session whose runner is ``act``, after a handshake as it should be."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs)
    link = await Link.connect(ours)
    writer.write(frame(wire.HELLO, 0, HELLO))
    await link.hello()
    writer.write(frame(wire.READY, 0, {}))
    await link.init({}, b"")
    await reader.read(65536)
    place = Place(id="hostile", sock=ours, roots=(Root(path=Path("/x")),), cwd="/x", env={}, hard=True, grace_s=grace_s)
    task = asyncio.ensure_future(act(reader, writer))
    try:
        yield RunnerSession(place, link)
    finally:
        task.cancel()
        link.close()
        writer.close()
        await asyncio.gather(task, return_exceptions=True)
        await link.closed.wait()


def answering(*frames: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"".join(frames))
        await asyncio.sleep(60)

    return act


LIES = {
    "an answer nobody asked for": frame(wire.DONE, 77, DONE),
    "an unknown type": frame(200, 1),
    "a type of the other direction": frame(wire.EXEC, 1),
    "a second greeting": frame(wire.HELLO, 0, HELLO),
    "a failure of the handshake when it is over": frame(wire.FAIL, 0, {"code": "io", "message": "x"}),
    "more output than asked for": frame(wire.OUT, 1, {"stream": "stdout"}, b"x" * 900_000),
    "output of no stream": frame(wire.OUT, 1, {"stream": "stdfoo"}, b"x"),
    "output without a stream": frame(wire.OUT, 1, None, b"x"),
    "no outcome": frame(wire.DONE, 1, {}),
    "an unknown outcome": frame(wire.DONE, 1, {**DONE, "outcome": "fine"}),
    "an outcome of another type": frame(wire.DONE, 1, {**DONE, "outcome": ["exited"]}),
    "a status of another type": frame(wire.DONE, 1, {**DONE, "code": "0"}),
    "a true status": frame(wire.DONE, 1, {**DONE, "code": True}),
    "a status out of range": frame(wire.DONE, 1, {**DONE, "code": 4096}),
    "no status": frame(wire.DONE, 1, {**DONE, "code": None}),
    "a status with a time-out": frame(wire.DONE, 1, {**DONE, "outcome": "timed_out"}),
    "a negative count": frame(wire.DONE, 1, {**DONE, "dropped": -1}),
    "an endless duration": frame(wire.DONE, 1, {**DONE, "duration": float("inf")}),
    "no number as duration": frame(wire.DONE, 1, {**DONE, "duration": float("nan")}),
    "a failure without a code": frame(wire.FAIL, 1, {"message": "x"}),
    "a failure of an unknown code": frame(wire.FAIL, 1, {"code": "rm", "message": "x"}),
    "an acknowledgement that says nothing": frame(wire.ACK, 1, {"closed": 1}),
    "a duration beyond all numbers": frame(wire.DONE, 1, {**DONE, "duration": 10**400}),
    "garbage": b"\xff" * 100,
}


@pytest.mark.req("SBX-02")
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_lying_runner_costs_its_own_sandbox_only(lie: bytes) -> None:
    async with hostile_runner(answering(lie)) as session:
        request = ExecRequest(argv=("cat",), stdin=b"x", timeout_s=5, max_output_bytes=100_000)
        try:
            result = await session.exec(request)
        except ProtocolError:
            pass
        else:
            assert result.outcome is Outcome.LOST
        assert session.lost
        with pytest.raises(SandboxLostError):
            await session.exec(request)


@pytest.mark.parametrize(
    "rows",
    [
        b"nonsense\n",
        b"{}\n",
        b"[1]\n",
        b'["a/b", "file", 1, 1, 1]\n',
        b'["", "file", 1, 1, 1]\n',
        b'["a", "door", 1, 1, 1]\n',
        b'["a", "file", "1", 1, 1]\n',
        b'["a", "file", 1]\n',
        b'["a", "file", 1, 1, {}]\n',
        b'["a", "file", 1, 1, 1' + b"0" * 400 + b"]\n",
        b'["a", "file", 1, 1, 1]',
        b"[" * 100_000,
        b"[" * 4000 + b"\n",
        b'["a", "file", 1, 1, 1]\n' * 10_001,
    ],
)
async def test_lying_directory_listing_is_not_believed(rows: bytes) -> None:
    lie = frame(wire.OUT, 1, {"stream": "stdout"}, rows) + frame(wire.DONE, 1, {"truncated": False})
    async with hostile_runner(answering(lie)) as session:
        with pytest.raises(SandboxLostError):
            await session.list_dir(".")
        assert session.lost


@pytest.mark.parametrize(
    "row",
    [
        ["file", 1, 0, 10**400],
        ["file", 1, 0, float("nan")],
        ["file", 1, 0, "inf"],
        ["file", -5, 0, 0],
        ["file", 10**400, 0, 0],
        ["file", 1],
        7,
    ],
)
async def test_lying_file_description_is_not_believed(row: object) -> None:
    async with hostile_runner(answering(frame(wire.DONE, 1, {"stat": row}))) as session:
        with pytest.raises(ProtocolError):
            await session.stat("a")
        assert session.lost


async def test_file_of_more_bytes_than_asked_for_is_not_believed() -> None:
    lie = frame(wire.OUT, 1, {"stream": "stdout"}, b"x" * 11) + frame(wire.DONE, 1, {})
    async with hostile_runner(answering(lie)) as session:
        with pytest.raises(SandboxLostError):
            await session.read_file("x", max_bytes=10)


async def test_runner_that_never_answers_is_given_up() -> None:
    async with hostile_runner(answering(), grace_s=0.1) as session:
        result = await session.exec(ExecRequest(argv=("true",), timeout_s=0.1))
        assert result.outcome is Outcome.LOST
        assert "did not answer" in (session.lost or "")


async def test_callback_that_fails_costs_its_own_command_only() -> None:
    good = frame(wire.OUT, 1, {"stream": "stdout"}, b"x") + frame(wire.DONE, 1, DONE)

    def fail(*_: object) -> None:
        raise RuntimeError("callback")

    async with hostile_runner(answering(good)) as session:
        with pytest.raises(RuntimeError, match="callback"):
            await session.exec(ExecRequest(argv=("true",), timeout_s=5), on_output=fail)
        assert session.lost is None


@given(st.lists(st.tuples(st.integers(60, 75), st.integers(0, 3), json_values, st.binary(max_size=50)), max_size=10))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_frames_from_a_runner_are_a_result_or_a_sandbox_error(
    frames: list[tuple[int, int, object, bytes]],
) -> None:
    async def check() -> None:
        lie = b"".join(frame(*row) for row in frames) + b"\xff" * 13
        async with hostile_runner(answering(lie)) as session:
            for attempt in (
                session.exec(ExecRequest(argv=("cat",), stdin=b"x", timeout_s=5)),
                session.read_file("x"),
                session.list_dir("x"),
            ):
                try:
                    await attempt
                except SandboxError:
                    pass
            assert session.lost

    asyncio.run(check())


@asynccontextmanager
async def bare_runner(root: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.Event]]:
    """A real runner, initialised, with the raw stream to it."""
    start = runner_argv()
    async with launch(lambda fd: (*start, str(fd)), env={}) as process:
        process.sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=process.sock)
        init = {
            "id": "t",
            "roots": [[str(root)]],
            "cwd": str(root),
            "hard": False,
            "rlimits": {},
            "bridge": [],
            "env": {},
        }
        writer.write(frame(wire.INIT, 0, init))
        ended = asyncio.Event()
        try:
            yield reader, writer, ended
        finally:
            writer.close()


requests = st.tuples(
    st.integers(0, 12),
    st.integers(0, 5),
    json_values
    | st.fixed_dictionaries(
        {
            "argv": st.just(["/bin/true"]) | json_values,
            "env": st.just({}) | json_values,
            "cwd": st.just("") | st.text(max_size=10) | json_values,
            "path": st.sampled_from(["a", "b/c", "..", "/etc/passwd", "", ".", "a/"])
            | st.text(max_size=10)
            | json_values,
            "timeout": st.just(1) | json_values,
            "keep": st.just(10) | json_values,
            "stream": st.booleans() | json_values,
            "stdin": st.booleans() | json_values,
            "merge": st.booleans(),
            "mode": st.none() | json_values,
            "eof": st.booleans() | json_values,
            "offset": st.just(0) | json_values,
            "limit": st.just(10) | json_values,
            "signal": st.integers(0, 40) | json_values,
        }
    ),
    st.binary(max_size=100),
)


@given(st.lists(requests, min_size=1, max_size=30))
@settings(
    max_examples=25,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_requests_to_a_runner_are_answered_and_it_lives_on(
    tmp_path: Path, rows: list[tuple[int, int, object, bytes]]
) -> None:
    objects = [
        (kind, request, meta if isinstance(meta, dict) else {"x": meta}, data) for kind, request, meta, data in rows
    ]

    async def check() -> None:
        async with bare_runner(tmp_path) as (reader, writer, _):
            for kind, request, meta, data in objects:
                writer.write(frame(kind, request, meta, data))
            writer.write(frame(wire.PING, 4_000_000))
            parser = wire.FrameParser(wire.MAX_META_FROM_RUNNER)
            async with asyncio.timeout(10):
                while True:
                    chunk = await reader.read(65536)
                    assert chunk, "the runner died"
                    if any(request == 4_000_000 for _, request, _, _ in parser.feed(chunk)):
                        return

    asyncio.run(check())


async def test_runner_ends_on_a_stream_that_is_no_stream_of_frames(tmp_path: Path) -> None:
    async with bare_runner(tmp_path) as (reader, writer, _):
        writer.write(b"\xff" * 64)
        async with asyncio.timeout(5):
            while await reader.read(65536):
                pass


def find_python(version: str) -> str | None:
    """An interpreter that really is of this version; a pyenv shim may stand for none."""
    candidates = [
        *Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"),
        Path(f"/usr/bin/python{version}"),
    ]
    return next((str(path) for path in candidates if path.exists()), None)


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"])
async def test_runner_runs_on_every_python_from_3_8(tmp_path: Path, version: str) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    start = (python, *runner_argv()[1:])
    async with launch(lambda fd: (*start, str(fd)), env={}) as process:
        from sandbox_backends.session import connect

        root = str(tmp_path)
        roots = (Root(path=tmp_path),)
        place = Place(id="py", sock=process.sock, roots=roots, cwd=root, env={}, hard=False, why_lost=process.why_lost)
        async with connect(place) as session:
            await session.write_file("a/b", b"data")
            assert await session.read_file("a/b") == b"data"
            result = await session.exec(ExecRequest(argv=("/bin/sh", "-c", "cat; exit 3"), stdin=b"in", timeout_s=5))
            assert (result.exit_code, result.stdout) == (3, b"in")
            late = await session.exec(ExecRequest(argv=("/bin/sh", "-c", "setsid sleep 9 & sleep 9"), timeout_s=0.3))
            assert late.outcome is Outcome.TIMED_OUT


def test_runner_says_in_a_sentence_that_python_is_not_complete(tmp_path: Path) -> None:
    """Debian's python3-minimal lacks json, ctypes and more."""
    import subprocess

    code = (
        "import sys; sys.modules['ctypes'] = None; sys.argv = ['start.py', '--fd', '9'];"
        f"import runpy; runpy.run_path({str(runner_argv()[4])!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "Full Python is required" in done.stderr
    assert "Traceback" not in done.stderr
