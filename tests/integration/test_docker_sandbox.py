"""Docker sandboxes in a real engine: what holds inside, whose the files are, what is reached (SBX-05)."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sandbox_backends.contract import ExecRequest, Limits, Network, Outcome, Root, SandboxSession
from sandbox_backends.docker import DockerBackend
from sandbox_backends.errors import BackendUnavailableError, FileError, UnsupportedSpecError
from tests.docker_engine import container_of, engine_client, give_to_tester, none_left
from tests.places import Bench, make_bench

pytestmark = [pytest.mark.needs("docker"), pytest.mark.req("SBX-05")]
MIB = 1 << 20


@pytest.fixture
def bench(tmp_path: Path, sandbox_image: str) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    yield made
    made.owner.close()


@pytest.fixture
def deep_bench(tmp_path: Path, sandbox_image: str) -> Iterator[Bench]:
    made = make_bench(tmp_path / ("d" * 100) / ("e" * 100))
    yield made
    made.owner.close()


@pytest.fixture
def client() -> Iterator[Any]:
    with engine_client() as made:
        yield made


def sh(script: str, **more: Any) -> ExecRequest:
    return ExecRequest(argv=("/bin/sh", "-c", script), **{"timeout_s": 10, **more})


async def said(session: SandboxSession, script: str) -> str:
    result = await session.exec(sh(script))
    assert result.ok, result
    return result.stdout.decode().strip()


# -- whose it is --


@pytest.mark.needs("tester")
async def test_files_belong_to_the_project_s_owner_with_the_usual_mode(bench: Bench) -> None:
    """B022, B023, B024."""
    uid = give_to_tester(bench.project)
    async with bench.open("docker") as session:
        await session.write_file("deep/down/a.txt", b"a")
        assert await said(session, "echo b > b.txt; id -u; whoami; echo $HOME; touch ~/x && echo home") == (
            f"{uid}\nagent\n/home/agent\nhome"
        )
    for name in ("deep", "deep/down", "deep/down/a.txt", "b.txt"):
        info = (bench.project / name).stat()
        assert info.st_uid == uid
        assert info.st_mode & 0o777 == (0o644 if name.endswith(".txt") else 0o755)


@pytest.mark.needs("tester")
async def test_written_file_keeps_the_mode_it_had(bench: Bench) -> None:
    give_to_tester(bench.project)
    script = bench.project / "run.sh"
    script.write_text("old")
    give_to_tester(script)
    script.chmod(0o750)
    async with bench.open("docker") as session:
        await session.write_file("run.sh", b"new")
    assert (script.read_text(), script.stat().st_mode & 0o777) == ("new", 0o750)


@pytest.mark.needs("root")
async def test_desk_has_a_user_of_its_own_that_lasts(bench: Bench) -> None:
    bench.label = "desk"
    home = bench.settings.data_dir / "session_homes" / "test"
    found = []
    for _ in range(2):
        async with bench.open("docker", bench.spec(home=home)) as session:
            found.append(await said(session, "id -u; cat ~/login 2>/dev/null || echo me > ~/login"))
    assert found[1] == f"{found[0]}\nme"
    assert int(found[0]) == bench.project.stat().st_uid > 1000


@pytest.mark.needs("root")
async def test_project_of_root_is_worked_on_without_a_capability_and_said_to_be(bench: Bench) -> None:
    async with bench.open("docker") as session:
        assert "belongs to root" in session.warnings[0]
        result = await session.exec(sh("id -u; touch f && chmod u+s f; chown 1001 f; echo x > /x"))
        assert result.stdout == b"0\n"
        assert (bench.project / "f").stat().st_mode & 0o6000 == 0
        assert (bench.project / "f").stat().st_uid == 0
        assert await said(session, "grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status | cut -f2 | sort -u") == "0" * 16


# -- what holds --


@pytest.mark.needs("tester")
async def test_inside_is_hardened(bench: Bench) -> None:
    give_to_tester(bench.project)
    async with bench.open("docker") as session:
        status = dict(row.split(":\t", 1) for row in (await said(session, "cat /proc/self/status")).splitlines())
        assert (status["NoNewPrivs"], status["Seccomp"], status["Seccomp_filters"]) == ("1", "2", "2")
        assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        for path in ("/x", "/etc/x", "/usr/x", "/home/x", "/run/bubbles/x", "/run/bubbles/link/x", "/dev/x"):
            assert not (await session.exec(sh(f"touch {path}"))).ok, path
        for path in ("/proc/1/environ", "/proc/1/mem", "/proc/1/fd/0", "/proc/1/root/etc/passwd"):
            assert not (await session.exec(sh(f"cat {path} >/dev/null"))).ok, path
        assert await said(session, "ls /run/bubbles/link") == ""
        assert await said(session, "find / -name '*docker*.sock' 2>/dev/null || true") == ""
        assert await said(session, "ls /sys/class/net") == "lo"
        assert await said(session, "cat /proc/self/cgroup | cut -d: -f3 | sort -u") == "/"


async def test_orphans_are_reaped_and_the_container_s_own_process_is_the_runner(bench: Bench) -> None:
    async with bench.open("docker") as session:
        for _ in range(5):
            await said(session, "(setsid sleep 0.05 >/dev/null 2>&1 &)")
        await asyncio.sleep(0.3)
        states = await said(session, "for p in /proc/[0-9]*; do sed 's/.*) //' $p/stat 2>/dev/null | cut -c1; done")
        assert "Z" not in states.split()
        assert "start.py" in (await said(session, "tr '\\0' ' ' </proc/1/cmdline"))


async def test_read_only_root_is_read_only_and_a_writable_one_below_it_is_not(bench: Bench) -> None:
    inner = bench.project / "inner"
    inner.mkdir()
    roots = (Root(path=bench.project, writable=False), Root(path=inner))
    async with bench.open("docker", replace(bench.spec(), roots=roots)) as session:
        with pytest.raises(FileError):
            await session.write_file("f", b"")
        assert not (await session.exec(sh("touch f"))).ok
        await session.write_file(f"{inner}/f", b"x")
    assert (inner / "f").read_bytes() == b"x"


@pytest.mark.needs("root", "tester")
async def test_project_below_the_home_of_root_is_reached(bench: Bench) -> None:
    with tempfile.TemporaryDirectory(prefix=".bubbles-test-", dir="/root") as held:
        project = Path(held) / "deep" / "project"
        project.mkdir(parents=True)
        give_to_tester(project)
        spec = replace(bench.spec(), roots=(Root(path=project),))
        async with bench.open("docker", spec) as session:
            assert await said(session, "pwd; ls -A /root; ls -A ..") == f"{project}\n{Path(held).name}\nproject"
            await session.write_file("f", b"")


async def test_long_data_directory_fits(deep_bench: Bench) -> None:
    """The path in a unix socket's address ends after 108 bytes."""
    async with deep_bench.open("docker") as session:
        assert (await session.exec(sh("true"))).ok


