"""The image that tests of docker sandboxes run from: what the engine has, or else one built before the first test."""

from __future__ import annotations

import asyncio
import functools
import os
from pathlib import Path

from sandbox_backends import images
from sandbox_backends.contract import BackendSettings
from sandbox_backends.errors import BackendUnavailableError
from tests.needs import missing

NAME = "bubbles-sandbox:latest"


def settings(name: str = NAME) -> BackendSettings:
    home = Path.home()
    return BackendSettings(
        data_dir=home / ".bubbles", person_home=home, host_env=dict(os.environ), docker_image=name, docker_url=None
    )


@functools.cache
def problem() -> str | None:
    """Why there is no image, or ``None`` when there is one. The first call may take a minute."""
    if reason := missing("docker"):
        return reason
    if any(NAME in image.tags for image in asyncio.run(images.list_images(settings()))):
        return None
    try:
        asyncio.run(images.build(settings(), how="debootstrap"))
    except BackendUnavailableError as error:
        return f"there is no image {NAME}, and none can be built: {error}"
    return None
