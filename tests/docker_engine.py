"""What tests of docker sandboxes look at behind the sandboxes' back."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox_backends.docker.container import LABEL, LABEL_DATA
from sandbox_backends.docker.reaper import data_dir_id
from tests.needs import TESTER
from tests.places import Bench

WAIT_S = 10.0


@contextmanager
def engine_client(url: str | None = None) -> Iterator[Any]:
    """A ``docker.APIClient``, closed at the end."""
    import docker

    client = docker.APIClient(base_url=url, version="auto", timeout=20)
    try:
        yield client
    finally:
        client.close()


def containers(bench: Bench, client: Any) -> list[dict[str, Any]]:
    """Every container of this bench, whatever its state."""
    rows: list[dict[str, Any]] = client.containers(
        all=True, filters={"label": f"{LABEL_DATA}={data_dir_id(bench.settings.data_dir)}"}
    )
    return rows


async def none_left(bench: Bench, client: Any) -> bool:
    """Whether its containers are gone, within some seconds: the engine removes them by itself."""
    deadline = time.monotonic() + WAIT_S
    while await asyncio.to_thread(_there, bench, client):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


def _there(bench: Bench, client: Any) -> list[str]:
    from docker.errors import NotFound

    found = []
    for row in containers(bench, client):
        try:
            found.append(client.inspect_container(row["Id"])["Id"])
        except NotFound:  # Docker 20.10 lists one for ever, as dead, that two removed at the same moment
            continue
    return found


def container_of(client: Any, sandbox: str) -> str:
    """The engine's id of a sandbox's container."""
    (row,) = client.containers(all=True, filters={"label": f"{LABEL}={sandbox}"})
    return str(row["Id"])


def give_to_tester(path: Path) -> int:
    """Make a project that user's, so that its session runs as an ordinary user; gives the uid."""
    import pwd

    user = pwd.getpwnam(TESTER)
    os.chown(path, user.pw_uid, user.pw_gid)
    return user.pw_uid
