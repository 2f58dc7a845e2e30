"""What a docker sandbox's container is, and what its engine's answers come to, without an engine."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_backends.contract import BackendSettings, Enforces, Limits, Network, Root, SandboxSpec
from sandbox_backends.docker import DockerBackend, list_containers, reap
from sandbox_backends.docker.attach import attach
from sandbox_backends.docker.ceilings import TEMPORARY, Ceilings, ceilings
from sandbox_backends.docker.container import HOME, INSIDE_LINK, Plan, body, lay
from sandbox_backends.docker.engine import Engine, EngineInfo, read_info
from sandbox_backends.docker.fate import explain
from sandbox_backends.errors import BackendUnavailableError, UnsupportedSpecError
from sandbox_backends.owner import Owner

MIB = 1 << 20
INFO = EngineInfo(
    version="20.10.24",
    api=(1, 41),
    rootless=False,
    user_mapping=False,
    desktop=False,
    memory=True,
    pids=True,
    cpu=True,
    n_cpus=4,
    memory_bytes=16 << 30,
    runtimes={"runc": "runc", "safe": "/usr/bin/runsc"},
)


def plan(directory: Path, *roots: Root, **changes: Any) -> Plan:
    made = Plan(
        id="test-1",
        spec=SandboxSpec(session="test", roots=roots or (Root(path=Path("/srv/project")),)),
        image="image",
        user=(1001, 1002),
        peer_uid=1001,
        home=Path("/data/home"),
        ceilings=ceilings(Limits(), INFO),
        directory=directory,
        lib=Path("/data/run/runner-1"),
    )
    return replace(made, **changes)


def mounts(made: Plan) -> dict[str, dict[str, Any]]:
    return {mount["Target"]: mount for mount in body(made)["HostConfig"]["Mounts"]}


# -- the container --


@pytest.mark.req("SBX-05")
def test_container_is_hardened_whatever_the_spec_says(tmp_path: Path) -> None:
    for network in Network:
        spec = SandboxSpec(session="test", roots=(Root(path=Path("/srv/project")),), network=network)
        request = body(plan(tmp_path, spec=spec))
        host = request["HostConfig"]
        assert request["User"] == "1001:1002"
        assert host["CapDrop"] == ["ALL"]
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert host["ReadonlyRootfs"] is True
        assert host["Memory"] == host["MemorySwap"] > 0
        assert host["PidsLimit"] > 0
        assert host["NanoCpus"] > 0
        assert host["AutoRemove"] is True
        assert host["NetworkMode"] == ("bridge" if network is Network.FULL else "none")
        assert "Privileged" not in host
        assert "CapAdd" not in host
        assert "Devices" not in host


@pytest.mark.req("SBX-05")
def test_only_the_roots_and_the_home_are_writable(tmp_path: Path) -> None:
    roots = (Root(path=Path("/srv/project")), Root(path=Path("/srv/read"), writable=False))
    found = mounts(plan(tmp_path, *roots, tool_dirs=(Path("/opt/tool"),)))
    assert {target for target, mount in found.items() if not mount["ReadOnly"]} == {"/srv/project", HOME}
    assert {target for target in found if not target.startswith("/run/bubbles/")} == {
        *("/srv/project", "/srv/read", "/opt/tool", HOME, "/etc/passwd", "/etc/group")
    }


def test_what_is_mounted_below_a_read_only_root_stays_out(tmp_path: Path) -> None:
    found = mounts(plan(tmp_path, Root(path=Path("/srv/read"), writable=False)))
    assert found["/srv/read"]["BindOptions"]["NonRecursive"] is True


def test_nothing_of_the_host_is_in_the_environment_or_arguments(tmp_path: Path) -> None:
    request = body(
        plan(tmp_path, spec=SandboxSpec(session="t", roots=(Root(path=Path("/srv/p")),), env={"A": "s3cret"}))
    )
    assert "Env" not in request
    assert "s3cret" not in str(request)
    assert str(tmp_path) not in " ".join(request["Entrypoint"])


def test_runner_over_stdio_sees_no_socket_directory(tmp_path: Path) -> None:
    request = body(plan(tmp_path, stdio=True))
    assert request["Entrypoint"][-1] == "--stdio"
    assert request["OpenStdin"] is request["StdinOnce"] is True
    assert INSIDE_LINK not in {mount["Target"] for mount in request["HostConfig"]["Mounts"]}


def test_roots_below_root_s_home_are_reached_by_others(tmp_path: Path) -> None:
    made = plan(tmp_path, Root(path=Path("/root/.bubbles/sessions/a")), Root(path=Path("/srv/b")))
    lay(made)
    assert mounts(made)["/root"]["Source"] == str(tmp_path / "way")
    for path in ("way", "way/.bubbles", "way/.bubbles/sessions", "way/.bubbles/sessions/a"):
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o755
    assert "/root" not in mounts(replace(made, user=(0, 0)))


def test_names_are_those_of_the_sandbox_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        lay(plan(tmp_path))
    finally:
        os.umask(before)
    assert (tmp_path / "etc" / "passwd").read_text().startswith(f"agent:x:1001:1002:agent:{HOME}:")
    for path in ("etc/passwd", "etc/group", "etc", "link"):
        assert (tmp_path / path).stat().st_mode & 0o444 == 0o444


# -- ceilings --


@pytest.mark.req("SBX-05")
def test_default_ceilings_leave_the_machine_its_half() -> None:
    assert ceilings(Limits(), INFO).memory == 4096 * MIB
    assert ceilings(Limits(), replace(INFO, memory_bytes=1 << 30)).memory == 512 * MIB


@pytest.mark.req("SBX-08")
@pytest.mark.parametrize("memory", [None, 16 * MIB, 64 * MIB, 1 << 30, 1 << 40])
def test_full_temporary_directories_leave_memory_to_processes(memory: int | None) -> None:
    found = ceilings(Limits(memory_bytes=memory), INFO)
    assert found.memory is not None
    assert found.tmp * TEMPORARY <= found.memory // 2


@pytest.mark.req("SBX-08")
def test_temporary_directories_that_do_not_fit_into_memory_are_refused() -> None:
    assert ceilings(Limits(memory_bytes=64 * MIB, tmp_bytes=12 * MIB), INFO).tmp == 12 * MIB
    with pytest.raises(UnsupportedSpecError, match="raise memory_bytes"):
        ceilings(Limits(memory_bytes=64 * MIB, tmp_bytes=13 * MIB), INFO)


def test_more_processors_than_there_are_is_all_of_them() -> None:
    assert ceilings(Limits(cpus=64), INFO).cpus == 4
    assert ceilings(Limits(cpus=0.5), INFO).cpus == 0.5


def test_engine_without_limits_is_said_to_have_none() -> None:
    found = ceilings(Limits(), replace(INFO, memory=False, pids=False, cpu=False))
    assert (found.memory, found.pids, found.cpus) == (None, None, None)
    assert len(found.missing) == 1
    assert "memory, processes, CPU time" in found.missing[0]
    assert isinstance(found, Ceilings)


# -- what an engine says --


@pytest.mark.req("SBX-08")
def test_rootless_engine_on_cgroup_v1_enforces_no_limit() -> None:
    said = {
        "CgroupDriver": "none",
        "MemoryLimit": True,
        "PidsLimit": True,
        "CpuCfsQuota": True,
        "SecurityOptions": ["name=seccomp,profile=default", "name=rootless"],
    }
    found = read_info(said, {"Version": "24", "ApiVersion": "1.43"})
    assert found.rootless
    assert not found.enforces & (Enforces.MEMORY | Enforces.PROCESSES | Enforces.CPU)


def test_sockets_are_not_shared_with_a_kernel_of_its_own() -> None:
    assert INFO.shares_sockets(None)
    assert INFO.shares_sockets("runc")
    assert not INFO.shares_sockets("safe")
    assert not INFO.shares_sockets("kata-qemu")
    assert not replace(INFO, desktop=True).shares_sockets(None)


def event(action: str, **attributes: str) -> dict[str, Any]:
    return {"Action": action, "Actor": {"Attributes": attributes}}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([event("kill", signal="9"), event("die", exitCode="137"), event("destroy")], "killed or removed"),
        ([event("kill", signal="15"), event("die", exitCode="0"), event("stop"), event("destroy")], "stopped"),
        ([event("kill", signal="15"), event("die", exitCode="0")], "stopped"),
        ([event("oom"), event("die", exitCode="137"), event("destroy")], "memory ran out"),
        ([event("oom"), event("kill"), event("die", exitCode="137")], "killed or removed"),
        ([event("die", exitCode="137"), event("destroy")], "was killed"),
        ([event("die", exitCode="3")], "lacks a full Python 3.8"),
        ([event("die", exitCode="1")], "status 1"),
        ([], "restarted"),
        ([{"Action": "die"}, {}], "gone"),
    ],
)
def test_end_of_a_container_is_told_from_its_events(events: list[dict[str, Any]], expected: str) -> None:
    assert expected in explain(events, "image")


@pytest.fixture
def backend_at(tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "data").mkdir()
    owner = Owner(tmp_path / "data")

    def make(url: str) -> DockerBackend:
        settings = BackendSettings(data_dir=tmp_path / "data", person_home=tmp_path / "person", docker_url=url)
        return DockerBackend(settings, owner)

    yield make
    owner.close()


@contextmanager
def listening(path: Path, answer: bytes | Callable[[bytes], bytes]) -> Iterator[None]:
    """Something on a unix socket that gives one answer to whatever it is sent, or one that is made of it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with sock:
                    if asked := sock.recv(65536):
                        sock.sendall(answer if isinstance(answer, bytes) else answer(asked))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


