"""``bubbles sandbox``: run commands in a place, see and remove places, make the image, and measure what holds."""

from __future__ import annotations

import os
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bubbles.cli import image
from bubbles.cli.doctor import doctor
from bubbles.cli.report import HELP, complain, print_json, print_table, run, session_key, size
from bubbles.cli.unchosen import no_boundary
from bubbles.errors import BubblesError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bubbles.app.workshop import Workshop
    from bubbles.config.schema import Settings
    from sandbox_backends.contract import ExecResult, SandboxSpec, StreamName

app = typer.Typer(
    help="Run commands in a sandbox; no model and no key needed.", no_args_is_help=True, context_settings=HELP
)
app.add_typer(image.app, name="image")
app.command("doctor")(doctor)

DEFAULT_TIMEOUT_S = 3600.0
MAX_STDIN_BYTES = 64 << 20
MAX_REFUSALS = 20
"""A command that tries a thousand hosts must not fill the screen."""
STATUS_TIMED_OUT = 124
STATUS_OOM = 137


class NetworkChoice(StrEnum):
    none = "none"
    allowlist = "allowlist"
    full = "full"


def _seconds(text: str | float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 10**7:
        raise typer.BadParameter(f"{text} is not a time limit, give seconds above 0, such as 600")
    return value


Backend = Annotated[
    str | None,
    typer.Option(
        "--backend",
        "-b",
        metavar="B",
        help="local, local_isolated, bubblewrap or docker.",
        show_default="as configured",
    ),
]
Session = Annotated[
    str | None,
    typer.Option(
        "--session",
        "-s",
        metavar="NAME",
        parser=session_key,
        help="Keep the HOME of this session.",
        show_default="a throw-away HOME",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@app.command(
    "exec",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
)
def exec_(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The program and its arguments.")],
    backend: Backend = None,
    session: Session = None,
    root: Annotated[
        list[Path] | None,
        typer.Option(
            "--root",
            metavar="DIR",
            help="Directory to show, writable; may be repeated.",
            show_default="current directory",
        ),
    ] = None,
    network: Annotated[
        NetworkChoice | None,
        typer.Option("--network", help="What may be reached.", show_default="none in bubblewrap and docker"),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow", metavar="HOST", help="Host, host:port, *.host, address or range; implies --network allowlist."
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", parser=_seconds, metavar="S", help="Seconds after which all of it is ended."),
    ] = DEFAULT_TIMEOUT_S,
    interactive: Annotated[
        bool, typer.Option("--stdin", "-i", help="Pass standard input on: read to its end first.")
    ] = False,
    gated: Annotated[
        bool, typer.Option("--gate", help="Decide on CMD first, as on what a model wants; ask here if need be.")
    ] = False,
) -> int:
    """Run CMD in a sandbox. Its exit status is this command's too (124: time limit, 137: memory limit)."""
    from bubbles.app.workshop import workshop
    from bubbles.config.load import load_settings

    with workshop(settings := load_settings(), _once_each()) as shop:
        for warning in settings.warnings:
            complain(warning)
        spec = shop.spec(
            session=session,
            roots=_absolute(root or [Path()]),
            network=network.value if network else None,
            allow=tuple(allow or ()),
        )
        for warning in _of_local(settings, backend, session):
            complain(warning)
        for warning in _of_links(spec):
            complain(warning)
        stdin = _read_stdin(gated) if interactive else None
        if gated:
            return run(_exec_gated(shop, backend, spec, tuple(command), timeout))
        return run(_exec(shop, backend, spec, tuple(command), timeout, stdin))


def _once_each() -> Callable[[str, str], None]:
    """Say each refusal of the egress proxy once, and not too many: a command may try a thousand hosts."""
    said: set[str] = set()

    def refused(_: str, sentence: str) -> None:
        if sentence not in said and len(said) < MAX_REFUSALS:
            said.add(sentence)
            complain(sentence)

    return refused


def _of_local(settings: Settings, backend: str | None, session: str | None) -> Iterator[str]:
    """What somebody who did not choose the weakest sandbox should know of it."""
    if said := no_boundary(settings, backend):
        yield said
    if session is not None and (backend or settings.tools.sandbox.backend) == "local":
        yield "local runs with your own HOME: --session keeps no other one there."


def _of_links(spec: SandboxSpec) -> Iterator[str]:
    for shown in spec.roots:
        if (real := os.path.realpath(shown.path)) != os.path.abspath(shown.path):
            yield f"{shown.path} leads through a link: {real} is shown."


def _absolute(paths: list[Path]) -> tuple[Path, ...]:
    try:
        return tuple(path.absolute() for path in paths)
    except OSError as error:
        raise BubblesError(f"The current directory is gone ({error.strerror}): go to one that is there.") from error


def _read_stdin(gated: bool) -> bytes:
    if gated:
        raise typer.BadParameter("--gate asks on standard input, so it cannot be passed on with --stdin.")
    if sys.stdin is None:
        return b""
    if sys.stdin.isatty():
        complain("reading standard input to its end (Ctrl-D); there is no terminal inside.")
    data = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(data) > MAX_STDIN_BYTES:
        raise typer.BadParameter("standard input is over 64 MB: put it into a file under the root.")
    return data


async def _exec(
    shop: Workshop, backend: str | None, spec: SandboxSpec, argv: tuple[str, ...], timeout_s: float, stdin: bytes | None
) -> int:
    from sandbox_backends.contract import ExecRequest
    from sandbox_backends.inventory import reap

    chosen = shop.backend(backend)
    await reap(shop.backends, ask_engine=chosen.name == "docker")

    async with chosen.open(spec) as session:
        for warning in session.warnings:
            complain(warning)
        request = ExecRequest(argv=argv, timeout_s=timeout_s, stdin=stdin, max_output_bytes=0)
        result = await session.exec(request, on_output=_show)
        return _status(result, timeout_s, session.lost)


async def _exec_gated(
    shop: Workshop, backend: str | None, spec: SandboxSpec, argv: tuple[str, ...], timeout_s: float
) -> int:
    """The same by way of the gate. The person at this terminal is the approver."""
    from bubbles.app.gate import gate
    from bubbles.bus import Address, Origin
    from bubbles.controller.approvals.terminal import TerminalApprover
    from sandbox_backends.contract import ExecRequest

    approver = TerminalApprover()
    place = shop.workplace(spec, backend)
    origin = Origin(session_key=spec.session, address=Address(channel="cli", chat_id="terminal"), sender="terminal")
    async with gate(shop, lambda _: approver, complain) as controller:
        request = ExecRequest(argv=argv, timeout_s=timeout_s, max_output_bytes=0)
        ran = await controller.exec(request, place, origin, on_output=_show)
        for warning in ran.warnings:
            complain(warning)
        return _status(ran.result, timeout_s, ran.lost)


def _show(stream: StreamName, data: bytes) -> None:
    out = sys.stdout if stream == "stdout" else sys.stderr
    out.buffer.write(data)
    out.buffer.flush()


def _status(result: ExecResult, timeout_s: float, lost: str | None) -> int:
    from sandbox_backends.contract import Outcome

    if result.outcome is Outcome.TIMED_OUT:
        complain(f"ended after the time limit of {timeout_s:g} s; a longer one is set with --timeout.")
        return STATUS_TIMED_OUT
    if result.outcome is Outcome.OOM:
        complain("ended by the memory limit of the sandbox.")
        return STATUS_OOM
    if result.outcome is Outcome.LOST:
        complain(f"The sandbox was lost and its state with it: {lost}.")
        return 1
    assert result.exit_code is not None
    return result.exit_code if result.exit_code >= 0 else 128 - result.exit_code


@app.command("ls")
def ls(as_json: Json = False) -> int:
    """Show open sandboxes, what crashes left, and the HOMEs of sessions."""
    from bubbles.app.workshop import workshop
    from bubbles.config.load import load_settings

    with workshop(load_settings()) as shop:
        return run(_ls(shop, as_json))


async def _ls(shop: Workshop, as_json: bool) -> int:
    import asyncio

    from sandbox_backends.inventory import list_sandboxes, session_homes

    found = await list_sandboxes(shop.backends)
    homes = await asyncio.to_thread(session_homes, shop.settings.data_dir)
    if as_json:
        boxes = [
            {
                "id": box.record.id,
                "session": box.record.session,
                "backend": box.record.backend,
                "state": "open" if box.alive else "left over",
                "owner_pid": box.record.owner_pid or None,
                "created_s": box.record.created_s,
                "roots": list(box.record.roots),
            }
            for box in found
        ]
        print_json(
            {
                "sandboxes": boxes,
                "homes": [{"session": home.session, "size_bytes": home.size_bytes} for home in homes],
            }
        )
        return 0
    if not found and not homes:
        print("No sandbox is open and no session has a HOME yet.")
    if found:
        rows = [
            (
                box.record.session,
                box.record.backend,
                box.record.id,
                box.state,
                f"{max(0.0, time.time() - box.record.created_s) / 60:.0f} min",
                " ".join(box.record.roots),
            )
            for box in found
        ]
        print_table(("SESSION", "BACKEND", "ID", "STATE", "AGE", "ROOTS"), rows)
    if homes:
        print_table(("SESSION", "HOME"), [(home.session, size(home.size_bytes)) for home in homes])
    return 0


@app.command("rm")
def rm(
    sessions: Annotated[list[str] | None, typer.Argument(metavar="[SESSION]...", help="Which ones.")] = None,
    left_over: Annotated[bool, typer.Option("--left-over", help="All that crashes left behind.")] = False,
    home: Annotated[bool, typer.Option("--home", help="Also the HOME kept for SESSION, with its logins.")] = False,
) -> int:
    """Remove what crashes left of SESSION. With --home its HOME too; with --left-over all that crashes left.

    A sandbox in use is never removed: it ends with the process that owns it. Leftovers also go by themselves with the
    next 'exec'.
    """
    from bubbles.app.workshop import workshop
    from bubbles.config.load import load_settings

    names = tuple(sessions or ())
    if not names and not left_over:
        raise typer.BadParameter("name a session as 'bubbles sandbox ls' shows it, or give --left-over.")
    if home and not names:
        raise typer.BadParameter("--home needs the name of a session.")
    with workshop(load_settings()) as shop:
        return run(_rm(shop, names, left_over, home))


async def _rm(shop: Workshop, names: tuple[str, ...], left_over: bool, home: bool) -> int:
    from sandbox_backends.inventory import reap

    status = 0
    for name in names:
        said = await _rm_session(shop, name, home)
        if said:
            complain(said)
            status = 1
    if left_over:
        for ident in await reap(shop.backends):
            print(f"removed {ident}")
    return status


async def _rm_session(shop: Workshop, name: str, home: bool) -> str | None:
    """What kept it from being removed."""
    import asyncio

    from sandbox_backends.inventory import list_sandboxes, reap
    from sandbox_backends.trees import remove_tree

    kept = shop.home(name)
    removed = await reap(shop.backends, session=name)
    for ident in removed:
        print(f"removed {ident}")
    # Only now: what a crash left may still have been at work in the HOME.
    found = [box for box in await list_sandboxes(shop.backends) if box.record.session == name]
    has_home = await asyncio.to_thread(os.path.lexists, kept)
    if users := sorted({box.state for box in found if box.alive}):
        return f"{name} is in use, {' and '.join(users)}: stop that first."
    if found:
        return f"{found[0].record.id} was left by a crash and cannot be removed now: is its container engine running?"
    if not removed and not has_home:
        return f"There is no session {name!r} with a sandbox or a HOME: see 'bubbles sandbox ls'."
    if not home:
        return None if removed else f"{name} has no sandbox, only a HOME: give --home to remove that."
    if has_home:
        if not await asyncio.to_thread(remove_tree, kept):
            return f"{kept} could not be removed whole: look at what is left there."
        print(f"removed the HOME of {name}")
    return None
