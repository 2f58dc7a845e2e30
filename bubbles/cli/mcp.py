"""``bubbles mcp``: the tools for other agents, and the MCP servers in use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bubbles.cli import completing
from bubbles.cli.mcp_servers import list_servers
from bubbles.cli.report import HELP, complain, run
from bubbles.errors import BubblesError

if TYPE_CHECKING:
    from bubbles.config.schema import Settings

BROKEN = "Something went wrong on this side. {log} says what."
MAX_ROOTS = 16

app = typer.Typer(
    help="Offer the tools to other agents, and see the MCP servers in use.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP,
)


app.command("list")(list_servers)


@app.command()
def serve(
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            "-b",
            metavar="B",
            help="The sandbox: bubblewrap, docker, or another that holds files and network.",
            show_default="as configured if that is one, else the strongest that works",
            autocompletion=completing.backends,
        ),
    ] = None,
    root: Annotated[
        list[Path] | None,
        typer.Option(
            "--root",
            metavar="DIR",
            help="A directory that is offered, the first one as the working directory; may be repeated.",
            show_default="the current directory",
        ),
    ] = None,
) -> int:
    """Be an MCP server: exec and file tools for another agent.

    They are behind the gate, and in a sandbox that holds files and network. The agent's program, such as Claude Code
    or Codex, starts this and speaks to it over standard input and output. What a person must decide is put to them by
    that program if it can, else declined. Exit status 0 when the client is done, 1 for failure, 2 for wrong usage.
    """
    import logging

    from bubbles.cli.logs import logging_for
    from bubbles.config.load import load_settings
    from sandbox_backends.errors import SandboxError
    from sandbox_backends.registry import backend_names

    roots = _roots(root or [])
    if backend is not None and backend not in backend_names():
        raise typer.BadParameter(f"--backend {backend!r} is not known: take one of {', '.join(backend_names())}")
    settings = load_settings()
    with logging_for(settings, None) as log, _files() as files:
        try:
            return _serve(settings, roots, backend, files)
        except (BubblesError, SandboxError, OSError):
            raise  # a sentence for the person each
        except Exception:
            logging.getLogger(__name__).exception("bubbles mcp serve broke off")
            complain(BROKEN.format(log=log.path))
            return 1


def _serve(settings: Settings, roots: list[Path], backend: str | None, files: tuple[int, int]) -> int:
    from bubbles.app.serve import serve_tools
    from bubbles.app.workshop import workshop

    for warning in settings.warnings:
        complain(warning)
    if os.isatty(files[0]):
        complain("an MCP client is awaited on standard input; Ctrl-C ends this.")
    with workshop(settings) as shop:
        run(serve_tools(shop, roots, backend, files, complain))
    return 0


def _roots(named: list[Path]) -> list[Path]:
    """Absolute, links followed: a directory has one session, by whatever way it is named."""
    if len(named) > MAX_ROOTS:
        raise typer.BadParameter(f"--root is given {len(named)} times: name at most {MAX_ROOTS}")
    try:
        return [Path(os.path.realpath(path)) for path in named or [Path.cwd()]]
    except OSError as error:
        raise BubblesError(f"The current directory is gone ({error.strerror}): go to one that is there.") from error


@contextmanager
def _files() -> Iterator[tuple[int, int]]:
    """Standard input and output, for the protocol alone: whatever else reads finds the end, and what is printed goes to
    standard error.
    """
    if sys.stdin is None:
        raise BubblesError("Standard input is closed: an MCP client talks over it, so let a client start this command.")
    own = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.dup2(null, 0)
        os.dup2(_stderr(null), 1)
        yield own
    finally:
        for fd in (*own, null):
            os.close(fd)


def _stderr(otherwise: int) -> int:
    try:
        os.fstat(2)
    except OSError:
        return otherwise
    return 2
