"""``local`` holds what it can hold: a limit on open files binds there too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_backends.contract import ExecRequest, Limits
from tests.places import SOFT, Bench, make_bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    yield made
    made.owner.close()


@pytest.mark.req("SBX-08")
@pytest.mark.parametrize("name", SOFT)
async def test_limit_on_open_files_binds_every_command(bench: Bench, name: str) -> None:
    async with bench.open(name, bench.spec(limits=Limits(open_files=64))) as session:
        result = await session.exec(ExecRequest(argv=("sh", "-c", "ulimit -n; ulimit -Hn"), timeout_s=10))
        assert result.stdout.split() == [b"64", b"64"]
