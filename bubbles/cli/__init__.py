"""The command line. Thin: each command turns words into calls and results into text; one file a group."""

from __future__ import annotations

import os
import sys

import typer
from typer.exceptions import TyperException

from bubbles import __version__
from bubbles.cli.commands import Commands
from bubbles.cli.report import HELP, complain
from bubbles.errors import BubblesError

app = typer.Typer(
    name="bubbles",
    cls=Commands,
    help="A personal assistant whose every shell and file action runs in a sandbox you choose.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP,
)


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

    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as the program runs
    if sys.stdout is None:
        complain("Standard output is closed: send it to /dev/null if it is not wanted.")
        return 1
    try:
        status = app(standalone_mode=False)
        sys.stdout.flush()  # here, where what goes wrong with it is said properly
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
        _discard_output()
        return 141  # whoever read our output has stopped: what a shell reports for SIGPIPE
    except OSError as error:
        complain(f"{error.filename or 'Standard output'} cannot be used: {error.strerror or error}.")
        _discard_output()
        return 1
    except typer.Abort:
        return 130
    except TyperException as error:
        return _usage(error)
    return status if isinstance(status, int) else 0


def _discard_output() -> None:
    """So that flushing at exit does not fail a second time."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: TyperException) -> int:
    """A command without its words gets its help; any other misuse one sentence."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
        return 2
    path = getattr(getattr(error, "ctx", None), "command_path", "bubbles")
    said = error.format_message().replace("Value error, ", "").rstrip(".")
    complain(f"{said}: see '{path} --help'.")
    return error.exit_code
