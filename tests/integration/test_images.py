"""Building, naming and removing the sandbox image, against a real engine and a real debootstrap."""

from __future__ import annotations

import asyncio
import grp
import socket
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_backends import images
from sandbox_backends.contract import BackendSettings
from sandbox_backends.docker.engine import Engine
from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.images import assemble
from sandbox_backends.images.debootstrap import WORK_DIR, WORK_PREFIX
from sandbox_backends.images.recipe import RECIPE_LABEL, Recipe, load_recipe
from tests import sandbox_image as image
from tests.as_tester import run_as_tester

# Builds of one machine share an engine and a directory, in which some of these look around.
pytestmark = [pytest.mark.req("SBX-10"), pytest.mark.turns("images")]
needs_docker = pytest.mark.needs("docker")
needs_debootstrap = pytest.mark.needs("root", "debootstrap")


@pytest.fixture
def engine() -> Iterator[Any]:
    import docker

    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def settings(engine: Any) -> Iterator[BackendSettings]:
    """Settings with an image name of its own; whatever was made under it is gone afterwards."""
    name = f"bubbles-test-{uuid.uuid4().hex[:8]}:latest"
    yield image.settings(name)
    if engine.images.list(name):
        engine.images.remove(name)


@pytest.fixture
def recipe() -> Recipe:
    """A recipe of its own (so a hash of its own) that takes no network and no time."""
    files = {"packages.txt": b"", "provision.sh": f"echo made {uuid.uuid4()}\n".encode()}
    return replace(load_recipe(), files=files, smoke="exit 0")


def made_from(engine: Any, recipe: Recipe) -> list[Any]:
    found: list[Any] = engine.images.list(filters={"label": f"{RECIPE_LABEL}={recipe.hash}"})
    return found


@needs_docker
async def test_an_image_that_is_up_to_date_is_not_built_again(
    settings: BackendSettings, recipe: Recipe, sandbox_image: str
) -> None:
    first = await images.build(settings, how="docker", base=sandbox_image, recipe=recipe)
    lines: list[str] = []
    second = await images.build(settings, how="docker", base=sandbox_image, recipe=recipe, on_progress=lines.append)
    assert second == first
    assert lines == [f"{settings.docker_image} is up to date"]


@needs_docker
async def test_a_changed_recipe_replaces_the_image_and_removes_the_old_one(
    settings: BackendSettings, recipe: Recipe, sandbox_image: str, engine: Any
) -> None:
    first = await images.build(settings, how="docker", base=sandbox_image, recipe=recipe)
    changed = replace(recipe, files={**recipe.files, "packages.txt": b"# another\n"})
    second = await images.build(settings, how="docker", base=sandbox_image, recipe=changed)
    assert second.id != first.id
    assert second.tags == (settings.docker_image,)
    assert made_from(engine, recipe) == []


@needs_docker
async def test_an_image_whose_trial_fails_never_gets_the_name(
    settings: BackendSettings, recipe: Recipe, sandbox_image: str, engine: Any
) -> None:
    broken = replace(recipe, smoke="echo smoke: git is missing >&2; exit 3")
    with pytest.raises(BackendUnavailableError, match="git is missing"):
        await images.build(settings, how="docker", base=sandbox_image, recipe=broken)
    assert made_from(engine, broken) == []
    assert engine.images.list(settings.docker_image) == []


@needs_docker
async def test_a_base_that_nobody_has_is_one_sentence_with_the_mend(settings: BackendSettings, recipe: Recipe) -> None:
    with pytest.raises(BackendUnavailableError, match="--from debootstrap") as caught:
        await images.build(settings, how="docker", base="registry.invalid/no/such:image", recipe=recipe)
    assert "\n" not in str(caught.value)


@needs_docker
async def test_cancelling_a_docker_build_ends_it_in_the_engine(
    settings: BackendSettings, recipe: Recipe, sandbox_image: str, engine: Any
) -> None:
    endless = replace(recipe, files={**recipe.files, "provision.sh": b"while sleep 0.1; do echo still at it; done\n"})
    started = asyncio.Event()

    steps: list[str] = []

    def watch(line: str) -> None:
        if line.startswith("---> ") and "Running in" not in line:
            steps.append(line.removeprefix("---> "))
        if line == "still at it":
            started.set()

    building = asyncio.create_task(
        images.build(settings, how="docker", base=sandbox_image, recipe=endless, on_progress=watch)
    )
    await asyncio.wait_for(started.wait(), 15)
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building
    async with asyncio.timeout(10):
        while await asyncio.to_thread(provisioning, engine):  # noqa: ASYNC110  # the engine tells no event of it
            await asyncio.sleep(0.1)
    assert made_from(engine, endless) == []
    engine.images.remove(steps[-1])  # what the engine keeps as its cache


def provisioning(engine: Any) -> list[Any]:
    """Containers of a build; one that has ended and is not removed yet still holds its image."""
    return [item for item in engine.api.containers(all=True) if "provision.sh" in item["Command"]]


