"""``bubbles agent``: talk to the assistant, or give it one message."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bubbles.cli import completing
from bubbles.cli.report import complain, run
from bubbles.cli.unchosen import no_boundary
from bubbles.errors import BubblesError

if TYPE_CHECKING:
    from bubbles.cli.chat.options import Options
    from bubbles.cli.logs import Log
    from bubbles.config.schema import Settings

DEFAULT_SESSION = "default"
MAX_MESSAGE_BYTES = 4 << 20
STDIN = "-"
BROKEN = "Something went wrong on this side. {log} says what."


def _sessions(incomplete: str) -> list[str]:
    """For the shell's Tab: names of sessions; nothing is made, and nothing is said of a broken configuration."""
    from bubbles.cli.chat.naming import name_of
    from bubbles.config.load import find_places

    try:
        folder = find_places().data_dir / "session_state"
        names = sorted(name_of(entry.name) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except (OSError, BubblesError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def agent(
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", metavar="TEXT", help="One message, then end; - reads it from standard input."),
    ] = None,
    session: Annotated[
        str, typer.Option("--session", "-s", metavar="NAME", help="Which session.", autocompletion=_sessions)
    ] = DEFAULT_SESSION,
    project: Annotated[
        Path | None,
        typer.Option("--project", metavar="DIR", help="Work in this directory too, and in it unless told otherwise."),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            "-b",
            metavar="B",
            help="The sandbox: local, local_isolated, bubblewrap or docker.",
            show_default="as configured",
            autocompletion=completing.backends,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With -m: print one JSON object, for scripts.")] = False,
    logs: Annotated[bool, typer.Option("--logs", help="Show each call, decision and result on stderr.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Also the prompt, and calls and results whole.")] = False,
) -> int:
    """Talk to the assistant in this terminal, or with -m give it one message.

    With -m the reply goes to stdout and everything else to stderr. Exit status 0 if there was a reply, 1 if not, 2 for
    wrong usage, 130 if it was stopped.
    """
    if message is None:
        if as_json:
            raise typer.BadParameter("--json prints the reply to one message: give it with -m TEXT")
        if not (sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()):
            raise typer.BadParameter("a conversation needs a terminal: give a message with -m TEXT, or -m - for stdin")
    text = None if message is None else _message(message)

    import logging

    from bubbles.cli.logs import level_of, logging_for
    from bubbles.config.load import load_settings
    from sandbox_backends.errors import SandboxError

    settings = load_settings()
    with logging_for(settings, level_of(logs=logs, debug=debug)) as log:
        options = _options(session, project, backend, log)
        try:
            return _run(settings, options, text, as_json=as_json)
        except (BubblesError, SandboxError, OSError):
            raise  # a sentence for the person each
        except Exception:
            logging.getLogger(__name__).exception("bubbles agent broke off")
            complain(BROKEN.format(log=log.path))
            return 1


def _run(settings: Settings, options: Options, text: str | None, *, as_json: bool) -> int:
    from bubbles.app.workshop import workshop

    with workshop(settings) as shop:
        if options.project is not None:
            shop.check_project(options.project)
        if text is None:
            from bubbles.cli.chat.talk import talk

            return run(talk(shop, options))
        from bubbles.cli.chat.oneshot import Errand, run_once

        for warning in (*settings.warnings, *settings.provider_warnings, *_of_local(settings, options, text)):
            complain(warning)
        return run(run_once(shop, Errand(text=text, options=options, as_json=as_json)))


def _of_local(settings: Settings, options: Options, text: str) -> Iterator[str]:
    from bubbles.cli.chat.commands import of_session
    from bubbles.config.session import load_session_settings

    if of_session(text):
        return  # it runs nothing
    own = None
    with suppress(BubblesError):  # the turn says what is wrong with it
        own = load_session_settings(settings.data_dir / "session_state" / options.session / "config.json")[0].sandbox
    if said := no_boundary(settings, options.backend, own):
        yield said


def _options(session: str, project: Path | None, backend: str | None, log: Log) -> Options:
    from bubbles.cli.chat.options import Options
    from bubbles.sessions.contract import SessionError
    from bubbles.sessions.key import named
    from sandbox_backends.registry import backend_names

    try:
        key = named(session)
        bound = None if project is None else project.absolute()
    except SessionError as error:
        raise typer.BadParameter(str(error)) from error
    except OSError as error:
        raise BubblesError(f"The current directory is gone ({error.strerror}): go to one that is there.") from error
    if bound is not None and not bound.is_dir():
        raise typer.BadParameter(f"--project {project} is no directory: name one that is there")
    if backend is not None and backend not in backend_names():
        raise typer.BadParameter(f"--backend {backend!r} is not known: take one of {', '.join(backend_names())}")
    return Options(session=key, project=bound, backend=backend, log=log)


def _message(said: str) -> str:
    """What ``-m`` gives. Raises typer.BadParameter."""
    from bubbles.cli.chat.commands import ALL, command_of, of_session, unknown

    text = _stdin() if said == STDIN else said
    if not text.strip():
        raise typer.BadParameter("the message is empty: say something with -m TEXT")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter("the message is not UTF-8 text: pass it as such") from error
    command = command_of(text)
    if (why := unknown(text)) is not None:
        raise typer.BadParameter(why)
    if command in ALL and not of_session(text):
        raise typer.BadParameter(f"{command} belongs to a conversation: with -m, -s NAME chooses the session")
    if said != STDIN and _something_waits():
        complain("standard input is not read, and something waits there: -m - reads the message from it.")
    return text


def _something_waits() -> bool:
    """Whether bytes of a pipe or a file wait on standard input now. Reads none and waits for none."""
    import fcntl
    import termios

    if sys.stdin is None:
        return False
    try:
        source = sys.stdin.fileno()
        found = os.fstat(source)
        if stat.S_ISFIFO(found.st_mode):
            return any(fcntl.ioctl(source, termios.FIONREAD, bytes(4)))
        return stat.S_ISREG(found.st_mode) and os.lseek(source, 0, os.SEEK_CUR) < found.st_size
    except (OSError, ValueError):  # closed, or no file at all
        return False


def _stdin() -> str:
    if sys.stdin is None:
        raise typer.BadParameter("standard input is closed: give the message with -m TEXT")
    if sys.stdin.isatty():
        complain("reading the message from the terminal, to its end (Ctrl-D).")
    data = sys.stdin.buffer.read(MAX_MESSAGE_BYTES + 1)
    if len(data) > MAX_MESSAGE_BYTES:
        raise typer.BadParameter(
            f"the message is over {MAX_MESSAGE_BYTES >> 20} MiB: put it into a file and name that in the message"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"standard input is not UTF-8 text (byte {error.start}): convert it") from error
