"""``bubbles channels login``: a bot's token is tried, and who writes to it first is let in if that is confirmed."""

from __future__ import annotations

import logging
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bubbles.cli.report import run, styled, visible
from bubbles.errors import BubblesError

if TYPE_CHECKING:
    from bubbles.channels.telegram.login import Newcomers
    from bubbles.channels.telegram.updates import Me, Seen
    from bubbles.config.channels import TelegramSettings
    from bubbles.config.schema import Settings

WITHIN_S = 300.0
"""For the first message."""
NOTHING = "Nothing was changed."
OWN = ("channels", "telegram")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def login(name: str, token_env: str | None) -> int:
    """Set a channel up, with a person at the terminal. ``token_env``: the environment variable that has its token.

    Raises BubblesError and typer.BadParameter; nothing is written then, nor after Ctrl-C.
    """
    from pydantic import SecretStr

    from bubbles.channels.registry import MANIFESTS, missing
    from bubbles.cli.logs import logging_for
    from bubbles.config.edit import check
    from bubbles.config.load import find_places, load_settings

    if name != "telegram":
        raise typer.BadParameter(f"there is no login for {visible(name[:60])!r}: telegram has one")
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        raise BubblesError("Logging in is a conversation with you: run it in a terminal.")
    if missing(MANIFESTS[name]):
        raise BubblesError("Telegram needs a library that is not there: run pip install 'bubbles[telegram]'.")
    config = find_places().config
    check(config)  # where nothing can be set, nothing is asked for
    settings = load_settings()
    try:
        token = _token(settings, token_env)
        tried = settings.channels.telegram.model_copy(update={"token": SecretStr(token)})
        with logging_for(settings, logging.WARNING):
            bot, person = _talked(tried)
    except (KeyboardInterrupt, EOFError):
        print(f"\n{NOTHING}")
        raise typer.Exit(130) from None
    _write(config, token if token_env is None else f"${{{token_env}}}", person.id)
    who = visible(person.name or person.id)
    print(f"Telegram is on in {visible(str(config))}, and {who} may use the assistant by @{visible(bot.username)}.")
    print(f"Start it: {styled('bubbles gateway', 'bold')}. If it runs already, stop it first.")
    return 0


def _token(settings: Settings, variable: str | None) -> str:
    """Raises typer.BadParameter, EOFError, KeyboardInterrupt."""
    from bubbles.channels.telegram.channel import TOKEN
    from bubbles.cli.setup.asking import hidden

    if variable is None:
        print("Telegram's @BotFather makes a bot (/newbot), and then says its token.")
        token, whose = hidden("Token of the bot (it is not shown):"), "that"
    elif not VARIABLE.fullmatch(variable):
        raise typer.BadParameter(f"{visible(variable[:60])!r} is no name of an environment variable")
    else:
        token, whose = settings.host_env.get(variable, "").strip(), f"what {variable} holds"
        if not token:
            raise typer.BadParameter(f"the environment variable {variable} is not set: export it and try again")
    if not TOKEN.fullmatch(token):
        raise typer.BadParameter(f"{whose} is no token of a bot: it is like 123456:ABC…, as @BotFather says it")
    return token


def _talked(settings: TelegramSettings) -> tuple[Me, Seen]:
    """Who the bot is, and who is to be let in. Raises BubblesError, EOFError, KeyboardInterrupt."""
    from bubbles.channels.telegram.login import Newcomers, whose
    from bubbles.cli.setup.asking import choose, waiting

    with waiting("asking Telegram"):
        bot = run(whose(settings))
    address = f"@{visible(bot.username)}"
    print(f"The token is of {address} ({visible(bot.name)}).")
    print(f"Now write to it, alone, from your own account: https://t.me/{visible(bot.username)}")
    newcomers = Newcomers(settings)
    ends_at = time.monotonic() + WITHIN_S
    while (person := _awaited(newcomers, address, ends_at - time.monotonic())) is not None:
        name = f" (@{person.username})" if person.username else ""
        print(f"{visible(person.name or 'Somebody')}{visible(name)} has written; the id is {person.id}.")
        question = "May this person use the assistant, and with it all that it can do here? yes or no"
        if choose(question, ("yes", "no"), "no") == "yes":
            return bot, person
        ends_at = time.monotonic() + WITHIN_S
    raise BubblesError(f"Nobody has written to {address} within {WITHIN_S / 60:.0f} minutes: try again. {NOTHING}")


def _awaited(newcomers: Newcomers, address: str, within_s: float) -> Seen | None:
    from bubbles.channels.telegram.errors import SecondPollerError
    from bubbles.cli.setup.asking import waiting

    try:
        with waiting(f"waiting for a message to {address}; Ctrl-C ends it"):
            return run(newcomers.next(within_s))
    except SecondPollerError:
        pass
    raise BubblesError(
        f"Another program reads the messages of {address}, perhaps 'bubbles gateway': stop that one and try again. "
        f"{NOTHING}"
    )


def _write(config: Path, token: str, person: str) -> None:
    """Raises BubblesError. References that the file has stay references."""
    from bubbles.config.edit import EMPTY, Change, change_several
    from bubbles.config.fields import known
    from bubbles.config.files import read
    from bubbles.config.jsontext import parse
    from bubbles.config.schema import FileSettings

    found = read(config)
    tree = known(FileSettings, parse(EMPTY if found is None else found.text, str(config)), str(config), [])
    allowed = tree.get("channels", {}).get("telegram", {}).get("allow_from", [])
    if not isinstance(allowed, list):
        raise BubblesError(f"channels.telegram.allowFrom in {config} is no list: make it one. {NOTHING}")
    changes = [Change(names=(*OWN, "enabled"), value=True), Change(names=(*OWN, "token"), value=token)]
    if not {person, "*"} & set(map(str, allowed)):
        changes.append(Change(names=(*OWN, "allow_from"), value=[*allowed, person]))
    change_several(config, changes)
