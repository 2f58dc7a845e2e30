"""The doctor's probes: they find an open way open, what they plant is removed, and their word is not simply taken."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox_backends.contract import BackendSettings, Enforces, Limits, SandboxSession, SandboxSpec
from sandbox_backends.errors import BackendUnavailableError, UnsupportedSpecError
from sandbox_backends.fake import FakeBackend, FakeRun
from sandbox_backends.probes import bundle
from sandbox_backends.probes.canaries import SECRET_NAME, planted, planted_setuid
from sandbox_backends.probes.catalog import BACKENDS, MEASURED_BY, PROBES, promised, security_table
from sandbox_backends.probes.inside import frame, limits, powers, surroundings
from sandbox_backends.probes.report import ProbeResult, Report
from sandbox_backends.probes.run import run_probes
from tests.places import REAL, Bench, make_bench

ROOT = Path(__file__).parents[3]
INSIDE = (frame, surroundings, powers, limits)
KNOWN_OPEN = {24, 45, 67}
"""What no backend holds: netlink (libc needs it), a root's own path, and a quota on what is the person's own disk."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    yield made
    made.owner.close()


# --- the list


@pytest.mark.req("SBX-09")
def test_every_probe_of_the_list_exists_inside_and_the_other_way_round() -> None:
    assert [info.number for info in PROBES] == list(range(1, 75))
    assert {info.id for info in PROBES} == frame.CHECKS.keys()
    assert {module.__name__ for module in INSIDE} == {f"{bundle.INSIDE}.{name}" for name in bundle.MODULES}
    assert len({info.title for info in PROBES}) == len(PROBES)


def test_every_probe_says_in_one_sentence_what_it_would_mean() -> None:
    for info in PROBES:
        assert re.fullmatch(r"[A-Za-z][^.]*\.", info.meaning), info.id
        assert not info.title.endswith(".")
        assert re.fullmatch(r"[a-z0-9-]+", info.id)
        assert re.fullmatch(r"[yru-]{4}", info.promises)


@pytest.mark.req("SEC-02")
@pytest.mark.parametrize("backend", ["bubblewrap", "docker"])
def test_a_hard_backend_under_root_promises_all_but_the_three_that_nobody_holds(backend: str) -> None:
    missing = {info.number for info in PROBES} - {
        info.number for info in PROBES if info.id in promised(backend, root=True)
    }
    assert missing == KNOWN_OPEN


def test_bubblewrap_under_an_ordinary_user_promises_no_bound_on_memory_or_cpu() -> None:
    root, user = promised("bubblewrap", root=True), promised("bubblewrap", root=False)
    # RLIMIT_DATA counts private memory only: shared mappings and memfd pass it by.
    assert root - user == {"memory-one", "memory-together", "cpu-share"}
    assert user < root


def test_a_local_backend_promises_only_what_it_does_itself() -> None:
    always = {"own-environ", "parent-environ", "inherited-fds", "tiocsti"}
    assert promised("local", root=True) == always
    assert promised("local", root=False) == always | {"ptrace-runner"}
    assert promised("local_isolated", root=False) == always | {"ptrace-runner", "home-logins"}


def test_local_isolated_under_root_promises_what_a_user_of_its_own_gives() -> None:
    gained = promised("local_isolated", root=True) - promised("local_isolated", root=False)
    assert gained > {"person-file", "other-session-home", "engine-socket", "planted-setuid", "memory-together"}
    assert gained.isdisjoint({"host-tmp", "host-processes", "host-loopback", "internet-route", "confinement"})


def test_a_foreign_backend_has_promised_nothing() -> None:
    assert promised("somebody_elses", root=True) == frozenset()


def test_every_flag_of_a_backend_is_measured_by_probes_that_exist() -> None:
    assert set(MEASURED_BY) == set(Enforces)
    assert {ident for ids in MEASURED_BY.values() for ident in ids} <= frame.CHECKS.keys()


def test_every_backend_that_claims_a_flag_promises_the_probes_that_measure_it() -> None:
    for ids in MEASURED_BY.values():
        for backend in ("bubblewrap", "docker"):
            assert set(ids) <= promised(backend, root=True)


