"""The place that an escape starts from: a session's root with canaries all around it, and what is tried there."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox_backends.contract import ExecRequest, Root, SandboxSession, SandboxSpec
from sandbox_backends.errors import FileError
from tests.places import Bench

CANARY = b"canary: this must not be seen\n"
HARD_OUTSIDE = "/tmp/outside"

Make = Callable[[Path, str], None]
"""Puts something into the root that it is given; ``@OUT@`` in a link is the second argument."""
Act = Callable[[SandboxSession, Any], Any]

in_the_loop_of_its_session = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """An open session, its root, and the canaries all around it."""

    bench: Bench
    session: SandboxSession
    hard: bool

    @property
    def root(self) -> Path:
        return self.bench.project

    @property
    def out(self) -> Path:
        return self.bench.base / "out"

    @property
    def outside(self) -> str:
        """Where links lead: out of the root, and something is there when one follows them in this place."""
        return HARD_OUTSIDE if self.hard else str(self.out)

    def around(self) -> dict[str, object]:
        """All that lies beside the root, with what is in it."""
        skipped = (self.root, self.bench.settings.data_dir)
        found: dict[str, object] = {}
        for top in sorted(self.bench.base.iterdir()):
            if top not in skipped:
                for path in (top, *sorted(top.rglob("*"))):
                    mode = path.lstat().st_mode
                    found[str(path)] = (mode, path.read_bytes() if path.is_file() and mode & 0o400 else None)
        return found

    async def around_inside(self) -> bytes:
        """The same of a hard place's own outside."""
        script = f"cd {HARD_OUTSIDE} && ls -lA . folder && cat secret target && ls -A /tmp /home/agent"
        return (await self.session.exec(sh(script))).stdout if self.hard else b""


def sh(script: str, **more: Any) -> ExecRequest:
    return ExecRequest(argv=("/bin/sh", "-c", script), timeout_s=10, **more)


def lay_out(bench: Bench) -> None:
    base = bench.base
    for path in ("out/secret", "out/target", "secret", "project-evil/secret", "s2/a.txt", "out/folder/secret"):
        (base / path).parent.mkdir(exist_ok=True)
        (base / path).write_bytes(CANARY)
    (base / "noperm").write_bytes(CANARY)
    (base / "noperm").chmod(0)
    (base / "cwd").mkdir()


@asynccontextmanager
async def kept_open(bench: Bench, name: str, root: Path) -> AsyncIterator[SandboxSession]:
    """A session that one task enters and leaves: a fixture's two halves run in different ones."""
    ready: asyncio.Future[SandboxSession] = asyncio.get_running_loop().create_future()
    leave = asyncio.Event()

    async def keep() -> None:
        async with bench.open(name, SandboxSpec(session="escapes", roots=(Root(path=root),))) as session:
            ready.set_result(session)
            await leave.wait()

    keeper = asyncio.create_task(keep())
    await asyncio.wait((ready, keeper), return_when=asyncio.FIRST_COMPLETED)
    if keeper.done():
        keeper.result()
    yield ready.result()
    leave.set()
    await keeper


# -- what is planted --


def text(name: str, content: bytes = b"inside\n") -> Make:
    def make(root: Path, outside: str) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return make


def folder(*names: str) -> Make:
    def make(root: Path, outside: str) -> None:
        for name in names:
            (root / name).mkdir(parents=True)

    return make


def link(name: str, to: str) -> Make:
    def make(root: Path, outside: str) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(to.replace("@OUT@", outside))

    return make


def hard_link(name: str, to: str) -> Make:
    return lambda root, _: os.link(root.parent / "out" / to, root / name)


def fifo(root: Path, outside: str) -> None:
    os.mkfifo(root / "fifo")


def unix_socket(root: Path, outside: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener, inside(root):
        listener.bind("sock")


@contextmanager
def inside(directory: Path) -> Iterator[None]:
    """A socket's path may be 107 bytes long, and pytest's are longer."""
    before = os.getcwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


# -- what is tried --


async def read(session: SandboxSession, path: Any) -> bytes:
    return await session.read_file(path)


async def write(session: SandboxSession, path: Any) -> str:
    await session.write_file(path, b"written\n")
    return "written"


async def edit(session: SandboxSession, path: Any) -> None:
    """As the tool does it; the second half is tried even if the first is refused."""
    try:
        await read(session, path)
    except FileError:
        await write(session, path)
        raise
    await write(session, path)


async def list_dir(session: SandboxSession, path: Any) -> list[str]:
    return [entry.name for entry in (await session.list_dir(path)).entries]


async def list_tree(session: SandboxSession, path: str) -> list[str]:
    found: list[str] = []
    todo = [path]
    while todo:
        top = todo.pop()
        for entry in (await session.list_dir(top)).entries:
            found.append(entry.name)
            if entry.stat.kind == "directory":
                todo.append(f"{top}/{entry.name}")
    return found


async def run_in(session: SandboxSession, path: Any) -> str:
    result = await session.exec(ExecRequest(argv=("/bin/pwd", "-P"), cwd=path, timeout_s=10))
    assert result.ok, result
    return result.stdout.decode().removesuffix("\n")


ACTS: dict[str, Act] = {"read": read, "write": write, "edit": edit, "list": list_dir, "working_dir": run_in}
