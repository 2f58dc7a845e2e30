"""``local_isolated``: a HOME of its own, and under root a user of its own as well (SBX-03)."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_backends.contract import Enforces, ExecRequest, Limits, Outcome, Root, SandboxSpec
from sandbox_backends.errors import PathRefusedError, UnsupportedSpecError
from sandbox_backends.hierarchies import find_hierarchies
from sandbox_backends.local_isolated import LocalIsolatedBackend
from sandbox_backends.privileges import usable_uids
from tests.as_tester import directory_of_tester, run_as_tester
from tests.needs import TESTER, give_up
from tests.places import Bench, make_bench

as_root = pytest.mark.needs("root")
REPOSITORY = Path(__file__).parents[3]


def sh(script: str, timeout_s: float = 10.0) -> ExecRequest:
    return ExecRequest(argv=("/bin/sh", "-c", script), timeout_s=timeout_s)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    made.label = "desk"
    yield made
    made.owner.close()


def key_spec(bench: Bench, key: str) -> SandboxSpec:
    return bench.spec(session=key, home=bench.base / "data" / "session_homes" / key)


@pytest.mark.req("SBX-03")
async def test_logins_of_two_sessions_are_kept_apart(bench: Bench) -> None:
    tools = (
        "HOME XDG_CONFIG_HOME APPDATA AWS_CONFIG_FILE KUBECONFIG CLOUDSDK_CONFIG GH_CONFIG_DIR DOCKER_CONFIG".split()
    )
    for key in ("a", "b"):
        home = str(bench.base / "data" / "session_homes" / key)
        async with bench.open("local_isolated", key_spec(bench, key)) as session:
            env = json.loads((await session.exec(ExecRequest(argv=("python3", "-c", DUMP), timeout_s=10))).stdout)
            assert all(env[name].startswith(home) for name in tools)
            result = await session.exec(sh("git config --global user.name $HOME; cat ~/.gitconfig"))
            assert f"name = {home}\n".encode() in result.stdout


DUMP = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.mark.req("SBX-03", "SEC-03")
async def test_logins_and_keys_of_the_person_are_not_passed_on(bench: Bench) -> None:
    bench.host_env = {
        "PATH": os.environ["PATH"],
        "HOME": "/home/person",
        "SSH_AUTH_SOCK": "/run/agent.sock",
        "ANTHROPIC_API_KEY": "secret",
        "HTTPS_PROXY": "http://user:secret@proxy",
        "LC_ALL": "C",
    }
    async with bench.open("local_isolated", key_spec(bench, "a")) as session:
        result = await session.exec(sh("env; cat /proc/$PPID/environ /proc/self/environ"))
    assert b"secret" not in result.stdout
    assert b"/home/person" not in result.stdout
    assert b"/run/agent.sock" not in result.stdout
    assert b"LC_ALL=C" in result.stdout


@pytest.mark.req("SBX-03")
async def test_home_is_out_of_reach_of_file_tools(bench: Bench) -> None:
    async with bench.open("local_isolated", key_spec(bench, "a")) as session:
        home = session.env["HOME"]
        assert (await session.exec(sh("echo token > ~/.token && ln -s ~/.token link"))).ok
        for path in (f"{home}/.token", "link", "../data/session_homes/a/.token"):
            with pytest.raises(PathRefusedError):
                await session.read_file(path)


@pytest.mark.req("SBX-08")
async def test_what_it_cannot_hold_is_refused(bench: Bench) -> None:
    backend = bench.backend("local_isolated")
    assert Enforces.CREDENTIALS in backend.enforces
    assert not backend.enforces & (Enforces.PROCESSES | Enforces.FILESYSTEM | Enforces.NETWORK)
    for bad in (
        replace(bench.spec(), limits=Limits(pids=10)),
        replace(bench.spec(), limits=Limits(tmp_bytes=1 << 20)),
        replace(bench.spec(), requires=Enforces.FILESYSTEM),
    ):
        with pytest.raises(UnsupportedSpecError):
            async with backend.open(bad):
                pass


@as_root
async def test_session_of_roots_runs_as_a_user_of_its_own_in_directories_only_root_can_walk_to(bench: Bench) -> None:
    """``tmp_path`` lies below a directory of mode 0700, as a data directory in /root does."""
    async with bench.open("local_isolated", key_spec(bench, "a")) as session:
        result = await session.exec(sh("id -u; id -G; pwd; touch made ~/made && cat /proc/self/status"))
        uid, groups, cwd, *status = result.stdout.decode().splitlines()
        assert int(uid) in usable_uids()
        assert groups == uid
        assert cwd == str(bench.project)
        assert (bench.project / "made").stat().st_uid == int(uid)
        fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
        assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        assert fields["NoNewPrivs"] == "1"
        await session.write_file("by-tool", b"")
        assert (bench.project / "by-tool").stat().st_uid == int(uid)


@as_root
async def test_one_session_of_roots_can_neither_read_nor_signal_another(bench: Bench) -> None:
    desks = {}
    for key in ("a", "b"):
        desks[key] = bench.base / "data" / "sessions" / key
        desks[key].mkdir(parents=True)
    specs = {key: replace(key_spec(bench, key), roots=(Root(path=desk, label="desk"),)) for key, desk in desks.items()}
    async with bench.open("local_isolated", specs["a"]) as a, bench.open("local_isolated", specs["b"]) as b:
        sleeper = await a.start(ExecRequest(argv=("sleep", "30"), timeout_s=None))
        pid = (await a.exec(sh("pgrep -n sleep"))).stdout.decode().strip()
        assert (await a.exec(sh("echo token > ~/token; chmod 600 ~/token"))).ok
        for script in (f"kill -0 {pid}", f"cat {a.env['HOME']}/token", f"ls {desks['a']}", f"cat /proc/{pid}/environ"):
            assert not (await b.exec(sh(script))).ok
        assert (await a.exec(sh("cat ~/token"))).ok
        await sleeper.signal(signal.SIGKILL)


@as_root
@pytest.mark.needs("tester")
async def test_project_of_an_ordinary_user_is_worked_on_as_that_user(bench: Bench) -> None:
    tester = pwd.getpwnam(TESTER)
    os.chown(bench.project, tester.pw_uid, tester.pw_gid)
    bench.label = "project"
    async with bench.open("local_isolated", key_spec(bench, "a")) as session:
        assert session.warnings == ()
        assert (await session.exec(sh("id -un && touch made && touch ~/made"))).stdout.strip() == TESTER.encode()
    assert (bench.project / "made").owner() == TESTER


@as_root
async def test_project_of_root_is_warned_of_and_has_no_capability(bench: Bench) -> None:
    bench.label = "project"
    async with bench.open("local_isolated", key_spec(bench, "a")) as session:
        assert any("bubblewrap" in warning for warning in session.warnings)
        result = await session.exec(sh("id -u; grep CapBnd /proc/self/status; mount -t tmpfs none /mnt"))
        assert result.stdout.split() == [b"0", b"CapBnd:", b"0" * 16]
        assert result.exit_code != 0


@as_root
async def test_memory_of_a_session_of_roots_is_held_as_a_whole(bench: Bench) -> None:
    if not find_hierarchies().controllers:
        give_up("root", "no control groups can be written here")
    spec = replace(bench.spec(), limits=Limits(memory_bytes=64 << 20))
    async with bench.open("local_isolated", spec) as session:
        hog = ExecRequest(argv=("python3", "-c", "b = bytearray()\nwhile 1: b += bytes(1 << 20)"), timeout_s=10)
        assert (await session.exec(hog)).outcome is Outcome.OOM
        assert (await session.exec(sh("true"))).ok


@as_root
@pytest.mark.req("SBX-06")
async def test_process_that_hides_its_origin_ends_with_its_session_of_roots(bench: Bench) -> None:
    """Environment cleared, own session, parent gone: no mark is left on it; its control group still knows it."""
    if not find_hierarchies().controllers:
        give_up("root", "no control groups can be written here")
    hide = "(setsid env -i sh -c 'setsid env -i sleep 86321 &' &) ; sleep 0.2; pgrep -f '^sleep 8632[1]'"
    async with bench.open("local_isolated") as session:
        pid = int((await session.exec(sh(hide))).stdout)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@as_root
async def test_cancelled_opening_leaves_nothing(bench: Bench) -> None:
    async with bench.open("local_isolated"):
        pass
    for number in range(15):
        place = bench.open("local_isolated")
        opening = asyncio.create_task(place.__aenter__())
        await asyncio.sleep(number * 0.003)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        if not opening.cancelled():
            await place.__aexit__(None, None, None)
    left = await asyncio.to_thread(lambda: [path.name for path in (bench.base / "data" / "run").iterdir()])
    assert [name for name in left if name != "owners" and not name.startswith("runner-")] == []


@pytest.mark.needs("tester")
def test_session_of_an_ordinary_controller_has_a_home_of_its_own() -> None:
    code = """
