"""Docker sandboxes when something goes wrong: half-made, lost, orphaned, the engine gone (B027, B028)."""

from __future__ import annotations

import asyncio
import io
import signal
import sys
import tarfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_backends import owner as owners
from sandbox_backends.contract import ExecRequest, Limits, Outcome, SandboxSession
from sandbox_backends.docker import DockerBackend, list_containers, reap
from sandbox_backends.docker.container import LABEL, LABEL_DATA, LABEL_OWNER
from sandbox_backends.docker.engine import Engine
from sandbox_backends.docker.reaper import data_dir_id
from sandbox_backends.errors import BackendUnavailableError, SandboxLostError
from tests.docker_engine import container_of, engine_client, none_left
from tests.places import Bench, make_bench
from tests.private_engine import IMAGE, TOOL_DIRS, PrivateEngine, bare_image, private_engine

pytestmark = [pytest.mark.needs("docker"), pytest.mark.req("SBX-05")]
MIB = 1 << 20
TRUE = ExecRequest(argv=("true",), timeout_s=5)
LONG = ExecRequest(argv=("sleep", "60"), timeout_s=60)


@pytest.fixture
def bench(tmp_path: Path, sandbox_image: str) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    yield made
    made.owner.close()


@pytest.fixture
def client() -> Iterator[Any]:
    with engine_client() as made:
        yield made


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[PrivateEngine]:
    with private_engine() as made:
        yield made


# -- half-made --


@pytest.fixture
def spoilt_image(client: Any) -> Iterator[str]:
    """An image in which /usr is a file: a container is made, but does not start with a directory mounted there."""
    name = f"bubbles-test-{uuid.uuid4().hex[:8]}"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("usr"))
    client.import_image_from_data(buffer.getvalue(), repository=name, tag="latest")
    yield f"{name}:latest"
    client.remove_image(f"{name}:latest")


async def test_start_that_fails_half_way_leaves_no_container(bench: Bench, client: Any, spoilt_image: str) -> None:
    """B027."""
    settings = replace(bench.settings, docker_image=spoilt_image, tool_dirs=TOOL_DIRS)
    backend = DockerBackend(settings, bench.owner)
    for _ in range(5):
        with pytest.raises(BackendUnavailableError, match="could not start the sandbox"):
            async with backend.open(bench.spec()):
                pass
    assert await none_left(bench, client)
    assert await asyncio.to_thread(owners.records, settings.data_dir) == []


@pytest.fixture
def image_without(client: Any, sandbox_image: str) -> Iterator[str]:
    """An image whose Python lacks a module, as python3-minimal lacks many."""
    name = f"bubbles-test-{uuid.uuid4().hex[:8]}"
    made = client.create_container(sandbox_image, ["sh", "-c", "rm -r /usr/lib/python3*/json"], user="0")["Id"]
    client.start(made)
    client.wait(made)
    client.commit(made, repository=name, tag="latest")
    client.remove_container(made)
    yield f"{name}:latest"
    client.remove_image(f"{name}:latest")


async def test_image_without_full_python_is_said_to_lack_it(bench: Bench, client: Any, image_without: str) -> None:
    backend = DockerBackend(replace(bench.settings, docker_image=image_without), bench.owner)
    began = time.monotonic()
    with pytest.raises(BackendUnavailableError, match=r"full Python 3\.8 .*'json' is missing"):
        async with backend.open(bench.spec()):
            pass
    assert time.monotonic() - began < 10
    assert await none_left(bench, client)


@pytest.fixture
def image_without_python(client: Any) -> Iterator[str]:
    name = f"bubbles-test-{uuid.uuid4().hex[:8]}"
    client.import_image_from_data(bare_image(), repository=name, tag="latest")
    yield f"{name}:latest"
    client.remove_image(f"{name}:latest")


async def test_image_without_any_python_is_said_to_lack_it(
    bench: Bench, client: Any, image_without_python: str
) -> None:
    backend = DockerBackend(replace(bench.settings, docker_image=image_without_python), bench.owner)
    with pytest.raises(BackendUnavailableError, match="has no python3"):
        async with backend.open(bench.spec()):
            pass
    assert await none_left(bench, client)


