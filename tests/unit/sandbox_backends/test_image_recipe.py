"""The recipe of the sandbox image: one list of packages, one set of files, one hash."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox_backends.images.recipe import Recipe, load_recipe

pytestmark = pytest.mark.req("SBX-10")


@pytest.fixture
def recipe() -> Recipe:
    return load_recipe()


def test_the_hash_changes_with_everything_that_goes_in(recipe: Recipe) -> None:
    changed = [
        replace(recipe, dockerfile=recipe.dockerfile + "\n"),
        replace(recipe, files={**recipe.files, "packages.txt": b"bash\n"}),
        replace(recipe, files={**recipe.files, "provision.sh": b"true\n"}),
    ]
    assert len({recipe.hash, *(other.hash for other in changed)}) == 4
    assert replace(recipe, smoke="exit 0").hash == recipe.hash, "the trial is no part of the image"


def test_packages_are_listed_once_and_in_order(recipe: Recipe) -> None:
    names = [line for line in recipe.files["packages.txt"].decode().splitlines() if not line.startswith("#")]
    assert names == sorted(set(names))
    assert "python3" in names, "the runner needs all of Python, not python3-minimal"


def test_the_image_never_starts_as_root(recipe: Recipe) -> None:
    assert "USER agent" in recipe.configuration
    assert recipe.dockerfile.rindex("USER agent") > recipe.dockerfile.rindex("USER root")


def test_an_import_takes_the_dockerfiles_lines_and_the_hash(recipe: Recipe) -> None:
    kinds = [line.split(" ")[0] for line in recipe.configuration]
    assert kinds == ["LABEL", "ENV", "USER", "WORKDIR", "CMD", "LABEL"]
    assert recipe.configuration[-1].endswith(recipe.hash)
