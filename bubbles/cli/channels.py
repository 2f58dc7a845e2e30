"""``bubbles channels``: the chat channels, how they stand, and logging in to them (CHAN-02, CHAN-07)."""

from __future__ import annotations

from typing import Annotated

import typer

from bubbles.cli.report import HELP, visible

app = typer.Typer(
    help="The chat channels: how they stand, and logging in.", no_args_is_help=True, context_settings=HELP
)


def _names() -> list[str]:
    from bubbles.channels.registry import manifests

    return [manifest.name for manifest in manifests()]


def _named(text: str) -> str:
    if (name := text.strip().lower()) not in (names := _names()):
        raise typer.BadParameter(f"{visible(text[:60])!r} is no channel: take one of {', '.join(names)}")
    return name


def _complete(incomplete: str) -> list[str]:
    return [name for name in _names() if name.startswith(incomplete)]


@app.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False) -> int:
    """Show each channel: what is missing, who is let in, and, of a running gateway, how it is and whom it turned away.

    No token is shown. Exit status 0, warnings or not.
    """
    from bubbles.cli.channels_status import shown
    from bubbles.config.load import load_settings

    return shown(load_settings(), as_json=as_json)


@app.command()
def login(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The channel, such as telegram.", parser=_named, autocompletion=_complete),
    ],
    token_env: Annotated[
        str | None,
        typer.Option(
            "--token-env", metavar="VAR", help="Take the token from this environment variable, and ask nothing for it."
        ),
    ] = None,
) -> int:
    """Set a channel up: asks for its token, tries it, waits for a first message, and lets its sender in.

    Nobody is let in without your yes.
    """
    from bubbles.cli.channels_login import login as log_in

    return log_in(name, token_env)
