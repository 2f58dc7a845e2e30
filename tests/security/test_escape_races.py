"""Links that are swapped while they are opened: the rows F045, F046 and F050, and both ways of opening by themselves.

The swapping process runs inside the place, where an attacker would.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from sandbox_backends.contract import ExecRequest, SandboxSession
from sandbox_backends.errors import FileError
from sandbox_backends.runner.files import Confined, FileWrite
from sandbox_backends.runner.wire import Failure
from tests.security.escape_grounds import (
    CANARY,
    Act,
    Grounds,
    in_the_loop_of_its_session,
    link,
    list_dir,
    read,
    run_in,
    text,
    write,
)

pytestmark = pytest.mark.req("DEC-13", "TOOL-01")

SWAP = """
import ctypes, os, shutil, sys
how, one, other = sys.argv[1:]
exchange = ctypes.CDLL(None, use_errno=True).syscall
number = {"x86_64": 316, "aarch64": 276}[os.uname().machine]  # renameat2
def swap():
    if exchange(number, -100, one.encode(), -100, other.encode(), 2) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")
def appear():
    try:
        os.symlink(other, one)
        os.unlink(one)
    except OSError:
        shutil.rmtree(one, ignore_errors=True)
print("ready", flush=True)
while True:
    (swap if how == "swap" else appear)()
"""


@asynccontextmanager
async def swapping(grounds: Grounds, how: str, one: str, other: str) -> AsyncIterator[None]:
    """``one`` is by turns what it was and what ``other`` is; or appears as a link to ``other`` again and again."""
    argv = ("python3", "-I", "-S", "-c", SWAP, how, one, other)
    ready = asyncio.Event()
    request = ExecRequest(argv=argv, timeout_s=60)
    swapper = asyncio.create_task(grounds.session.exec(request, on_output=lambda stream, data: ready.set()))
    try:
        await asyncio.wait_for(ready.wait(), 10)
        yield
        assert not swapper.done(), swapper.result()
    finally:
        swapper.cancel()
        await asyncio.wait({swapper})


async def many(act: Act, session: SandboxSession, path: str, times: int) -> list[object]:
    """What ``times`` calls give, 50 at a time; None stands for a refusal. More, if only one of the two was met."""

    async def once() -> object:
        try:
            return await act(session, path)
        except FileError:
            return None

    given: list[object] = []
    started = time.monotonic()
    while len(given) < times or (all_alike(given) and time.monotonic() - started < 4):
        given += await asyncio.gather(*(once() for _ in range(50)))
    return given


def all_alike(given: list[object]) -> bool:
    return all((one is None) == (given[0] is None) for one in given)


@in_the_loop_of_its_session
@pytest.mark.usefixtures("tidy")
async def test_f045_directory_swapped_for_a_link_leads_nowhere_outside(grounds: Grounds) -> None:
    text("d/secret")(grounds.root, "")
    link("e", "@OUT@/folder")(grounds.root, grounds.outside)
    before = grounds.around(), await grounds.around_inside()

    async with swapping(grounds, "swap", "d", "e"):
        written = await many(write, grounds.session, "d/f.txt", 2000)
        seen = await many(read, grounds.session, "d/secret", 1000)
        listed = await many(list_dir, grounds.session, "d", 500)
        run = await many(run_in, grounds.session, "d", 100)
    # Both were met, so the swapping was real; and only one of them was ever followed.
    assert set(written) == {"written", None}
    assert set(seen) == {b"inside\n", None}
    assert all(names in (None, ["f.txt", "secret"]) for names in listed)
    assert {"d", "e"} >= {Path(str(where)).name for where in run if where is not None}
    assert (grounds.around(), await grounds.around_inside()) == before
    assert not list(grounds.root.rglob(".bubbles-*"))


@in_the_loop_of_its_session
@pytest.mark.usefixtures("tidy")
async def test_f046_file_swapped_for_a_link_never_gives_what_lies_outside(grounds: Grounds) -> None:
    text("f.txt")(grounds.root, "")
    link("g", "@OUT@/secret")(grounds.root, grounds.outside)
    async with swapping(grounds, "swap", "f.txt", "g"):
        seen = await many(read, grounds.session, "f.txt", 3000)
    assert set(seen) == {b"inside\n", None}


@in_the_loop_of_its_session
@pytest.mark.usefixtures("tidy")
async def test_f050_link_that_appears_where_a_directory_is_to_be_made_is_not_followed(grounds: Grounds) -> None:
    before = grounds.around(), await grounds.around_inside()
    async with swapping(grounds, "appear", "new", f"{grounds.outside}/folder"):
        met: set[object] = set()
        began = time.monotonic()
        while (met != {"written", None} and time.monotonic() - began < 10) or not met:
            met |= set(await many(write, grounds.session, "new/f.txt", 500))
    assert met == {"written", None}
    assert (grounds.around(), await grounds.around_inside()) == before


def met(done: dict[str, int]) -> bool:
    return min(done["read"], done["written"], done["refused"]) >= 20


@contextmanager
def swapper_outside(root: Path) -> Iterator[None]:
    argv = [sys.executable, "-I", "-S", "-c", SWAP, "swap", "d", "e"]
    with subprocess.Popen(argv, cwd=root, stdout=subprocess.PIPE) as swapper:
        try:
            assert swapper.stdout is not None
            swapper.stdout.readline()
            yield
            assert swapper.poll() is None
        finally:
            swapper.kill()


@pytest.mark.needs("linux")
@pytest.mark.req("OPS-03")
@pytest.mark.parametrize("walk", [False, True], ids=["openat2", "walk"])
def test_swapped_directory_is_never_followed_by_either_way_of_opening(tmp_path: Path, walk: bool) -> None:
    """Ten thousand writes and reads without the stream between: the walk is what old kernels and macOS have."""
    root, out = tmp_path / "root", tmp_path / "out"
    for path in (root / "d", out):
        path.mkdir(parents=True)
    text("secret", CANARY)(out, "")
    text("d/secret")(root, "")
    link("e", str(out))(root, "")
    files = Confined([[str(root)]], str(root))
    files.use_openat2 = not walk
    done = dict.fromkeys(("read", "written", "refused", "not_a_directory", "not_found"), 0)
    started = time.monotonic()
    with swapper_outside(root):
        # On a busy machine the two rarely run at once, and a refusal is quick: go on until all have been met.
        while time.monotonic() - started < 10 and (sum(done.values()) < 10_000 or not met(done)):
            try:
                assert b"".join(files.read("d/secret", 0, 100)) == b"inside\n"
                done["read"] += 1
                file = FileWrite(files, "d/f.txt", None)
                file.write(b"x")
                file.commit()
                done["written"] += 1
            except Failure as failure:
                done[failure.code] += 1
                if done[failure.code] % 50 == 0:
                    os.sched_yield()
    assert met(done), done
    assert os.listdir(out) == ["secret"]
    for _, fd in files.roots:
        os.close(fd)