import asyncio, sys
from pathlib import Path
from sandbox_backends.contract import BackendSettings, ExecRequest, Root, SandboxSpec
from sandbox_backends.local_isolated import LocalIsolatedBackend
from sandbox_backends.owner import Owner
async def main(base):
    for name in ("data", "person", "project"): (base / name).mkdir()
    settings = BackendSettings(data_dir=base / "data", person_home=base / "person")
    backend = LocalIsolatedBackend(settings, Owner(base / "data"))
    assert (await backend.probe()).usable
    spec = SandboxSpec(session="s", roots=(Root(path=base / "project"),), home=base / "data" / "session_homes" / "s")
    async with backend.open(spec) as session:
        result = await session.exec(ExecRequest(argv=("sh", "-c", "id -un; echo $HOME; touch ~/x"), timeout_s=10))
        print(result.stdout.decode(), session.warnings)
asyncio.run(main(Path(sys.argv[1])))
"""
    with directory_of_tester() as base:
        name, home, warnings = run_as_tester(code, str(base)).stdout.split()
        assert (name, home, warnings) == (TESTER, f"{base}/data/session_homes/s", "()")
        assert (Path(home) / "x").owner() == TESTER


async def test_backend_says_what_it_is_made_of(bench: Bench) -> None:
    probe = await LocalIsolatedBackend(bench.settings, bench.owner).probe()
    assert probe.usable
    assert probe.version.startswith("Python 3.")
