"""The image that docker sandboxes run from: built here, by Docker or without any registry, tried, then named.

The hash of the recipe is a label of the image, so an image that is up to date is not built again. An image gets its
name only after ``smoke.sh`` passed inside it.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from sandbox_backends.contract import BackendSettings
from sandbox_backends.docker.engine import Engine
from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.images import engine as images_in
from sandbox_backends.images.assemble import from_debootstrap, from_dockerfile
from sandbox_backends.images.debootstrap import OnProgress
from sandbox_backends.images.engine import ImageInfo
from sandbox_backends.images.recipe import Recipe, load_recipe

__all__ = ["ImageInfo", "Method", "build", "list_images"]

Method = Literal["debootstrap", "docker"]


async def build(
    settings: BackendSettings,
    *,
    how: Method,
    base: str | None = None,
    force: bool = False,
    recipe: Recipe | None = None,
    on_progress: OnProgress = lambda _line: None,
) -> ImageInfo:
    """Make the image called ``settings.docker_image``, of this version's recipe or the given one.

    One that is up to date is made again only with ``force``.
    ``debootstrap`` takes Debian from its archive and needs root. ``docker`` starts from ``base``, or else from what the
    Dockerfile names, which then comes from a registry. Raises ``BackendUnavailableError``. Failed or cancelled, it
    leaves nothing behind but, by ``docker``, the engine's own cache of the first steps.
    """
    own = await asyncio.to_thread(load_recipe)
    made_from = recipe or own
    name = settings.docker_image
    engine = Engine(settings.docker_url)
    present = await images_in.ask(engine, lambda client: images_in.find(client, name, made_from))
    if present is not None and present.current and not force:
        on_progress(f"{name} is up to date")
        return present
    if how == "debootstrap":
        image_id = await from_debootstrap(engine, made_from, settings.host_env, on_progress)
    else:
        image_id = await from_dockerfile(engine, made_from, base, on_progress)
    on_progress("trying the image")
    made = await images_in.ask(engine, lambda client: images_in.try_and_name(client, image_id, name, made_from))
    if made is None:
        raise BackendUnavailableError(f"Somebody removed {name} as it was made.", "Build it again.")
    return made


async def list_images(settings: BackendSettings) -> tuple[ImageInfo, ...]:
    """The sandbox images that the engine has, the newest first."""
    recipe = await asyncio.to_thread(load_recipe)
    return await images_in.ask(Engine(settings.docker_url), lambda client: images_in.ours(client, recipe))
