"""What a controller that was killed left is removed by the next one, whatever it was made of, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bubbles.app.workshop import Workshop, workshop
from bubbles.config.load import load_settings
from bubbles.config.schema import Settings
from sandbox_backends.contract import ExecRequest
from sandbox_backends.docker.container import LABEL, LABEL_DATA, LABEL_OWNER, LABEL_SESSION
from sandbox_backends.docker.reaper import data_dir_id
from sandbox_backends.inventory import list_sandboxes, reap
from tests.docker_engine import engine_client
from tests.processes import comes_true

pytestmark = pytest.mark.req("SBX-05")
DEAD = "0123456789abcdef"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "person").mkdir()
    (tmp_path / "project").mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith("BUBBLES_")}
    return load_settings({**env, "HOME": str(tmp_path / "person"), "BUBBLES_HOME": str(tmp_path / "data")})


@pytest.fixture
def shop(settings: Settings) -> Iterator[Workshop]:
    with workshop(settings) as made:
        yield made


def leave(data: Path, session: str, backend: str = "local") -> str:
    ident = f"{session}-{secrets.token_hex(4)}"
    directory = data / "run" / ident
    directory.mkdir()
    row = {"backend": backend, "session": session, "owner": DEAD, "owner_pid": 7, "created_s": 1.0, "roots": []}
    (directory / "sandbox.json").write_text(json.dumps({**row, "id": ident}))
    return ident


@pytest.fixture
def container(shop: Workshop, sandbox_image: str) -> Iterator[tuple[str, str]]:
    """One that a dead controller left of session ``boxed``: sandbox id, container id. It is on record."""
    ident = leave(shop.settings.data_dir, "boxed", "docker")
    labels = {LABEL: ident, LABEL_SESSION: "boxed", LABEL_OWNER: DEAD, LABEL_DATA: data_dir_id(shop.settings.data_dir)}
    with engine_client() as client:
        made = client.create_container(sandbox_image, ["true"], labels=labels)["Id"]
        try:
            yield ident, made
        finally:
            if made in containers():
                client.remove_container(made, force=True)


def containers() -> set[str]:
    with engine_client() as client:
        return {row["Id"] for row in client.containers(all=True)}


def in_run(shop: Workshop) -> set[str]:
    return {path.parent.name for path in (shop.settings.data_dir / "run").glob("*/sandbox.json")}


async def test_pool_of_a_workshop_removes_what_an_earlier_controller_left(shop: Workshop, tmp_path: Path) -> None:
    for backend in ("local", "of-another-package"):
        await asyncio.to_thread(leave, shop.settings.data_dir, "old", backend)
    spec = shop.spec(session="new", roots=(tmp_path / "project",))
    async with shop.sandboxes() as sandboxes, sandboxes.use("local", spec) as lease:
        assert (await lease.session.exec(ExecRequest(argv=("true",), timeout_s=5))).ok
        assert await comes_true(lambda: in_run(shop) == {lease.session.id})


@pytest.mark.needs("docker")
async def test_pool_asks_the_engine_too_when_it_was_ever_used_here(shop: Workshop, container: tuple[str, str]) -> None:
    async with shop.sandboxes():
        assert await comes_true(lambda: container[1] not in containers() and not in_run(shop), 10)


@pytest.mark.needs("docker")
@pytest.mark.parametrize("ask_engine", [False, True])
async def test_container_that_is_on_record_as_left_over_is_always_asked_for(
    shop: Workshop, container: tuple[str, str], ask_engine: bool
) -> None:
    assert await reap(shop.backends, ask_engine=ask_engine) == [container[0]]
    assert container[1] not in await asyncio.to_thread(containers)


@pytest.mark.needs("docker")
async def test_reaping_one_session_leaves_the_containers_and_records_of_others(
    shop: Workshop, container: tuple[str, str]
) -> None:
    mine = await asyncio.to_thread(leave, shop.settings.data_dir, "mine")
    assert await reap(shop.backends, session="mine") == [mine]
    assert container[1] in await asyncio.to_thread(containers)
    assert await asyncio.to_thread(in_run, shop) == {container[0]}
    assert await reap(shop.backends, session="boxed") == [container[0]]
    assert container[1] not in await asyncio.to_thread(containers)
    assert await asyncio.to_thread(in_run, shop) == set()


@pytest.mark.needs("docker")
async def test_container_of_a_living_owner_without_a_record_is_shown_with_that_process(
    shop: Workshop, sandbox_image: str
) -> None:
    data = await asyncio.to_thread(data_dir_id, shop.settings.data_dir)
    labels = {LABEL: "x-00000000", LABEL_SESSION: "x", LABEL_OWNER: shop.owner.id, LABEL_DATA: data}

    def create() -> str:
        with engine_client() as client:
            return str(client.create_container(sandbox_image, ["true"], labels=labels)["Id"])

    def remove(made: str) -> None:
        with engine_client() as client:
            client.remove_container(made, force=True)

    made = await asyncio.to_thread(create)
    try:
        (found,) = await list_sandboxes(shop.backends)
        assert (found.record.session, found.state) == ("x", f"open (process {os.getpid()})")
    finally:
        await asyncio.to_thread(remove, made)


def test_workshop_makes_each_backend_once(shop: Workshop) -> None:
    assert shop.backend("local") is shop.backend("local")
    assert shop.backend() is shop.backend(shop.settings.tools.sandbox.backend)
    assert shop.backend("local") is not shop.backend("local_isolated")


# -- the command line --


def bubbles(settings: Settings, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bubbles", "sandbox", *argv],
        env={**settings.host_env, **env},
        cwd=settings.person_home,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.req("SBX-10")
def test_rm_removes_what_was_left_of_the_named_session_only(settings: Settings, shop: Workshop) -> None:
    mine, other = leave(settings.data_dir, "mine"), leave(settings.data_dir, "other")
    for session in ("mine", "other"):
        (shop.home(session) / "kept").mkdir(parents=True)
    done = bubbles(settings, "rm", "mine")
    assert (done.returncode, done.stdout) == (0, f"removed {mine}\n")
    assert in_run(shop) == {other}
    assert shop.home("mine").is_dir()
    done = bubbles(settings, "rm", "--home", "mine")
    assert (done.returncode, done.stdout) == (0, "removed the HOME of mine\n")
    assert not shop.home("mine").exists()
    assert in_run(shop) == {other}
    done = bubbles(settings, "rm", "--left-over")
    assert (done.returncode, done.stdout) == (0, f"removed {other}\n")
    assert shop.home("other").is_dir()


@pytest.mark.req("SBX-10")
def test_rm_says_what_it_cannot_do_and_touches_nothing(settings: Settings, shop: Workshop, tmp_path: Path) -> None:
    (shop.home("used") / "kept").mkdir(parents=True)
    with shop.owner.sandbox("local", "used", ()):
        done = bubbles(settings, "rm", "--home", "used")
    assert done.returncode == 1
    assert f"used is in use, open (process {os.getpid()})" in done.stderr
    assert (shop.home("used") / "kept").is_dir()
    done = bubbles(settings, "rm", "used")
    assert done.returncode == 1
    assert "give --home" in done.stderr
    (tmp_path / "elsewhere" / "kept").mkdir(parents=True)
    shop.home("linked").symlink_to(tmp_path / "elsewhere")
    done = bubbles(settings, "rm", "--home", "linked")
    assert done.returncode == 1
    assert "could not be removed whole" in done.stderr
    assert (tmp_path / "elsewhere" / "kept").is_dir()


@pytest.mark.req("SBX-10")
def test_home_of_a_leftover_that_the_engine_may_still_run_is_not_removed(settings: Settings, shop: Workshop) -> None:
    """The leftover goes first; while it cannot, its HOME stays."""
    data_dir_id(settings.data_dir)
    left = leave(settings.data_dir, "boxed", "docker")
    (shop.home("boxed") / "kept").mkdir(parents=True)
    nowhere = f"unix://{settings.data_dir}/no.sock"
    done = bubbles(settings, "rm", "--home", "boxed", BUBBLES_TOOLS__SANDBOX__DOCKER__URL=nowhere)
    assert done.returncode == 1
    assert left in done.stderr
    assert (shop.home("boxed") / "kept").is_dir()


@pytest.mark.needs("linux")
@pytest.mark.req("CFG-01")
def test_data_directory_that_cannot_be_made_is_one_sentence(settings: Settings) -> None:
    for argv in (("ls",), ("exec", "-b", "local", "--", "true"), ("rm", "--left-over")):
        done = bubbles(settings, *argv, BUBBLES_HOME="/proc/bubbles")
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "/proc/bubbles" in done.stderr
        assert "BUBBLES_HOME" in done.stderr


def test_data_directory_of_which_a_part_is_in_the_way_is_one_sentence(settings: Settings) -> None:
    settings.data_dir.mkdir()
    (settings.data_dir / "run").touch()
    done = bubbles(settings, "ls")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"cannot keep its files in {settings.data_dir}" in done.stderr


def test_current_directory_that_is_gone_is_one_sentence(settings: Settings, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    line = ["sh", "-c", script, "sh", str(gone), sys.executable, "-m", "bubbles", "sandbox"]
    line += ["exec", "-b", "local", "--", "true"]
    root = str(Path(__file__).parents[2])
    env = {**settings.host_env, "PYTHONPATH": root}
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert [text for text in done.stderr.splitlines() if not text.startswith("sh: ")] == [
        "bubbles: The current directory is gone (No such file or directory): go to one that is there."
    ]
