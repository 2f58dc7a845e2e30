"""``bubbles provider``: logins to providers that have no key, and the keys of the others (PROV-03, SEC-03)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bubbles.cli.provider_key import set_key
from bubbles.cli.report import HELP, complain, print_json, print_table, run, styled, visible
from bubbles.providers.registry import REGISTRY, Kind

if TYPE_CHECKING:
    from bubbles.config.schema import Settings
    from bubbles.providers.logins.contract import Login

app = typer.Typer(help="Logins and keys of model providers.", no_args_is_help=True, context_settings=HELP)
app.command("key")(set_key)

MODELS = {entry.name: entry.default_model for entry in REGISTRY.values() if entry.kind is Kind.LOGIN}
"""What one may begin with."""


def _complete(incomplete: str) -> list[str]:
    return [name for name in MODELS if name.startswith(incomplete)]


def _named(name: str) -> str:
    from bubbles.providers.registry import spelled

    if (known := spelled(name)) not in MODELS:
        raise typer.BadParameter(f"{visible(name[:60])!r} has no login: take one of {', '.join(MODELS)}")
    return known


Provider = Annotated[
    str, typer.Argument(metavar="PROVIDER", help=", or ".join(MODELS) + ".", parser=_named, autocompletion=_complete)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@app.command()
def login(
    provider: Provider,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Open no browser here; the address is printed in any case.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Log in to a provider by its own page. A login that is there already is replaced when the new one is made.

    With --json the outcome goes to standard output, and what there is to do to standard error.
    """
    from bubbles.cli.logs import logging_for
    from bubbles.cli.provider_login import log_in
    from bubbles.config.load import load_settings
    from bubbles.providers.logins.contract import LoginError

    settings = load_settings()
    with logging_for(settings, logging.WARNING):
        made = log_in(settings, provider, browser=not no_browser, out=sys.stderr if as_json else sys.stdout)
    if as_json:
        print_json({**_as_json(provider, made.login), "problem": made.problem})
    else:
        who = f" as {visible(made.login.person)}" if made.login.person else ""
        print(f"Logged in to {provider}{who}.")
        if made.problem is None:
            print(f"Use it: bubbles onboard --provider {provider} --model {MODELS[provider]}")
    if made.problem is not None:
        raise LoginError(made.problem)
    return 0


@app.command()
def logout(provider: Provider, as_json: AsJson = False) -> int:
    """Forget a login. It is ended at the provider's, where that can be done, and removed here."""
    from bubbles.cli.logs import logging_for
    from bubbles.cli.provider_login import log_out
    from bubbles.config.load import load_settings

    settings = load_settings()
    with logging_for(settings, logging.WARNING):
        left = run(log_out(settings, provider))
    if as_json:
        print_json({"provider": provider, "was_logged_in": left is not None, "note": left or None})
    elif left is None:
        print(f"There was no login of {provider}.")
    else:
        print(f"Logged out of {provider}.")
        if left:
            print(styled(visible(left), "dim"))
    return 0


@app.command()
def status(as_json: AsJson = False) -> int:
    """Show each login, and which providers have a key. No token and no key is shown."""
    from bubbles.cli.logs import logging_for
    from bubbles.config.load import load_settings

    settings = load_settings()
    with logging_for(settings, logging.WARNING):
        logins = [_looked_up(settings, name) for name in MODELS]
    keys = _with_keys(settings)
    if as_json:
        print_json({"logins": logins, "keys": keys})
        return 0
    rows = [
        (one["provider"], one["person"] or "-", _day(one["made_at"]), _said(one)) for one in logins if one["logged_in"]
    ]
    if rows:
        print_table(("LOGIN", "PERSON", "SINCE", "ACCESS"), rows)
    for one in logins:
        if one["problem"]:
            complain(one["problem"])
        elif not one["logged_in"]:
            print(f"{one['provider']}: no login. Make one: bubbles provider login {one['provider']}")
    print(f"keys: {', '.join(keys) or 'none. Set one: bubbles provider key NAME'}")
    return 0


def _looked_up(settings: Settings, provider: str) -> dict[str, Any]:
    from bubbles.providers.logins.contract import LoginError
    from bubbles.providers.logins.store import LoginStore

    try:
        found = LoginStore(settings.data_dir).read(provider)
    except LoginError as error:
        return {**_as_json(provider, None), "problem": str(error)}
    return {**_as_json(provider, found), "problem": None}


def _as_json(provider: str, login: Login | None) -> dict[str, Any]:
    """Nothing here is a secret."""

    def date(when: datetime | None) -> str | None:
        return None if when is None else when.isoformat(timespec="seconds")

    return {
        "provider": provider,
        "logged_in": login is not None,
        "person": (login.person or None) if login else None,
        "plan": (login.more.get("plan") or None) if login else None,
        "made_at": date(login.made_at) if login else None,
        "access_until": date(login.expires_at) if login else None,
    }


def _said(one: Mapping[str, Any]) -> str:
    if one["access_until"] is None:
        return "renewed when it is used"
    until = datetime.fromisoformat(one["access_until"])
    when = f"{until.astimezone():%Y-%m-%d %H:%M}"
    return f"until {when}" if until > datetime.now(UTC) else f"ended {when}, renewed when it is used"


def _day(when: str | None) -> str:
    return "-" if when is None else f"{datetime.fromisoformat(when).astimezone():%Y-%m-%d}"


def _with_keys(settings: Settings) -> list[str]:
    from bubbles.config.schema import ProvidersSettings

    return [name for name in ProvidersSettings.model_fields if getattr(settings.providers, name).api_key is not None]
