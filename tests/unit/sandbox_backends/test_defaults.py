"""One table of default limits: in every backend that can hold them, and in the document."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_backends import cgroups, defaults
from sandbox_backends.contract import Limits
from sandbox_backends.docker import ceilings as docker
from sandbox_backends.docker.engine import EngineInfo
from sandbox_backends.errors import UnsupportedSpecError
from sandbox_backends.probes.demands import CEILINGS

MIB, GIB = 1 << 20, 1 << 30
MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
HERE = EngineInfo(
    version="24",
    api=(1, 43),
    rootless=False,
    user_mapping=False,
    desktop=False,
    memory=True,
    pids=True,
    cpu=True,
    n_cpus=os.cpu_count() or 1,
    memory_bytes=MACHINE,
    runtimes={},
)


@pytest.mark.req("SBX-02")
def test_a_session_of_which_nothing_was_said_may_use_the_same_in_every_backend() -> None:
    processes, container = cgroups.Ceilings.of(Limits()), docker.ceilings(Limits(), HERE)
    assert (container.memory, container.pids, container.cpus) == (
        processes.memory_bytes,
        processes.pids,
        processes.cpus,
    )


def test_document_tells_the_defaults() -> None:
    text = (Path(__file__).parents[3] / "SPEC.md").read_text(encoding="utf-8")
    table = text.partition("### 4.7 Limits")[2].partition("### 4.8")[0]
    told = {row.split("|")[1].strip(): row.split("|")[2].strip() for row in table.splitlines() if row.startswith("| `")}
    assert told.keys() == {f"`{name}`" for name in ("memoryBytes", "pids", "cpus", "openFiles", "tmpBytes")}
    assert told["`memoryBytes`"].startswith(f"{defaults.MEMORY_BYTES // GIB} GiB, or half of what the machine has")
    assert told["`pids`"] == str(defaults.PIDS)
    assert told["`openFiles`"] == f"{defaults.OPEN_FILES:,} for each process"
    assert told["`tmpBytes`"].startswith(f"{defaults.TMP_BYTES // MIB} MiB for each")
    assert f"1/{defaults.TMP_SHARE} of the memory limit" in told["`tmpBytes`"]


@pytest.mark.req("SBX-08")
@pytest.mark.parametrize(
    ("machine", "expected"), [(64 * GIB, 4 * GIB), (8 * GIB, 4 * GIB), (GIB, GIB // 2), (0, 4 * GIB)]
)
def test_memory_is_four_gibibytes_or_half_of_the_machine(machine: int, expected: int) -> None:
    assert defaults.memory_bytes(Limits(), machine) == expected
    assert docker.ceilings(Limits(), replace(HERE, memory_bytes=machine)).memory == expected
    assert defaults.memory_bytes(Limits(memory_bytes=GIB), machine) == GIB


def test_processors_are_all_there_are_and_never_more() -> None:
    assert [defaults.cpus(Limits(cpus=chosen), 4) for chosen in (None, 0.5, 4, 64)] == [4, 0.5, 4, 4]


@pytest.mark.req("SBX-08")
def test_directories_in_memory_leave_room_for_processes() -> None:
    for memory in (16 * MIB, 512 * MIB, 4 * GIB, 1 << 40):
        assert defaults.tmp_bytes(Limits(), memory, 4, held=True) <= min(256 * MIB, memory // 8)
    assert defaults.tmp_bytes(Limits(tmp_bytes=12 * MIB), 64 * MIB, 4, held=True) == 12 * MIB
    with pytest.raises(UnsupportedSpecError, match=f"at most {12 * MIB}, or raise memory_bytes"):
        defaults.tmp_bytes(Limits(tmp_bytes=12 * MIB + 1), 64 * MIB, 4, held=True)
    assert defaults.tmp_bytes(Limits(tmp_bytes=GIB), 64 * MIB, 4, held=False) == GIB


def test_defaults_stay_below_what_the_doctor_counts_as_no_limit() -> None:
    assert CEILINGS["processes"] > defaults.PIDS
    assert CEILINGS["disk_bytes"] > defaults.TMP_BYTES
    assert CEILINGS["open_files"] >= defaults.OPEN_FILES
