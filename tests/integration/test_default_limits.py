"""A session for which nobody chose limits: what the kernel holds it to, and, slowly, that it does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_backends import defaults
from sandbox_backends.contract import ExecRequest, Limits, Outcome, SandboxSession
from sandbox_backends.docker.ceilings import TEMPORARY
from tests.places import HARD, Bench, make_bench
from tests.processes import comes_true, marked

MIB = 1 << 20
MEMORY = defaults.memory_bytes(Limits(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
FILES = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max",)}
"""By controller, of version 2 and of version 1."""
INSIDE = """
import os, resource
places = ("/tmp", "/dev/shm", "/run", os.environ["HOME"])
print(resource.getrlimit(resource.RLIMIT_NOFILE)[1], *(os.statvfs(p).f_blocks * os.statvfs(p).f_frsize for p in places))
"""
TAKE = """
import os, sys
share = int(sys.argv[1]) // 4
report, told = os.pipe()
hold, release = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        os.close(report), os.close(release)
        open("/proc/self/oom_score_adj", "w").write("1000")
        kept = [b"x" * (32 << 20) for _ in range(share >> 25)]
        os.close(told)
        os.read(hold, 1)
        os._exit(len(kept) == 0)
os.close(told)
os.read(report, 1)  # until each of them has its share, or was killed
os.close(release)
print(sum(os.wait()[1] == 9 for _ in range(4)), "killed")
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    yield made
    made.owner.close()


def python(program: str, *argv: str, timeout_s: float = 10.0) -> ExecRequest:
    return ExecRequest(argv=("python3", "-I", "-S", "-c", program, *argv), timeout_s=timeout_s)


async def held_to(session: SandboxSession) -> dict[str, int]:
    """What the kernel holds the processes of this session to, by controller, as it stands in their control groups."""
    sleeper = await session.start(ExecRequest(argv=("sleep", "60"), timeout_s=20))
    try:
        assert await comes_true(lambda: bool(marked(session.id)))
        return await asyncio.to_thread(lambda: _held_to(marked(session.id).pop()))
    finally:
        await sleeper.signal(9)


def _held_to(pid: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in _read(f"/proc/{pid}/cgroup").decode().splitlines():
        _, controllers, path = line.split(":", 2)
        for name, files in FILES.items():
            if not controllers or name in controllers.split(","):
                top = Path("/sys/fs/cgroup", *controllers.split(",")[:1])
                texts = [_read(f"{top}{path}/{file}").strip() for file in files]
                found.update((name, int(text)) for text in texts if text.isdigit())
    return found


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


@pytest.mark.needs("linux", "root")
@pytest.mark.req("SBX-04", "SBX-05", "SBX-08")
@pytest.mark.parametrize("name", HARD)
async def test_session_without_chosen_limits_is_held_to_the_defaults(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        assert await held_to(session) == {"memory": MEMORY, "pids": defaults.PIDS}
        files, *sizes = map(int, (await session.exec(python(INSIDE))).stdout.split())
    assert files <= defaults.OPEN_FILES  # the host may allow less
    assert sizes == [min(defaults.TMP_BYTES, MEMORY // defaults.TMP_SHARE)] * TEMPORARY


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.needs("linux", "root")
@pytest.mark.req("SBX-04", "SBX-05")
@pytest.mark.parametrize("name", HARD)
async def test_session_without_chosen_limits_gets_no_more_memory_than_the_default(bench: Bench, name: str) -> None:
    async with bench.open(name) as session:
        result = await session.exec(python(TAKE, str(MEMORY * 11 // 10), timeout_s=90))
        assert result.outcome is Outcome.OOM or (result.ok and not result.stdout.startswith(b"0")), result
        assert (await session.exec(ExecRequest(argv=("true",), timeout_s=10))).ok
