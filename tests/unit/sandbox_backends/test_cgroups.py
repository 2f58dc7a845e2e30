"""Control groups for real, in whatever version this machine has."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox_backends.cgroups import Ceilings, ControlGroup, create_group, held_group, settings_of
from sandbox_backends.claims import sweep_groups
from sandbox_backends.contract import Enforces, Limits
from sandbox_backends.errors import BackendUnavailableError, InvalidSpecError
from sandbox_backends.hierarchies import TOP, Hierarchies, find_hierarchies
from tests.needs import give_up

SMALL = Ceilings(memory_bytes=64 << 20, pids=20, cpus=0.25)
pytestmark = pytest.mark.needs("root")


@pytest.fixture
def name() -> str:
    if not find_hierarchies().controllers:
        give_up("root", "no control groups can be written here")
    return f"test-{secrets.token_hex(4)}"


@pytest.fixture
def group(name: str) -> Iterator[ControlGroup]:
    with held_group(name, SMALL, find_hierarchies()) as made:
        yield made


def run_in(group: ControlGroup, code: str, timeout_s: float = 10) -> subprocess.CompletedProcess[str]:
    enter = "".join(f"open({entry!r}, 'w').write(str(os.getpid())); " for entry in group.entries)
    argv = [sys.executable, "-c", f"import os; {enter}\n{code}"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)


def test_root_has_groups_that_hold_memory_processes_and_cpu(name: str) -> None:
    assert find_hierarchies().enforces == Enforces.MEMORY | Enforces.PROCESSES | Enforces.CPU


def test_memory_over_the_ceiling_kills_and_is_counted(group: ControlGroup) -> None:
    assert group.oom_kills() == 0
    assert run_in(group, "b = bytearray(200 << 20); b[::4096] = b'x' * len(b[::4096])").returncode == -9
    assert group.oom_kills() == 1
    assert run_in(group, "b = bytearray(20 << 20)").returncode == 0


def test_processes_over_the_ceiling_are_refused(group: ControlGroup) -> None:
    code = """
import time
made = 0
try:
    while made < 100:
        if os.fork() == 0:
            time.sleep(0.3)
            os._exit(0)
        made += 1
except OSError:
    print(made)
"""
    assert run_in(group, code).stdout.split() == ["19"]


def test_cpu_time_is_held_to_its_share(group: ControlGroup) -> None:
    code = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
    assert float(run_in(group, code).stdout) < 0.6


def test_ending_a_group_kills_what_forks_all_the_time(name: str) -> None:
    ceilings = Ceilings(memory_bytes=256 << 20, pids=60, cpus=1)
    group = create_group(name, ceilings, find_hierarchies())
    enter = "; ".join(f"echo $$ >{entry}" for entry in group.entries)
    bomb = subprocess.Popen(["bash", "-c", f"{enter}; f() {{ f | f & f; }}; f"], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 5
        while len(group.pids()) < 40 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert group.pids()
        assert group.end()
    finally:
        bomb.kill()
        bomb.wait()
    assert not any(directory.exists() for directory in group.directories)


def test_group_of_a_dead_owner_is_found_by_its_name_and_ended(name: str) -> None:
    made = create_group(name, SMALL, find_hierarchies())
    sleeper = subprocess.Popen(["sleep", "60"])
    for entry in made.entries:
        Path(entry).write_text(str(sleeper.pid))
    assert ControlGroup(name, find_hierarchies()).end()
    assert sleeper.wait(5) == -9
    assert made.end()  # it does not mind that all is gone


@pytest.mark.req("SBX-05")
def test_sweeping_removes_old_groups_that_nobody_claims_and_no_other(name: str) -> None:
    hierarchies = find_hierarchies()
    made = {kind: create_group(f"{name}-{kind}", SMALL, hierarchies) for kind in ("mine", "new", "busy", "dead")}
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        for kind in ("new", "busy", "dead"):
            made[kind].disown()
        for entry in made["busy"].entries:
            Path(entry).write_text(str(sleeper.pid))
        for kind in ("mine", "busy", "dead"):
            for directory in made[kind].directories:
                os.utime(directory, (time.time() - 3600,) * 2)
        sweep_groups(hierarchies)
        left = {kind for kind, group in made.items() if all(directory.exists() for directory in group.directories)}
        assert left == {"mine", "new", "busy"}
    finally:
        for group in made.values():
            assert group.end()
        sleeper.wait(5)


@pytest.mark.alone  # it sweeps up what others have made this very moment and not claimed yet
def test_claim_of_a_controller_ends_with_it_and_is_not_passed_on(name: str) -> None:
    code = f"""
