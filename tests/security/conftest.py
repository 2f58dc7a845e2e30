"""One open session a module and place, in the midst of canaries."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox_backends.contract import ExecRequest
from tests.places import NEEDS, REAL, Bench, make_bench
from tests.security.escape_grounds import CANARY, HARD_OUTSIDE, Grounds, kept_open, lay_out


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The controller's own directory is none of the session's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("cwd"))
        yield


@pytest.fixture(scope="module", params=REAL)
def place(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        request.getfixturevalue("sandbox_image")
    return str(request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grounds(place: str, tmp_path_factory: pytest.TempPathFactory, elsewhere: None) -> AsyncIterator[Grounds]:
    bench = make_bench(tmp_path_factory.mktemp("escapes") / "bench")
    lay_out(bench)
    async with kept_open(bench, place, bench.project) as session:
        hard = "bubblewrap" in NEEDS[place] or "docker" in NEEDS[place]
        if hard:
            script = "mkdir -p $1/folder && for f in secret target folder/secret; do cat >$1/$f <<E\n$2\nE\ndone"
            words = (HARD_OUTSIDE, CANARY.decode().strip())
            made = await session.exec(ExecRequest(argv=("/bin/sh", "-c", script, "sh", *words), timeout_s=10))
            assert made.ok, made
        yield Grounds(bench=bench, session=session, hard=hard)
    bench.owner.close()


@pytest.fixture
def another_bench(tmp_path: Path) -> Iterator[Bench]:
    bench = make_bench(tmp_path / "bench")
    yield bench
    bench.owner.close()


@pytest.fixture
def tidy(grounds: Grounds) -> Iterator[None]:
    """The root as it was, for the next row."""
    yield
    clean = ["find", str(grounds.root), "-mindepth", "1", "-delete"]
    for _ in range(20):  # what still swaps names there may get in the way
        if subprocess.run(clean, check=False, capture_output=True).returncode == 0:
            return
    subprocess.run(clean, check=True)
