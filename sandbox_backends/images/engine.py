"""What the building of images asks of a Docker engine, each refusal in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sandbox_backends.docker.engine import Engine, refusal
from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.images.recipe import IMAGE_LABEL, RECIPE_LABEL, Recipe

SMOKE_TIMEOUT_S = 60

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    id: str
    tags: tuple[str, ...]
    size_bytes: int
    created: str
    """As the engine writes it, RFC 3339."""
    current: bool
    """Made from the recipe of this version."""


async def ask(engine: Engine, work: Callable[[Any], Result], *, abandon: bool = False) -> Result:
    """``work(client)`` with a ``docker.APIClient``. Raises ``BackendUnavailableError``.

    It is waited for even when cancelled, unless ``abandon``: then ``work`` itself must find out and end.
    """
    from docker.errors import APIError

    def work_and_close(client: Any) -> Result:
        try:
            return work(client)
        finally:
            client.close()  # its connections; it makes new ones when it is asked again

    try:
        return await (engine.ask(work_and_close) if abandon else engine.call(work_and_close))
    except APIError as error:
        raise refusal(error, "what the image needs") from error


def find(client: Any, reference: str, recipe: Recipe) -> ImageInfo | None:
    from docker.errors import ImageNotFound

    try:
        image = client.inspect_image(reference)
    except ImageNotFound:
        return None
    labels = image["Config"].get("Labels") or {}
    return ImageInfo(
        id=image["Id"],
        tags=tuple(image.get("RepoTags") or ()),
        size_bytes=image["Size"],
        created=image["Created"],
        current=labels.get(RECIPE_LABEL) == recipe.hash,
    )


def ours(client: Any, recipe: Recipe) -> tuple[ImageInfo, ...]:
    """Every sandbox image, the newest first."""
    found = (find(client, image["Id"], recipe) for image in client.images(filters={"label": IMAGE_LABEL}))
    return tuple(sorted(filter(None, found), key=lambda image: image.created, reverse=True))


def try_and_name(client: Any, image_id: str, name: str, recipe: Recipe) -> ImageInfo | None:
    """The image gets its name only if ``smoke.sh`` passes in it; what had that name before goes, if nothing uses it."""
    from docker.errors import APIError

    before = find(client, name, recipe)
    spare = image_id
    try:
        _try(client, image_id, recipe.smoke)
        repository, _, tag = name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "latest")
        client.tag(image_id, repository, tag)
        spare = before.id if before is not None and before.id != image_id else ""
    finally:
        try:
            if spare:
                client.remove_image(spare)
        except APIError:
            pass  # it has another name, or a container still runs from it
    return find(client, image_id, recipe)


def _try(client: Any, image_id: str, smoke: str) -> None:
    from requests.exceptions import RequestException

    hardened = client.create_host_config(
        network_mode="none",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        read_only=True,
        tmpfs={"/tmp": ""},
        init=True,
    )
    container = client.create_container(image_id, ["/bin/sh", "-c", smoke], host_config=hardened)["Id"]
    try:
        client.start(container)
        status = client.wait(container, timeout=SMOKE_TIMEOUT_S)["StatusCode"]
        if status != 0:
            said = client.logs(container, tail=3).decode(errors="replace").strip()
            raise BackendUnavailableError(
                f"The image does not work ({said or status}).", "Build it again with --force."
            )
    except RequestException as error:
        reason = f"The trial of the image did not end in {SMOKE_TIMEOUT_S} s."
        raise BackendUnavailableError(reason, "Build it again with --force.") from error
    finally:
        client.remove_container(container, force=True)
