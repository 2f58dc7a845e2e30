"""The image that docker sandboxes run from: built here, by Docker or without any registry, tried, then named.

The hash of the recipe is a label of the image, so an image that is up to date is not built again. An image gets its
name only after ``smoke.sh`` passed inside it.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from sandbox_backends.contract import BackendSettings
from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.images.assemble import from_debootstrap, from_dockerfile
from sandbox_backends.images.debootstrap import OnProgress
from sandbox_backends.images.engine import in_engine
from sandbox_backends.images.recipe import IMAGE_LABEL, RECIPE_LABEL, Recipe, load_recipe

SMOKE_TIMEOUT_S = 60

Method = Literal["debootstrap", "docker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    id: str
    tags: tuple[str, ...]
    size_bytes: int
    created: str
    """As the engine writes it, RFC 3339."""
    current: bool
    """Made from the recipe of this version."""


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
    recipe = recipe or own
    name = settings.docker_image
    present = await in_engine(settings, partial(_find, name=name, recipe=recipe))
    if present is not None and present.current and not force:
        on_progress(f"{name} is up to date")
        return present
    if how == "debootstrap":
        image_id = await from_debootstrap(settings, recipe, on_progress)
    else:
        image_id = await from_dockerfile(settings, recipe, base, on_progress)
    on_progress("trying the image")
    return await in_engine(settings, partial(_try_and_name, image_id=image_id, name=name, recipe=recipe))


async def list_images(settings: BackendSettings) -> tuple[ImageInfo, ...]:
    """The sandbox images that the engine has, the newest first."""
    recipe = await asyncio.to_thread(load_recipe)

    def ours(client: Any) -> tuple[ImageInfo, ...]:
        found = [_info(image, recipe) for image in client.images.list(filters={"label": IMAGE_LABEL})]
        return tuple(sorted(found, key=lambda image: image.created, reverse=True))

    return await in_engine(settings, ours)


async def remove_image(settings: BackendSettings, reference: str) -> None:
    """Remove a sandbox image by name or id. Another image is refused, and one that a container uses too."""

    def remove(client: Any) -> None:
        if IMAGE_LABEL not in client.images.get(reference).labels:
            raise BackendUnavailableError(f"{reference} is not a sandbox image:", "see bubbles sandbox image ls.")
        client.images.remove(reference)

    await in_engine(settings, remove)


def _info(image: Any, recipe: Recipe) -> ImageInfo:
    return ImageInfo(
        id=image.id,
        tags=tuple(image.tags),
        size_bytes=image.attrs["Size"],
        created=image.attrs["Created"],
        current=image.labels.get(RECIPE_LABEL) == recipe.hash,
    )


def _find(client: Any, name: str, recipe: Recipe) -> ImageInfo | None:
    from docker.errors import ImageNotFound

    try:
        return _info(client.images.get(name), recipe)
    except ImageNotFound:
        return None


def _try_and_name(client: Any, image_id: str, name: str, recipe: Recipe) -> ImageInfo:
    from docker.errors import APIError

    before = _find(client, name, recipe)
    try:
        _try(client, image_id, recipe.smoke)
        repository, _, tag = name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "latest")
        client.api.tag(image_id, repository, tag)
    except BaseException:
        with contextlib.suppress(APIError):
            client.images.remove(image_id)
        raise
    if before is not None and before.id != image_id:
        with contextlib.suppress(APIError):  # it has another name, or a container still runs from it
            client.images.remove(before.id)
    return _info(client.images.get(image_id), recipe)


def _try(client: Any, image_id: str, smoke: str) -> None:
    container = client.containers.create(
        image_id,
        ["/bin/sh", "-c", smoke],
        network_mode="none",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        read_only=True,
        tmpfs={"/tmp": ""},
        init=True,
    )
    try:
        container.start()
        status = container.wait(timeout=SMOKE_TIMEOUT_S)["StatusCode"]
        if status != 0:
            said = container.logs(tail=3).decode(errors="replace").strip()
            raise BackendUnavailableError(
                f"The image does not work ({said or status}):", "build it again with --force."
            )
    finally:
        container.remove(force=True)