@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.03, 0.08, 0.15, 0.25])
async def test_cancelled_opening_leaves_no_container(bench: Bench, client: Any, delay_s: float) -> None:
    backend = bench.backend("docker")

    async def use() -> None:
        async with backend.open(bench.spec()):
            await asyncio.sleep(60)

    task = asyncio.create_task(use())
    await asyncio.sleep(delay_s)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert await none_left(bench, client)
    assert await asyncio.to_thread(owners.records, bench.settings.data_dir) == []


# -- lost --


@asynccontextmanager
async def losing(bench: Bench, backend: Any, **spec: Any) -> AsyncIterator[SandboxSession]:
    """A session in which a command runs and is lost; told so, and a new one opens."""
    async with backend.open(bench.spec(**spec)) as session:
        running = asyncio.create_task(session.exec(LONG))
        await session.exec(TRUE)
        yield session
        async with asyncio.timeout(8):
            result = await running
        assert (result.outcome, result.exit_code) == (Outcome.LOST, None)
        with pytest.raises(SandboxLostError, match="with its processes and temporary files"):
            await session.exec(TRUE)
        with pytest.raises(SandboxLostError):
            await session.read_file("f")


@pytest.mark.parametrize("transport", ["unix", "attach"])
async def test_container_removed_behind_our_back_is_told_and_another_opens(
    bench: Bench, client: Any, transport: Any
) -> None:
    """B028."""
    backend = DockerBackend(bench.settings, bench.owner, transport)
    async with losing(bench, backend) as session:
        await asyncio.to_thread(client.remove_container, container_of(client, session.id), force=True)
    assert "removed" in (session.lost or "")
    async with backend.open(bench.spec()) as session:
        assert (await session.exec(TRUE)).ok
        assert session.lost is None


async def test_stopped_container_is_told_and_stops_at_once(bench: Bench, client: Any) -> None:
    async with losing(bench, bench.backend("docker")) as session:
        began = time.monotonic()
        await asyncio.to_thread(client.stop, container_of(client, session.id), timeout=9)
        assert time.monotonic() - began < 5
    assert "stopped" in (session.lost or "")


@pytest.mark.needs("root")
async def test_runner_killed_for_memory_is_told(bench: Bench, client: Any) -> None:
    async with losing(bench, bench.backend("docker"), limits=Limits(memory_bytes=64 * MIB)) as session:
        # Nothing inside may choose it, so the limit is drawn tight around the runner from outside.
        container = container_of(client, session.id)
        for tight in range(16 * MIB, 4 * MIB, -MIB):
            await asyncio.to_thread(_squeeze, client, container, tight)
            try:
                await session.write_file("f", bytes(4 * MIB))
            except SandboxLostError:
                break
    assert "memory ran out" in (session.lost or "")


def _squeeze(client: Any, container: str, limit: int) -> None:
    from docker.errors import APIError

    try:
        client.update_container(container, mem_limit=limit, memswap_limit=limit)
    except APIError:
        pass  # it holds more than that already and does not give it back


# -- orphaned --

CONTROLLER = """
import asyncio, json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from sandbox_backends.contract import BackendSettings, ExecRequest, Root, SandboxSpec
from sandbox_backends.docker import DockerBackend
from sandbox_backends.owner import Owner

async def main():
    base, image = Path(sys.argv[2]), sys.argv[3]
    settings = BackendSettings(data_dir=base / "data", person_home=base / "person", docker_image=image)
    spec = SandboxSpec(session="crash", roots=(Root(path=base / "project"),))
    async with DockerBackend(settings, Owner(settings.data_dir), sys.argv[4]).open(spec) as session:
        await session.exec(ExecRequest(argv=("sh", "-c", "setsid sleep 60 >/dev/null 2>&1 &"), timeout_s=5))
        print(session.id, flush=True)
        await session.exec(ExecRequest(argv=("sleep", "60"), timeout_s=60))

asyncio.run(main())
"""