@pytest.mark.req("SEC-02")
def test_the_table_for_the_documents_has_every_probe_and_every_backend() -> None:
    lines = security_table().splitlines()
    assert all(f" {name} " in lines[0] for name in BACKENDS)
    assert {line.count("|") for line in lines} == {len(BACKENDS) + 3}
    for info in PROBES:
        assert any(line.startswith(f"| {info.number} | {info.title} |") for line in lines)
    assert (
        "| 73 | take memory past the limit that was set, in four processes | - | held (root) | held (root) | held |"
        in lines
    )


# --- what runs inside


def run_inside(probes: list[str], given: Mapping[str, object], cwd: Path) -> dict[str, tuple[bool | None, str]]:
    done = subprocess.run(
        ["/usr/bin/env", "-i", sys.executable, *bundle.ARGV[1:]],
        input=bundle.stdin_for(probes, given),
        capture_output=True,
        cwd=cwd,
        timeout=15,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["id"]: (row["held"], row["detail"]) for row in rows}


@pytest.mark.needs("linux")
def test_the_probes_run_from_their_text_alone(tmp_path: Path) -> None:
    probes = [info.id for info in PROBES if info.group == "kernel" and info.id not in ("host-key", "block-device")]
    found = run_inside(probes, {}, tmp_path)
    assert list(found) == probes
    assert not [detail for _, detail in found.values() if "not measured" in detail]


@pytest.mark.needs("linux")
def test_a_command_line_carries_no_token(tmp_path: Path) -> None:
    assert len(bundle.BOOT) < 2000
    found = run_inside(["host-processes"], {"token": "a-token-that-is-nowhere-else"}, tmp_path)
    assert found["host-processes"][0] is True


MISBEHAVE = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from sandbox_backends.probes.inside import frame
frame.PATIENCE_S = 0.5

def pid_of_sleeper():
    child = os.fork()
    if child == 0:
        time.sleep(60)
    return child

