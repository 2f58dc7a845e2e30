"""The two ways to an image without a name yet: a Debian tree handed to the engine, or the Dockerfile."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import tarfile
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from sandbox_backends.docker.engine import Engine
from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.images.debootstrap import OnProgress, debian_tree
from sandbox_backends.images.engine import ask
from sandbox_backends.images.recipe import RECIPE_LABEL, Recipe

CHUNK_BYTES = 1 << 20
BUILD_TIMEOUT_S = 600
"""Between two lines that a build prints."""
PROVISION = ("sh", "/tmp/provision.sh", "/tmp/packages.txt")
PACK = ("tar", "--create", "--numeric-owner", "--one-file-system")
LEFT_OUT = ("--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./dev/*")


async def from_debootstrap(engine: Engine, recipe: Recipe, host_env: Mapping[str, str], on_progress: OnProgress) -> str:
    """The image's id."""
    async with debian_tree(recipe.files, PROVISION, host_env=host_env, on_progress=on_progress) as tree:
        on_progress("handing the tree to Docker")
        return await import_tree(engine, tree, recipe.configuration)


async def from_dockerfile(engine: Engine, recipe: Recipe, base: str | None, on_progress: OnProgress) -> str:
    """The image's id. Cancelling it ends the engine's build at the next line that the build prints."""
    loop = asyncio.get_running_loop()
    cancelled = threading.Event()

    def run(client: Any) -> str:
        image_id = ""
        with contextlib.closing(_events_of_build(client, recipe, base)) as events:
            for event in events:
                if cancelled.is_set():
                    break  # closing the answer is what tells the engine to stop
                if said := event.get("error"):
                    remedy = "Choose a --base that the engine has, or use --from debootstrap."
                    raise BackendUnavailableError(f"Docker could not build the image ({said}).", remedy)
                image_id = event.get("aux", {}).get("ID", image_id)
                if line := event.get("stream", "").strip():
                    loop.call_soon_threadsafe(on_progress, line)
        return image_id

    try:
        return await ask(engine, run, abandon=True)
    finally:
        cancelled.set()


def _events_of_build(client: Any, recipe: Recipe, base: str | None) -> Generator[dict[str, Any]]:
    events: Generator[dict[str, Any]] = client.build(
        fileobj=_context(recipe),
        custom_context=True,
        buildargs={"BASE": base} if base else {},
        labels={RECIPE_LABEL: recipe.hash},
        timeout=BUILD_TIMEOUT_S,
        rm=True,
        forcerm=True,
        decode=True,
    )
    return events


def _context(recipe: Recipe) -> io.BytesIO:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in {"Dockerfile": recipe.dockerfile.encode(), **recipe.files}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    packed.seek(0)
    return packed


async def import_tree(engine: Engine, tree: Path, configuration: list[str]) -> str:
    """The image's id. A stream that broke off half-way may still be imported, so it counts only if tar ended well."""
    reading, writing = os.pipe()

    def receive(client: Any) -> str:
        with open(reading, "rb", buffering=0) as stream:
            chunks = iter(lambda: stream.read(CHUNK_BYTES), b"")
            return _imported(client.import_image(src=chunks, changes=configuration))

    receiving = asyncio.create_task(ask(engine, receive))
    try:
        try:
            tar = await asyncio.create_subprocess_exec(
                *(*PACK, *LEFT_OUT, f"--directory={tree}", "."),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=asyncio.subprocess.PIPE,
            )
        finally:
            os.close(writing)
        try:
            image_id = await asyncio.shield(receiving)
            _, complaint = await tar.communicate()
        finally:
            if tar.returncode is None:
                tar.kill()  # the stream ends, and with it the engine's import
                await tar.wait()
        if tar.returncode:
            said = complaint.decode(errors="replace").strip()
            raise BackendUnavailableError(f"tar could not pack the tree ({said}).", "Try once more.")
        return image_id
    except BaseException:
        with contextlib.suppress(BackendUnavailableError):
            broken = await receiving
            await ask(engine, lambda client: client.remove_image(broken))
        raise


def _imported(answer: str) -> str:
    event = json.loads(answer.splitlines()[-1])
    if "error" in event:
        raise BackendUnavailableError(f"Docker could not import the tree ({event['error']}).", "See: docker info")
    return str(event["status"])