async def test_engine_that_does_not_run_is_said_with_its_mend(tmp_path: Path, backend_at: Any) -> None:
    dead = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(dead))
    for path in (dead, tmp_path / "none.sock"):
        backend = backend_at(f"unix://{path}")
        probe = await backend.probe()
        assert not probe.usable
        assert "not running" in probe.reason or "not installed" in probe.reason
        assert probe.remedy
        with pytest.raises(BackendUnavailableError):
            async with backend.open(SandboxSpec(session="t", roots=(Root(path=_project(tmp_path)),))):
                pass


def _project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir(exist_ok=True)
    return tmp_path / "project"


async def test_engine_that_is_too_old_is_said_to_be(tmp_path: Path, backend_at: Any) -> None:
    text = b'{"Version": "18.06.1", "ApiVersion": "1.38"}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    with listening(tmp_path / "old.sock", head % len(text) + text):
        probe = await backend_at(f"unix://{tmp_path}/old.sock").probe()
    assert not probe.usable
    assert "18.06.1" in probe.reason
    assert "19.03" in probe.remedy


HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
VERSION = b'{"Version": "24.0.7", "ApiVersion": "1.43"}'
ABLE = b'{"MemoryLimit": true, "PidsLimit": true, "CpuCfsQuota": true, "NCPU": 2, "MemTotal": 4294967296}'
FORBIDDEN = (b"403 Forbidden", b'{"message": "blocked by policy"}')


