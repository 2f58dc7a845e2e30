"""What the sandbox image is made of: the files of ``images/sandbox/``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.images.debootstrap import SOURCES

IMAGE_LABEL = "org.bubbles.image"
RECIPE_LABEL = "org.bubbles.recipe"

_HERE = Path(__file__).parent
PLACES = (_HERE.parent / "_images" / "sandbox", _HERE.parent.parent / "images" / "sandbox")
"""In an installed package, and in a checkout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    dockerfile: str
    smoke: str
    files: dict[str, bytes]
    """What provisioning reads inside, by name."""

    @property
    def hash(self) -> str:
        parts = [self.dockerfile.encode(), SOURCES.encode(), *(self.files[name] for name in sorted(self.files))]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]

    @property
    def configuration(self) -> list[str]:
        """How a container runs: the Dockerfile's lines after RUN, which an import takes in the same form."""
        _, _, finished = self.dockerfile.partition("\nRUN ")
        return [*finished.splitlines()[1:], f"LABEL {RECIPE_LABEL}={self.hash}"]


def load_recipe() -> Recipe:
    folder = next((place for place in PLACES if place.is_dir()), None)
    if folder is None:
        raise BackendUnavailableError("The recipe of the image (images/sandbox) is missing.", "Install bubbles again.")
    return Recipe(
        dockerfile=(folder / "Dockerfile").read_text(),
        smoke=(folder / "smoke.sh").read_text(),
        files={name: (folder / name).read_bytes() for name in ("packages.txt", "provision.sh")},
    )