@needs_docker
async def test_only_sandbox_images_are_listed(
    settings: BackendSettings, recipe: Recipe, sandbox_image: str, engine: Any
) -> None:
    built = await images.build(settings, how="docker", base=sandbox_image, recipe=recipe)
    listed = {item.id: item for item in await images.list_images(settings)}
    assert not listed[built.id].current, "made from another recipe than this version's"
    engine.images.remove(settings.docker_image)
    assert built.id not in {item.id for item in await images.list_images(settings)}

    foreign = f"bubbles-test-foreign-{uuid.uuid4().hex[:8]}"
    engine.api.import_image_from_data(b"\0" * 1024, repository=foreign)
    try:
        assert not any(foreign in tag for item in await images.list_images(settings) for tag in item.tags)
    finally:
        engine.images.remove(foreign)


@needs_docker
async def test_a_tree_is_imported_with_the_dockerfiles_own_configuration(
    settings: BackendSettings, recipe: Recipe, tmp_path: Path, engine: Any
) -> None:
    (tmp_path / "home").mkdir()
    image_id = await assemble.import_tree(Engine(None), tmp_path, recipe.configuration)
    try:
        config = engine.images.get(image_id).attrs["Config"]
        assert config["User"] == "agent"
        assert config["WorkingDir"] == "/home/agent"
        assert config["Cmd"] == ["/bin/bash"]
        assert "LANG=C.UTF-8" in config["Env"]
        assert config["Labels"] == {"org.bubbles.image": "sandbox", RECIPE_LABEL: recipe.hash}
    finally:
        engine.images.remove(image_id)


@needs_docker
async def test_a_tree_that_cannot_be_packed_leaves_no_image(
    settings: BackendSettings, recipe: Recipe, tmp_path: Path, engine: Any
) -> None:
    with pytest.raises(BackendUnavailableError):
        await assemble.import_tree(Engine(None), tmp_path / "missing", recipe.configuration)
    assert made_from(engine, recipe) == []


@pytest.mark.req("SBX-08")
async def test_without_an_engine_the_mend_is_named(tmp_path: Path) -> None:
    settings = replace(image.settings(), docker_url=f"unix://{tmp_path}/no.sock")
    with pytest.raises(BackendUnavailableError, match=r"The Docker engine is not running: .* Start it") as caught:
        await images.list_images(settings)
    assert "\n" not in str(caught.value)


AS_TESTER = """
import asyncio, sys
from pathlib import Path
from sandbox_backends import images
from sandbox_backends.contract import BackendSettings
from sandbox_backends.errors import BackendUnavailableError

home = Path("/nonexistent")
settings = BackendSettings(data_dir=home, person_home=home, docker_url=sys.argv[2] if len(sys.argv) > 2 else None)
try:
    asyncio.run(images.build(settings, how=sys.argv[1], force=True))
except BackendUnavailableError as error:
    print(error)
"""


@pytest.mark.needs("tester")
def test_who_may_not_use_the_engine_is_told_how_to(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "engine.sock"))
        listener.listen()
        said = run_as_tester(AS_TESTER, "docker", f"unix://{tmp_path}/engine.sock").stdout
    assert "sudo usermod -aG docker $USER" in said


@pytest.mark.needs("tester", "debootstrap", "docker")
def test_an_ordinary_user_is_told_what_takes_root() -> None:
    group = grp.getgrnam("docker").gr_gid
    said = run_as_tester(AS_TESTER, "debootstrap", groups=[group]).stdout
    assert said.strip() == ("Making a Debian tree takes root. Run the command with sudo, or use --from docker.")


@needs_debootstrap
async def test_cancelling_a_debootstrap_build_leaves_no_tree_no_mount_and_no_process(settings: BackendSettings) -> None:
    before = set(WORK_DIR.glob(f"{WORK_PREFIX}*"))
    started = asyncio.Event()
    building = asyncio.create_task(
        images.build(settings, how="debootstrap", force=True, on_progress=lambda _line: started.set())
    )
    await asyncio.wait_for(started.wait(), 10)
    mine = set(WORK_DIR.glob(f"{WORK_PREFIX}*")) - before
    assert mine
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building
    assert not any(directory.exists() for directory in mine)
    for directory in mine:
        assert not [line for line in mounts_and_processes() if str(directory).encode() in line]


def mounts_and_processes() -> list[bytes]:
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(entry.read_bytes())
        except OSError:
            continue  # it ended meanwhile
    return lines


@needs_debootstrap
async def test_what_a_killed_build_left_behind_goes_with_the_next_one(settings: BackendSettings) -> None:
    leftover = WORK_DIR / f"{WORK_PREFIX}abandoned"
    (leftover / "tree").mkdir(parents=True, exist_ok=True)
    started = asyncio.Event()
    building = asyncio.create_task(
        images.build(settings, how="debootstrap", force=True, on_progress=lambda _line: started.set())
    )
    await asyncio.wait_for(started.wait(), 10)
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building
    assert not leftover.exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.needs("root", "debootstrap", "docker")
async def test_the_whole_recipe_builds_without_a_registry(settings: BackendSettings) -> None:
    built = await images.build(settings, how="debootstrap", force=True)
    assert built.current
    assert built.tags == (settings.docker_image,)
    assert built.size_bytes < 400e6