def behind_a_proxy(answers: dict[str, tuple[bytes, bytes]]) -> Callable[[bytes], bytes]:
    """An engine's socket behind a proxy that answers these paths itself, by how they end, and lets through the rest."""
    known = {"/version": (b"200 OK", VERSION), "/info": (b"200 OK", ABLE), **answers}

    def answer(request: bytes) -> bytes:
        path = request.split(b" ")[1].decode().partition("?")[0]
        status, text = next((row for end, row in known.items() if path.endswith(end)), FORBIDDEN)
        return HEAD % (status, len(text), text)

    return answer


@pytest.mark.parametrize(
    ("path", "answer", "expected"),
    [
        ("/version", FORBIDDEN, "refused to say its version (/version): blocked by policy"),
        ("/info", FORBIDDEN, "refused to say what it can do (/info): blocked by policy"),
        ("/info", (b"500 Internal Server Error", b"no JSON"), "refused to say what it can do"),
        ("/info", (b"500 Internal Server Error", b"{}"), "does not answer as it should (500 Server Error"),
        ("/info", (b"500 Internal Server Error", b'"text"'), "does not answer as it should (500 Server Error"),
        ("/info", (b"200 OK", b"[]"), "does not answer as it should"),
        ("/info", (b"200 OK", b'{"NCPU": "many"}'), "does not answer as it should"),
        ("/info", (b"200 OK", b'{"NCPU": '), "does not answer as it should"),
        ("/version", (b"200 OK", b"[]"), "does not answer as it should"),
        ("/images/bubbles-sandbox:latest/json", FORBIDDEN, "refused to describe image bubbles-sandbox:latest"),
        ("/images/bubbles-sandbox:latest/json", (b"404 Not Found", b'{"message": "No such image: x"}'), "has no image"),
    ],
)
async def test_engine_that_refuses_a_question_is_unusable_in_a_sentence(
    tmp_path: Path, backend_at: Any, path: str, answer: tuple[bytes, bytes], expected: str
) -> None:
    with listening(tmp_path / "proxy.sock", behind_a_proxy({path: answer})):
        backend = backend_at(f"unix://{tmp_path}/proxy.sock")
        probe = await backend.probe()
        assert not probe.usable
        assert expected in probe.reason
        assert probe.remedy
        with pytest.raises(BackendUnavailableError, match=re.escape(expected)):
            async with backend.open(SandboxSpec(session="t", roots=(Root(path=_project(tmp_path)),))):
                pass


