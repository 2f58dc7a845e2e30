"""The command line. Thin: each command turns words into calls and results into text; one file a group."""

from __future__ import annotations

import os
import sys

import typer
from typer.exceptions import TyperException

from bubbles import __version__
from bubbles.cli import demo, sandbox
from bubbles.cli.report import complain
from bubbles.errors import BubblesError

app = typer.Typer(
    name="bubbles",
    help="A personal assistant whose every shell and file action runs in a sandbox you choose.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(sandbox.app, name="sandbox")
app.command("demo")(demo.demo)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"bubbles {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> int:
    """Run the command line; the exit status. 2 for wrong usage, 1 for failure, or what the command itself returns."""
    from sandbox_backends.errors import InvalidRequestError, InvalidSpecError, SandboxError

    try:
        status = app(standalone_mode=False)
    except typer.Exit as done:
        return done.exit_code
    except BubblesError as error:
        complain(str(error))
        return error.exit_code
    except (InvalidSpecError, InvalidRequestError) as error:
        complain(str(error))
        return 2
    except SandboxError as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has stopped: what a shell reports for SIGPIPE, and no second failure at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except typer.Abort:
        return 130
    except TyperException as error:
        path = getattr(getattr(error, "ctx", None), "command_path", "bubbles")
        complain(f"{error.format_message().rstrip('.')}: see '{path} --help'.")
        return error.exit_code
    return status if isinstance(status, int) else 0
