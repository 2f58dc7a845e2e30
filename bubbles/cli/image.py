"""``bubbles sandbox image``: the image that docker sandboxes run from."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from bubbles.cli.report import HELP, print_json, print_table, run, size, spinner, styled

app = typer.Typer(help="The image that docker sandboxes run from.", no_args_is_help=True, context_settings=HELP)


class BuildMethod(StrEnum):
    debootstrap = "debootstrap"
    docker = "docker"


@app.command("build")
def image_build(
    method: Annotated[
        BuildMethod | None,
        typer.Option("--from", help="debootstrap needs no image registry but root; docker pulls a Debian image."),
    ] = None,
    base: Annotated[str | None, typer.Option("--base", help="Image to start from, with --from docker.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Build even if the image is up to date.")] = False,
) -> int:
    """Make the image for docker sandboxes. Without --from: debootstrap when it can be used, else docker."""
    import shutil

    from bubbles.app.workshop import backend_settings
    from bubbles.config.load import load_settings
    from sandbox_backends import images

    settings = load_settings()
    can_bootstrap = os.geteuid() == 0 and shutil.which("debootstrap") and base is None
    how = method.value if method else ("debootstrap" if can_bootstrap else "docker")
    if base is not None and how != "docker":
        raise typer.BadParameter("--base goes with --from docker.")

    def progress(line: str) -> None:
        print(styled(line, "dim", sys.stderr), file=sys.stderr)

    with spinner("building the image"):
        made = run(
            images.build(
                backend_settings(settings),
                how="docker" if how == "docker" else "debootstrap",
                base=base,
                force=force,
                on_progress=progress,
            )
        )
    print(f"{', '.join(made.tags)}  {made.id[:19]}  {size(made.size_bytes)}")
    return 0


@app.command("ls")
def image_ls(as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False) -> int:
    """Show the sandbox images that the engine has."""
    from bubbles.app.workshop import backend_settings
    from bubbles.config.load import load_settings
    from sandbox_backends import images

    found = run(images.list_images(backend_settings(load_settings())))
    if as_json:
        keys = ("id", "tags", "size_bytes", "created", "current")
        print_json([{key: getattr(one, key) for key in keys} for one in found])
    elif not found:
        print("There is no sandbox image yet: make one with 'bubbles sandbox image build'.")
    else:
        rows = [
            (" ".join(one.tags), one.id[7:19], size(one.size_bytes), one.created[:16], "yes" if one.current else "no")
            for one in found
        ]
        print_table(("NAME", "ID", "SIZE", "CREATED", "UP TO DATE"), rows)
    return 0