import subprocess
from sandbox_backends.cgroups import create_group, Ceilings
from sandbox_backends.hierarchies import find_hierarchies
create_group({name!r}, Ceilings(memory_bytes=1 << 26, pids=9, cpus=1.0), find_hierarchies())
print(subprocess.Popen(["sleep", "60"], stdout=-3, stderr=-3).pid)
"""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    try:
        sweep_groups(find_hierarchies(), older_than_s=-1)
        assert not any(directory.exists() for directory in find_hierarchies().groups(name))
    finally:
        os.kill(int(done.stdout), 9)
        ControlGroup(name, find_hierarchies()).end()


def test_many_that_end_one_group_at_once_do_not_mind_each_other(name: str) -> None:
    hierarchies = find_hierarchies()
    for _ in range(4):
        made = create_group(name, SMALL, hierarchies)
        sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
        for sleeper in sleepers:
            for entry in made.entries:
                Path(entry).write_text(str(sleeper.pid))
        with ThreadPoolExecutor(6) as pool:
            ended = [pool.submit(ControlGroup(name, hierarchies).end) for _ in range(6)]
            assert all(one.result(10) for one in ended)
        assert [sleeper.wait(5) for sleeper in sleepers] == [-9] * 3
        made.end()


def test_group_that_is_gone_while_it_freezes_is_no_error(tmp_path: Path) -> None:
    """Another reaper was faster by one step."""
    (tmp_path / TOP / "g").mkdir(parents=True)
    (tmp_path / TOP / "g" / "cgroup.procs").write_text("0\n")
    (tmp_path / TOP / "g" / "freezer.state").symlink_to("/dev/null")  # never says that it is done
    group = ControlGroup("g", Hierarchies(controllers={"freezer": tmp_path}, unified=None))
    timer = threading.Timer(0.03, shutil.rmtree, (tmp_path / TOP / "g",))
    timer.start()
    assert group.end(within_s=1)
    timer.join()


def test_name_that_would_lead_out_is_refused() -> None:
    for bad in ("..", "a/b", "", "."):
        with pytest.raises(InvalidSpecError):
            ControlGroup(bad, find_hierarchies())


def test_group_that_cannot_be_made_leaves_nothing_and_says_why(name: str) -> None:
    hierarchies = find_hierarchies()
    impossible = Ceilings(memory_bytes=-5, pids=-5, cpus=1)
    with pytest.raises(BackendUnavailableError, match="control group"), held_group(name, impossible, hierarchies):
        pass
    assert not any(directory.exists() for directory in hierarchies.groups(name))


def test_without_hierarchies_a_group_holds_and_counts_nothing(name: str) -> None:
    with held_group(name, SMALL, Hierarchies(controllers={}, unified=None)) as group:
        assert (group.entries, group.oom_kills(), group.pids()) == ((), 0, set())


def test_read_only_mount_is_not_offered(tmp_path: Path) -> None:
    """In a container the groups are often mounted so."""
    code = "from sandbox_backends.hierarchies import find_hierarchies; print(find_hierarchies().controllers)"
    script = (
        "for m in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/self/mounts); do mount -o remount,bind,ro \"$m\"; done; "
        'exec "$0" -c "$1"'
    )
    argv = ["unshare", "-m", "--propagation", "private", "sh", "-c", script, sys.executable, code]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=15, check=True)
    assert done.stdout.strip() == "{}"


def test_mount_names_are_unquoted_and_other_mounts_left_out(tmp_path: Path) -> None:
    odd = tmp_path / "a b"
    odd.mkdir()
    (odd / "cgroup.procs").touch()
    table = tmp_path / "mounts"
    table.write_text(f"x /tmp tmpfs rw 0 0\ncgroup {tmp_path}/a\\040b cgroup rw,memory,pids 0 0\n")
    found = find_hierarchies(str(table))
    assert found.controllers == {"memory": odd, "pids": odd}
    assert found.groups("g") == (odd / TOP / "g",)
    assert found.enforces == Enforces.MEMORY | Enforces.PROCESSES


def unified(path: Path, **files: str) -> Path:
    """A directory such as a version 2 mount is, for what cannot be had beside version 1 on one machine."""
    path.mkdir()
    for name, text in {"procs": "", "controllers": "cpu memory pids", "subtree_control": "", **files}.items():
        (path / f"cgroup.{name}").write_text(text)
    return path


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"procs": "1\n2\n"}, {"memory", "pids", "cpu"}),  # the true root
        ({"events": "populated 0\n"}, {"memory", "pids", "cpu"}),  # delegated, empty
        ({"events": "populated 1\n", "procs": "7\n", "subtree_control": "pids"}, {"pids"}),
        ({"events": "populated 1\n", "procs": "7\n"}, set()),
        ({"controllers": "hugetlb"}, set()),
    ],
)
def test_version_2_is_used_where_it_hands_controllers_down(
    tmp_path: Path, files: dict[str, str], expected: set[str]
) -> None:
    mount = unified(tmp_path / "v2", **files)
    table = tmp_path / "mounts"
    table.write_text(f"cgroup2 {mount} cgroup2 rw 0 0\n")
    found = find_hierarchies(str(table))
    assert set(found.controllers) == expected
    assert found.unified == (mount if expected else None)


def test_version_2_files_hold_memory_with_swap_processes_and_cpu() -> None:
    assert settings_of("memory", SMALL, unified=True) == [("memory.max", str(64 << 20)), ("memory.swap.max", "0")]
    assert settings_of("pids", SMALL, unified=True) == [("pids.max", "20")]
    assert settings_of("cpu", SMALL, unified=True) == [("cpu.max", "25000 100000")]


def test_version_2_group_is_killed_at_once_and_its_end_awaited(name: str) -> None:
    mount = next(
        Path(p) for p in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup") if Path(p, "cgroup.controllers").exists()
    )
    (mount / TOP / name).mkdir(parents=True)
    group = ControlGroup(name, Hierarchies(controllers={"none": mount}, unified=mount))
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    for sleeper in sleepers:
        Path(group.entries[0]).write_text(str(sleeper.pid))
    assert group.pids() == {sleeper.pid for sleeper in sleepers}
    assert group.end()
    assert [sleeper.wait(5) for sleeper in sleepers] == [-9] * 3


def test_ceilings_leave_the_machine_working_when_the_spec_names_none() -> None:
    found = Ceilings.of(Limits())
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < found.memory_bytes < machine
    assert 0 < found.cpus <= (os.cpu_count() or 1)
    assert Ceilings.of(Limits(memory_bytes=1 << 28, pids=9, cpus=0.5)) == Ceilings(
        memory_bytes=1 << 28, pids=9, cpus=0.5
    )