# -- limits --


@pytest.mark.parametrize("script", ["exec python3 -c '%s'", "sh -c \"python3 -c '%s'; exit \\$?\"; exit $?"])
async def test_memory_limit_is_told_and_the_sandbox_goes_on(bench: Bench, script: str) -> None:
    async with bench.open("docker", bench.spec(limits=Limits(memory_bytes=96 * MIB))) as session:
        result = await session.exec(sh(script % "x = bytearray(300 << 20)"))
        assert (result.outcome, result.exit_code) == (Outcome.OOM, None)
        assert await said(session, "python3 -c 'print(len(bytearray(10 << 20)))'") == str(10 * MIB)


async def test_full_temporary_directories_do_not_block_commands(bench: Bench) -> None:
    async with bench.open("docker", bench.spec(limits=Limits(memory_bytes=64 * MIB))) as session:
        for path in ("/tmp", "/dev/shm"):
            result = await session.exec(sh(f"head -c 80m /dev/zero >{path}/full"))
            assert b"No space left" in result.stderr
        assert await said(session, "python3 -c 'print(1)'") == "1"
        await session.write_file("f", b"x" * MIB)


async def test_process_limit_holds_and_passes(bench: Bench) -> None:
    async with bench.open("docker", bench.spec(limits=Limits(pids=30))) as session:
        result = await session.exec(sh("for i in $(seq 100); do sleep 5 & done; wait", timeout_s=1))
        assert result.outcome in (Outcome.TIMED_OUT, Outcome.EXITED)
        assert b"ork" in result.stderr  # Cannot fork
        assert await said(session, "echo on") == "on"


async def test_open_files_and_core_dumps_are_limited(bench: Bench) -> None:
    async with bench.open("docker", bench.spec(limits=Limits(open_files=100))) as session:
        assert await said(session, "ulimit -n; ulimit -Hn; ulimit -c") == "100\n100\n0"


@pytest.mark.req("SBX-08")
async def test_limit_that_cannot_be_held_is_refused_and_makes_no_container(bench: Bench, client: Any) -> None:
    for limits in (Limits(disk_bytes=1 << 30), Limits(memory_bytes=64 * MIB, tmp_bytes=64 * MIB)):
        with pytest.raises(UnsupportedSpecError):
            async with bench.open("docker", bench.spec(limits=limits)):
                pass
    assert await none_left(bench, client)


# -- ways in and out --


@pytest.mark.parametrize("transport", ["unix", "attach"])
@pytest.mark.req("SBX-02")
async def test_both_transports_carry_the_same(bench: Bench, client: Any, transport: Any) -> None:
    data = os.urandom(3 * MIB)
    async with DockerBackend(bench.settings, bench.owner, transport).open(bench.spec()) as session:
        request = ExecRequest(argv=("cat",), stdin=data, max_output_bytes=len(data), timeout_s=10)
        assert (await session.exec(request)).stdout == data
        await session.write_file("f", data)
        assert await session.read_file("f") == data
        flood = await session.exec(sh("head -c 50m /dev/zero", max_output_bytes=1000))
        assert flood.dropped_bytes == 50 * MIB - 1000
        results = await asyncio.gather(*(session.exec(sh(f"sleep 0.1; echo {n}")) for n in range(20)))
        assert [int(result.stdout) for result in results] == list(range(20))
    assert await none_left(bench, client)