@pytest.mark.parametrize("transport", ["unix", "attach"])
async def test_container_of_a_killed_controller_goes_by_itself_and_its_record_is_reaped(
    bench: Bench, client: Any, transport: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CONTROLLER, str(Path(__file__).parents[2]), str(bench.base)),
        *(bench.settings.docker_image, transport),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    ident = (await process.stdout.readline()).decode().strip()
    assert container_of(client, ident)
    process.kill()
    await process.wait()
    began = time.monotonic()
    assert await none_left(bench, client)
    assert time.monotonic() - began < 5
    assert [record.id for record in await asyncio.to_thread(owners.records, bench.settings.data_dir)] == [ident]
    assert await reap(bench.settings) == ()
    assert await asyncio.to_thread(owners.records, bench.settings.data_dir) == []


async def test_reaper_takes_what_a_dead_owner_left_and_nothing_else(bench: Bench, client: Any) -> None:
    image = bench.settings.docker_image
    ours = await asyncio.to_thread(data_dir_id, bench.settings.data_dir)

    def leave(data: str, owner: str) -> str:
        labels = {LABEL: f"left-{owner}", LABEL_DATA: data, LABEL_OWNER: owner}
        return str(client.create_container(image, ["true"], labels=labels)["Id"])

    dead, foreign = leave(ours, "0123456789abcdef"), leave("another-data-directory", "0123456789abcdef")
    alive = leave(ours, bench.owner.id)
    try:
        async with bench.open("docker") as session:
            assert await reap(bench.settings, bench.owner) == ("left-0123456789abcdef",)
            assert (await session.exec(TRUE)).ok
            left = {found.container: found.alive for found in await list_containers(bench.settings)}
            assert left == {alive: True, container_of(client, session.id): True}
            assert client.inspect_container(foreign)
    finally:
        for container in {row["Id"] for row in client.containers(all=True)} & {dead, foreign, alive}:
            client.remove_container(container, force=True)


# -- the engine --


def of_engine(bench: Bench, engine: PrivateEngine) -> DockerBackend:
    settings = replace(bench.settings, docker_url=engine.url, docker_image=IMAGE, tool_dirs=TOOL_DIRS)
    return DockerBackend(settings, bench.owner)


@pytest.mark.needs("root")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_engine_that_ends_takes_its_sandboxes_and_they_open_again_when_it_is_back(
    bench: Bench, engine: PrivateEngine, number: signal.Signals
) -> None:
    backend = of_engine(bench, engine)
    async with losing(bench, backend) as session:
        await asyncio.to_thread(engine.end, number)
        probe = await backend.probe()
        assert not probe.usable
        assert "not running" in probe.reason
        with pytest.raises(BackendUnavailableError, match="not running"):
            async with backend.open(bench.spec()):
                pass
        if number == signal.SIGKILL:
            # The container outlives it: the frames do not pass through the engine. The next engine ends it.
            assert session.lost is None
            assert (await session.exec(TRUE)).ok
            await asyncio.to_thread(engine.start)
    assert "engine" in (session.lost or "")
    if number == signal.SIGTERM:
        await asyncio.to_thread(engine.start)
    async with backend.open(bench.spec()) as session:
        assert (await session.exec(TRUE)).ok
    assert (
        await asyncio.to_thread(owners.records, bench.settings.data_dir)
        == [
            # nothing: what the dead engine could not remove is no longer there either
        ]
    )
    with engine_client(engine.url) as client:
        assert await none_left(bench, client)


@pytest.mark.needs("root")
async def test_engine_that_hangs_is_said_to(engine: PrivateEngine) -> None:
    assert (await Engine(engine.url, timeout_s=5).info()).version
    impatient = Engine(engine.url, timeout_s=0.3)
    engine.pause()
    try:
        with pytest.raises(BackendUnavailableError, match="does not answer"):
            await impatient.info()
    finally:
        engine.resume()
    assert (await impatient.info()).version
