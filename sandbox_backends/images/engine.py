"""Calls to a Docker engine, each in a thread, each failure in a sentence."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, TypeVar

from sandbox_backends.contract import BackendSettings
from sandbox_backends.errors import BackendUnavailableError

USUAL_ENGINE = "unix:///var/run/docker.sock"
TIMEOUT_S = 600
"""Of one answer: importing a tree is one long answer."""

Result = TypeVar("Result")


async def in_engine(settings: BackendSettings, work: Callable[[Any], Result]) -> Result:
    """``work(client)`` in a thread, with a client of its own. Raises ``BackendUnavailableError``."""
    return await asyncio.to_thread(_call, settings.docker_url or USUAL_ENGINE, work)


def _call(url: str, work: Callable[[Any], Result]) -> Result:
    import docker
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException

    try:
        _reach(url)
        client = docker.DockerClient(base_url=url, timeout=TIMEOUT_S)
        try:
            return work(client)
        finally:
            client.close()
    except APIError as error:
        raise BackendUnavailableError(f"The Docker engine refused: {error.explanation or error}.") from error
    except PermissionError as error:
        raise BackendUnavailableError(
            f"You may not use the Docker engine at {url}:",
            "run the command with sudo, or join the group (sudo usermod -aG docker $USER) and log in again.",
        ) from error
    except (DockerException, RequestException, ConnectionError, FileNotFoundError) as error:
        raise BackendUnavailableError(
            f"No Docker engine answers at {url}:",
            "start it (sudo systemctl start docker), or install it (sudo apt-get install docker.io).",
        ) from error


def _reach(url: str) -> None:
    """Fails with the kernel's own word, which docker-py wraps in text; it also leaks the socket that was refused."""
    kind, _, path = url.partition("://")
    if kind == "unix":
        with socket.socket(socket.AF_UNIX) as trial:
            trial.settimeout(10)
            trial.connect(path)