async def test_many_sessions_open_at_once(bench: Bench, client: Any) -> None:
    async def one(number: int) -> bytes:
        async with backend.open(bench.spec(session=f"s{number}")) as session:
            return (await session.exec(sh(f"echo {number}"))).stdout

    backend = bench.backend("docker")
    assert await asyncio.gather(*map(one, range(6))) == [b"%d\n" % n for n in range(6)]
    assert await none_left(bench, client)


@pytest.mark.parametrize("transport", ["unix", "attach"])
async def test_closed_session_keeps_no_descriptor(bench: Bench, transport: Any) -> None:
    async def held() -> int:
        return len(await asyncio.to_thread(os.listdir, "/proc/self/fd"))

    backend = DockerBackend(bench.settings, bench.owner, transport)
    found = []
    for _ in range(3):
        async with backend.open(bench.spec()):
            pass
        found.append(await held())
    assert found[0] == found[1] == found[2]


async def test_container_carries_who_it_belongs_to(bench: Bench, client: Any) -> None:
    async with bench.open("docker") as session:
        labels = client.inspect_container(container_of(client, session.id))["Config"]["Labels"]
        assert labels["org.bubbles.sandbox"] == session.id
        assert labels["org.bubbles.sandbox.owner"] == bench.owner.id
        assert labels["org.bubbles.sandbox.session"] == "test"


@pytest.fixture
def server(sandbox_image: str) -> Iterator[str]:
    """A web server in a container of its own; its address on the engine's default network."""
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    testcontainers_config.ryuk_disabled = True  # its image comes from a registry; the context removes the container
    with DockerContainer(sandbox_image).with_command("python3 -m http.server -d /etc 8000") as made:
        wrapped = made.get_wrapped_container()
        wrapped.reload()
        yield wrapped.attrs["NetworkSettings"]["Networks"]["bridge"]["IPAddress"]


FETCH = "for i in 1 2 3 4 5; do curl -sf -m 3 http://%s:8000/hostname && exit 0; sleep 0.2; done; exit 9"


@pytest.mark.req("SBX-07")
async def test_full_network_reaches_a_neighbour_and_the_default_reaches_nothing(bench: Bench, server: str) -> None:
    async with bench.open("docker", bench.spec(network=Network.FULL)) as session:
        assert (await session.exec(sh(FETCH % server))).ok
    async with bench.open("docker") as session:
        assert (await session.exec(sh(FETCH % server))).exit_code == 9


class _Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[int]:
    """A web server of this machine; its port on 127.0.0.1."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hello) as made:
        thread = threading.Thread(target=partial(made.serve_forever, poll_interval=0.01))
        thread.start()
        yield made.server_port
        made.shutdown()
        thread.join()


@pytest.mark.req("SBX-07")
async def test_allow_list_lets_out_what_it_names_and_tells_of_the_rest(bench: Bench, web: int) -> None:
    spec = bench.spec(network=Network.ALLOWLIST, allow=(f"127.0.0.1:{web}",))
    async with bench.open("docker", spec) as session:
        assert session.env["HTTP_PROXY"] == "http://127.0.0.1:3128"
        fetch = "curl -s -m 5 --noproxy '' -o /dev/null -w '%{http_code}' "
        assert await said(session, f"{fetch} http://127.0.0.1:{web}/") == "200"
        assert await said(session, f"{fetch} http://127.0.0.1:{web + 1}/") == "403"
        assert await said(session, "ls /sys/class/net") == "lo"
    assert len(bench.refusals) == 1
    assert f"127.0.0.1:{web + 1}" in bench.refusals[0]


# -- what cannot be --


async def test_missing_image_is_said_with_how_to_build_it(bench: Bench) -> None:
    backend = DockerBackend(replace(bench.settings, docker_image="bubbles-no-such-image:1"), bench.owner)
    probe = await backend.probe()
    assert not probe.usable
    assert "bubbles-no-such-image:1" in probe.reason
    assert "bubbles sandbox image build" in probe.remedy
    with pytest.raises(BackendUnavailableError, match="sandbox image build"):
        async with backend.open(bench.spec()):
            pass


async def test_unknown_runtime_is_said_with_those_that_are_known(bench: Bench) -> None:
    backend = DockerBackend(replace(bench.settings, docker_runtime="no-such-runtime"), bench.owner)
    probe = await backend.probe()
    assert not probe.usable
    assert "no-such-runtime" in probe.reason
    assert "runc" in probe.reason
    with pytest.raises(BackendUnavailableError, match="no-such-runtime"):
        async with backend.open(bench.spec()):
            pass


async def test_configured_runtime_is_used(bench: Bench, client: Any) -> None:
    backend = DockerBackend(replace(bench.settings, docker_runtime="runc"), bench.owner)
    async with backend.open(bench.spec()) as session:
        assert client.inspect_container(container_of(client, session.id))["HostConfig"]["Runtime"] == "runc"
