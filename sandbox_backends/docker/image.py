"""What the sandbox's image brings along. Building it is ``sandbox_backends/images``."""

from __future__ import annotations

from typing import Any

from sandbox_backends.docker.engine import Engine, refusal
from sandbox_backends.docker.running import no_image


async def image_env(engine: Engine, image: str) -> dict[str, str]:
    """The environment that the image sets, such as the PATH of its toolchain.

    Raises BackendUnavailableError when the engine is not reached, refuses, or has no such image.
    """
    from docker.errors import APIError, ImageNotFound

    try:
        found: dict[str, Any] = await engine.ask(lambda client: client.inspect_image(image))
    except ImageNotFound as error:
        raise no_image(image) from error
    except APIError as error:
        raise refusal(error, f"to describe image {image}") from error
    rows = (found.get("Config") or {}).get("Env") or []
    return dict(row.partition("=")[::2] for row in rows)
