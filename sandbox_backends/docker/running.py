"""A container from its making to its removal. Whatever happens between, none is left behind (B027)."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sandbox_backends.docker.attach import Attached, attach
from sandbox_backends.docker.container import Plan, body
from sandbox_backends.docker.doorway import Doorway, doorway
from sandbox_backends.docker.engine import Engine
from sandbox_backends.docker.fate import fate
from sandbox_backends.errors import BackendUnavailableError

START_S = 60.0
"""How long a started container's runner may take to come to the door."""
REMOVE_S = 30.0
"""How long the engine may take to remove what it has begun to remove."""
BUILD_IT = "Build it: bubbles sandbox image build"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A started container and our end of the stream to its runner."""

    engine: Engine
    plan: Plan
    container: str
    attached: Attached
    sock: socket.socket
    started_s: float

    async def why_lost(self) -> str:
        return await fate(self.engine, self.container, self.started_s, self.plan.image, self.attached.complaints)


@asynccontextmanager
async def running(engine: Engine, plan: Plan) -> AsyncIterator[Running]:
    """Make and start the container; it is removed when the context is left.

    Raises BackendUnavailableError.
    """
    socket_path = engine.socket_path
    async with _created(engine, plan) as container:
        attached = await attach(socket_path, engine.api_version, container, stdin=plan.stdio)
        sock: socket.socket | None = None
        try:
            started_s = time.time()
            if plan.stdio:
                sock = await attached.carry()
                await _start(engine, plan, container)
            else:
                async with doorway(plan.link) as door:
                    await _start(engine, plan, container)
                    sock = await _at_the_door(door, plan.peer_uid, attached)
            if sock is None:
                why = await fate(engine, container, started_s, plan.image, attached.complaints)
                raise BackendUnavailableError(f"The sandbox did not start: {why}.")
            yield Running(
                engine=engine, plan=plan, container=container, attached=attached, sock=sock, started_s=started_s
            )
        finally:
            if sock is not None:
                sock.close()
            attached.close()


@asynccontextmanager
async def _created(engine: Engine, plan: Plan) -> AsyncIterator[str]:
    name = f"bubbles-{plan.id}"
    try:
        yield await _asked(engine, plan, lambda client: client.create_container_from_config(body(plan), name)["Id"])
    finally:
        # By name: a request that was cancelled, or lost its answer, may have made it all the same.
        await remove(engine, name)


async def _start(engine: Engine, plan: Plan, container: str) -> None:
    await _asked(engine, plan, lambda client: client.start(container))


async def _at_the_door(door: Doorway, uid: int, attached: Attached) -> socket.socket | None:
    """The runner's connection, or ``None`` when the container ended first."""
    coming = asyncio.create_task(door.accept(uid))
    gone = asyncio.create_task(attached.ended.wait())
    taken = False
    try:
        done, _ = await asyncio.wait({coming, gone}, timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            raise BackendUnavailableError(f"The sandbox's runner did not come within {START_S:.0f} s.")
        taken = coming in done
        return coming.result() if taken else None
    finally:
        coming.cancel()
        gone.cancel()
        await asyncio.gather(coming, gone, return_exceptions=True)
        if not taken and not coming.cancelled() and coming.exception() is None:
            coming.result().close()


async def _asked(engine: Engine, plan: Plan, work: Any) -> Any:
    from docker.errors import APIError, ImageNotFound

    try:
        return await engine.call(work)
    except ImageNotFound as error:
        raise no_image(plan.image) from error
    except APIError as error:
        said = str(error.explanation or error).strip().rstrip(".")
        if '"python3"' in said:
            raise BackendUnavailableError(
                f"Image {plan.image} has no python3.", "Install Python 3.8 or newer in it, with the whole library."
            ) from error
        raise BackendUnavailableError(f"The Docker engine could not start the sandbox: {said}.") from error


def no_image(image: str) -> BackendUnavailableError:
    return BackendUnavailableError(f"The Docker engine has no image {image}.", BUILD_IT)


async def remove(engine: Engine, container: str) -> bool:
    """Remove a container by name or id with all that runs in it; False when that failed, which is logged."""
    from docker.errors import DockerException

    try:
        await engine.call(lambda client: remove_now(client, container))
    except (BackendUnavailableError, DockerException) as error:
        # Nobody above can do more: it is gone with the engine, or the reaper finds it.
        _log.warning("container %s was not removed: %s", container, error)
        return False
    return True


def remove_now(client: Any, container: str) -> None:
    """Returns when it is gone. Blocks; raises docker.errors.DockerException."""
    from docker.errors import APIError, NotFound

    try:
        client.remove_container(container, force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != 409:  # the engine removes it already, since its main process has ended
            raise
        try:
            client.wait(container, condition="removed", timeout=REMOVE_S)
        except NotFound:
            return
