"""What became of a container that is gone, read off the engine's own record of events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from sandbox_backends.docker.engine import Engine
from sandbox_backends.errors import BackendUnavailableError

WAIT_S = 3.0
"""How long the engine may take to tell of an end that its container's connection already told of."""
SIGTERM = "15"
PLACE_WILL_NOT_DO = 3
"""Exit status of ``runner/start.py``."""


async def fate(engine: Engine, container: str, started_s: float, image: str, complaints: str) -> str:
    """One sentence on why this container ended."""
    from docker.errors import DockerException

    def events(client: Any) -> list[dict[str, Any]]:
        found = _events(client, container, started_s, time.time())
        if not _ended(found) and _is_there(client, container):
            found = _events(client, container, started_s, time.time() + WAIT_S)  # it is about to be told
        return found

    try:
        async with asyncio.timeout(2 * WAIT_S):
            found = await engine.ask(events)
    except (BackendUnavailableError, DockerException, TimeoutError):
        return f"the Docker engine stopped or does not answer any more{_said(complaints)}"
    return f"{explain(found, image)}{_said(complaints)}"


def _events(client: Any, container: str, since_s: float, until_s: float) -> list[dict[str, Any]]:
    """Of this container, oldest first; to the last one it can have, or to a time that may be in the future."""
    found: list[dict[str, Any]] = []
    chosen = {"container": container, "type": "container"}
    stream = client.events(since=f"{since_s - 1:.6f}", until=f"{until_s:.6f}", filters=chosen, decode=True)
    try:
        for event in stream:
            found.append(event)
            if event.get("Action") == "destroy":
                break
    finally:
        stream.close()
    return found


def _ended(events: list[dict[str, Any]]) -> bool:
    return any(event.get("Action") in ("die", "destroy") for event in events)


def _is_there(client: Any, container: str) -> bool:
    from docker.errors import NotFound

    try:
        client.inspect_container(container)
    except NotFound:
        return False
    return True


def explain(events: Iterable[dict[str, Any]], image: str) -> str:
    """What a container's events come to, oldest first."""
    events = list(events)
    actions = [str(event.get("Action")) for event in events]
    status = next((_attributes(event).get("exitCode") for event in events if event.get("Action") == "die"), None)
    if "kill" in actions:
        # "stop" is told only after "die", perhaps after we looked; the signal it began with comes before.
        asked = any(_attributes(event).get("signal") == SIGTERM for event in events if event.get("Action") == "kill")
        what = "stopped" if asked or "stop" in actions else "killed or removed"
        return f"its container was {what} from outside, or with the Docker engine"
    if "oom" in actions and status == "137":
        return "memory ran out and its main process was killed: raise the memory limit"
    if status == str(PLACE_WILL_NOT_DO):
        return f"image {image} lacks a full Python 3.8 or newer: install python3 in it (python3-minimal is not enough)"
    if status == "137":
        return "its container's main process was killed"
    if status is not None:
        return f"its container's main process ended with status {status}"
    return "its container is gone; the Docker engine may have been restarted"


def _attributes(event: dict[str, Any]) -> dict[str, str]:
    found = (event.get("Actor") or {}).get("Attributes") or {}
    return {str(name): str(value) for name, value in found.items()}


def _said(complaints: str) -> str:
    return f" (it said: {complaints})" if complaints else ""