frame.CHECKS.update({
    "crashes": lambda config: os.abort(),
    "raises": lambda config: 1 // 0,
    "hangs": lambda config: time.sleep(60),
    "is filtered": lambda config: os.kill(os.getpid(), signal.SIGSYS),
    "is killed": lambda config: os.kill(os.getpid(), signal.SIGKILL),
    "memory-x": lambda config: os.kill(os.getpid(), signal.SIGKILL),
    "leaves a child": lambda config: (True, str(pid_of_sleeper())),
    "works": lambda config: (True, "yes"),
})
frame.main({"run": list(frame.CHECKS)})
"""


@pytest.mark.needs("linux")
def test_a_probe_that_crashes_or_hangs_costs_itself_only_and_counts_as_open() -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-c", MISBEHAVE, str(ROOT)], capture_output=True, text=True, timeout=15, check=False
    )
    rows = {row["id"]: row for row in map(json.loads, done.stdout.splitlines())}
    verdicts = {name: row["held"] for name, row in rows.items()}
    assert verdicts == {
        "crashes": False,
        "raises": False,
        "hangs": False,
        "is filtered": True,
        "is killed": False,
        "memory-x": True,
        "leaves a child": True,
        "works": True,
    }
    assert "within" in rows["hangs"]["detail"]
    assert "ZeroDivisionError" in done.stderr
    left = Path(f"/proc/{rows['leaves a child']['detail']}/status")
    assert not left.exists() or "State:\tZ" in left.read_text()


@pytest.mark.needs("linux")
def test_measuring_stops_at_its_ceiling_and_leaves_nothing(tmp_path: Path) -> None:
    mib = 1 << 20
    ceilings = {"processes": 20, "memory_bytes": 128 * mib, "disk_bytes": 50 * mib, "open_files": 100}
    given = {"ceilings": ceilings, "cpus": 0.1}
    found = run_inside(["process-count", "memory-one", "memory-together", "disk-roots", "open-files"], given, tmp_path)
    assert {held for held, _ in found.values()} == {False}
    assert found["process-count"][1] == "20 processes and no end"
    assert found["memory-one"][1] == "128 MiB in one process and no end"
    assert found["disk-roots"][1].startswith("50 MiB in ")
    assert list(tmp_path.iterdir()) == []


# --- what is planted


def settings_in(tmp_path: Path) -> BackendSettings:
    return BackendSettings(data_dir=tmp_path, person_home=tmp_path, host_env={"PATH": "/bin"})


@pytest.mark.needs("linux")
def test_canaries_can_be_found_from_outside_a_sandbox_while_they_stand(tmp_path: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with planted(settings_in(tmp_path)) as canaries:
        assert canaries.settings.host_env == {"PATH": "/bin", SECRET_NAME: canaries.token}
        for path in (canaries.person_file, canaries.tmp_file):
            assert path is not None
            assert Path(path).read_text() == canaries.token
        os.kill(canaries.pid, 0)
        socket.create_connection(("127.0.0.1", canaries.port)).close()
        with socket.socket(socket.AF_UNIX) as link:
            link.connect("\0" + canaries.abstract)
        assert canaries.shm_key is None or libc.shmget(canaries.shm_key, 0, 0) >= 0


@pytest.mark.needs("linux")
def test_nothing_planted_is_left_behind(tmp_path: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with planted(settings_in(tmp_path)) as canaries:
        pass
    assert list(tmp_path.iterdir()) == []
    assert not [path for path in (canaries.tmp_file, canaries.user_file) if path and Path(path).exists()]
    assert canaries.user_file is None or not Path(canaries.user_file).parent.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(canaries.pid, 0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", canaries.port))
    assert canaries.shm_key is None or libc.shmget(canaries.shm_key, 0, 0) < 0
    assert (
        canaries.key is None
        or frame.syscall("keyctl", 10, powers.USER_KEYRING, b"user", canaries.key.encode(), 0) == -1
    )


@pytest.mark.needs("root")
def test_root_plants_a_program_that_makes_root_and_takes_it_away(tmp_path: Path) -> None:
    with planted_setuid(tmp_path) as program:
        assert program is not None
        assert Path(program).stat().st_mode & 0o7777 == 0o4755
    assert list(tmp_path.iterdir()) == []


DOCTOR = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from sandbox_backends.contract import BackendSettings
from sandbox_backends.probes.canaries import planted
here = Path(sys.argv[2])
with planted(BackendSettings(data_dir=here, person_home=here)) as canaries:
    print(canaries.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.needs("linux")
def test_the_canary_process_ends_with_a_doctor_that_is_interrupted(tmp_path: Path) -> None:
    argv = [sys.executable, "-B", "-c", DOCTOR, str(ROOT), str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as doctor:
        assert doctor.stdout is not None
        watch = os.pidfd_open(int(doctor.stdout.readline()))
        try:
            doctor.send_signal(signal.SIGINT)
            assert select.select([watch], [], [], 10)[0]
        finally:
            os.close(watch)
    assert list(tmp_path.iterdir()) == []


# --- what is made of the answers


class Answering(FakeBackend):
    """Claims nothing; every probe run answers with these lines."""

    def __init__(self, *lines: bytes) -> None:
        async def python(run: FakeRun) -> int:
            await run.read_all()
            for line in lines:
                run.write("stdout", line + b"\n")
            return 0

        super().__init__(enforces=Enforces.NOTHING, programs={"python3": python})


async def test_what_is_no_answer_or_answers_another_question_counts_for_nothing(bench: Bench) -> None:
    backend = Answering(
        b"not json",
        b"[]",
        b'{"id": "shadow"}',
        b'{"id": ["shadow"], "held": true, "detail": "x"}',
        b'{"id": "shadow", "held": "true", "detail": "x"}',
        b'{"id": "kexec", "held": true, "detail": "not asked in this command"}',
        b'{"id": "machine-id", "held": true, "detail": "fine"}',
    )
    asked = {"shadow", "machine-id"}
    report = await run_probes("fake", bench.settings, bench.owner, only=asked, create=lambda *_: backend)
    found = {result.info.id: (result.held, result.detail[:12]) for result in report.results}
    assert found == {"shadow": (False, "not measured"), "machine-id": (True, "fine")}


@pytest.mark.req("SBX-09")
async def test_a_backend_that_cannot_be_opened_is_reported_with_its_remedy(bench: Bench) -> None:
    backend = FakeBackend(open_error=BackendUnavailableError("The engine is gone.", "Start it."))
    report = await run_probes("fake", bench.settings, bench.owner, create=lambda *_: backend)
    assert (report.usable, report.reason, report.remedy) == (False, "The engine is gone.", "Start it.")
    assert report.results == ()
    assert json.loads(json.dumps(report.to_json()))["usable"] is False


class Overstated(Answering):
    """Claims a memory limit and then refuses one."""

    def __init__(self) -> None:
        super().__init__(b'{"id": "memory-one", "held": false, "detail": "1024 MiB"}')
        self.enforces = Enforces.MEMORY
        self.limits: list[Limits] = []

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[SandboxSession]:
        self.limits.append(spec.limits)
        if spec.limits.memory_bytes is not None:
            raise UnsupportedSpecError("There are no cgroups.")
        async with super().open(spec) as session:
            yield session


async def test_limits_that_are_refused_are_measured_as_they_are_by_default_and_said_so(bench: Bench) -> None:
    backend = Overstated()
    report = await run_probes("docker", bench.settings, bench.owner, only={"memory-one"}, create=lambda *_: backend)
    assert backend.limits[0].memory_bytes == 512 << 20
    assert set(backend.limits[1:]) == {Limits()}
    assert report.notes == ("Measured with the backend's default limits: There are no cgroups.",)
    assert [result.info.id for result in report.broken] == ["memory-one"]
    assert report.disproved == Enforces.MEMORY
    assert report.to_json()["disproved"] == ["memory"]


class Bounded(Answering):
    """Claims all that can be limited, and takes every limit."""

    def __init__(self) -> None:
        super().__init__(b'{"id": "memory-one", "held": true, "detail": "no more"}')
        self.enforces = ~Enforces.CREDENTIALS


async def test_limits_that_were_set_for_measuring_are_said(bench: Bench) -> None:
    report = await run_probes("fake", bench.settings, bench.owner, only={"memory-one"}, create=lambda *_: Bounded())
    (note,) = report.notes
    assert note.startswith(
        "Limits are measured with limits set: 512 MiB of memory, 256 processes, 0.5 processors, 64 MiB"
    )
    assert report.to_json()["notes"] == [note]


class Fragile(Answering):
    """Its session is lost under the first command."""

    def __init__(self) -> None:
        super().__init__(*(b'{"id": "%s", "held": true, "detail": "x"}' % info.id.encode() for info in PROBES))
        self.lives = dict(self.programs)
        self.programs = {"python3": self.die}

    async def die(self, run: FakeRun) -> int:
        self.programs = self.lives
        self.sessions[-1].lose("out of memory")
        await asyncio.sleep(60)
        return 0


async def test_a_session_that_is_lost_is_opened_anew_for_the_rest(bench: Bench) -> None:
    asked = {"shadow", "kexec", "own-environ"}
    report = await run_probes("fake", bench.settings, bench.owner, only=asked, create=lambda *_: Fragile())
    assert {result.info.id: result.held for result in report.results} == {
        "shadow": False,
        "kexec": True,
        "own-environ": True,
    }


def test_what_was_promised_and_is_open_is_broken_and_what_does_not_apply_is_neither() -> None:
    def result(held: bool | None, *, is_promised: bool) -> ProbeResult:
        return ProbeResult(info=PROBES[0], held=held, promised=is_promised, detail="")

    rows = (
        result(True, is_promised=True),
        result(False, is_promised=True),
        result(False, is_promised=False),
        result(None, is_promised=True),
    )
    report = Report(backend="docker", root=True, usable=True, results=rows)
    assert (report.held, report.open, report.broken) == (rows[:1], rows[1:3], rows[1:2])
    assert report.to_json()["counts"] == {"held": 1, "open": 2, "broken": 1, "not_applicable": 1}


# --- the real places


@pytest.mark.req("SBX-09", "SEC-02")
@pytest.mark.needs("linux")
@pytest.mark.parametrize("name", REAL)
async def test_a_backend_holds_what_it_promises(name: str, bench: Bench) -> None:
    """All but the measures, which take seconds and are in the test below."""
    only = {info.id for info in PROBES if info.group != "limits"}
    report = await run_probes(name, bench.settings, bench.owner, only=only)
    assert report.usable, report.reason
    assert {result.info.id: result.detail for result in report.broken} == {}
    assert [result.info.id for result in report.results if "not measured" in result.detail] == []
    assert not list((bench.base / "data" / "sessions").iterdir())


@pytest.mark.slow
@pytest.mark.req("SBX-09", "SEC-02")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", REAL)
async def test_a_backend_holds_the_limits_it_promises(name: str, bench: Bench) -> None:
    only = {info.id for info in PROBES if info.group == "limits"}
    report = await run_probes(name, bench.settings, bench.owner, only=only)
    assert report.usable, report.reason
    assert {result.info.id: result.detail for result in report.broken} == {}
    assert report.disproved == Enforces.NOTHING