async def test_engine_that_will_not_list_its_containers_is_an_error_in_a_sentence(
    tmp_path: Path, backend_at: Any
) -> None:
    with listening(tmp_path / "proxy.sock", behind_a_proxy({})):
        settings = BackendSettings(
            data_dir=tmp_path / "data", person_home=tmp_path / "person", docker_url=f"unix://{tmp_path}/proxy.sock"
        )
        for ask in (list_containers, reap):
            with pytest.raises(BackendUnavailableError, match="refused to list its containers: blocked by policy"):
                await ask(settings)


async def test_something_else_than_an_engine_is_unusable(tmp_path: Path, backend_at: Any) -> None:
    with listening(tmp_path / "odd.sock", b"SSH-2.0-OpenSSH_9.2\r\n"):
        probe = await backend_at(f"unix://{tmp_path}/odd.sock").probe()
    assert not probe.usable
    assert "does not answer as it should" in probe.reason


async def test_engine_of_another_machine_is_refused_in_a_sentence(backend_at: Any) -> None:
    for url in ("tcp://10.0.0.1:2376", "ssh://me@there"):
        probe = await backend_at(url).probe()
        assert not probe.usable
        assert "another machine" in probe.reason


def test_engine_is_named_by_its_usual_socket_when_none_is_given() -> None:
    assert Engine(None).socket_path == "/var/run/docker.sock"


# -- attached --


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
async def test_attached_output_is_sorted_however_it_is_cut(tmp_path: Path, step: int) -> None:
    def piece(stream: int, data: bytes) -> bytes:
        return struct.pack("!BxxxI", stream, len(data)) + data

    said = piece(2, b"no py") + piece(1, b"frames") + piece(2, b"thon\nhere\n") + piece(1, b"!")
    stream = b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n" + said
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head, rest = stream[: -len(said)], stream[-len(said) :]
        writer.write(head)
        await asyncio.sleep(0.05)
        for at in range(0, len(rest), step):
            writer.write(rest[at : at + step])
            await asyncio.sleep(0)
        got.set_result(await reader.readexactly(5))
        writer.close()

    server = await asyncio.start_unix_server(serve, str(tmp_path / "engine.sock"))
    async with server:
        attached = await attach(str(tmp_path / "engine.sock"), "1.41", "id", stdin=True)
        with await attached.carry() as sock:
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            read = b""
            while len(read) < 7:
                read += await loop.sock_recv(sock, 100)
            await loop.sock_sendall(sock, b"hello")
            assert (read, await got) == (b"frames!", b"hello")
            await attached.ended.wait()
            assert await loop.sock_recv(sock, 1) == b""
        assert attached.complaints == "no python; here"


async def test_engine_that_will_not_attach_is_an_error(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 404 Not Found\r\n\r\n"
    with listening(tmp_path / "engine.sock", answer), pytest.raises(BackendUnavailableError, match="404"):
        await attach(str(tmp_path / "engine.sock"), "1.41", "id", stdin=False)
    with listening(tmp_path / "mute.sock", b""), pytest.raises(BackendUnavailableError, match="closed"):
        await attach(str(tmp_path / "mute.sock"), "1.41", "id", stdin=False)
