"""``bubbles onboard``: makes the configuration and the folders, or changes single settings of what is there."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from bubbles.cli.report import complain, print_json, visible
from bubbles.errors import ConfigError

if TYPE_CHECKING:
    from bubbles.config.edit import Change
    from bubbles.config.load import Places
    from bubbles.config.schema import FileSettings
    from bubbles.config.setup import SetUp

QUESTION = "is there already. [k]eep it, or [r]eset to a fresh one (this one is copied aside first)? [K/r] "
EXAMPLE = (
    "Say which model to use, and which environment variable holds the key to it, such as: "
    "bubbles onboard --model anthropic/claude-sonnet-4-5 --api-key-env ANTHROPIC_API_KEY"
)
PASSWORD_IN_URL = re.compile(r"://[^\s/@]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the flags ask for."""

    model: str | None = None
    provider: str | None = None
    api_key_env: str | None = None
    base_url: str | None = None
    sandbox: str | None = None


def onboard(
    model: Annotated[
        str | None, typer.Option("--model", metavar="M", help="The model, such as anthropic/claude-sonnet-4-5.")
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="P", help="Its provider; left out, the model's name tells.")
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            "--api-key-env",
            metavar="VAR",
            help="The environment variable that holds the provider's key; only its name is written. The key itself is "
            "never taken on a command line, where other users and the shell's history could read it.",
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="The provider's address, if not its usual one.")
    ] = None,
    sandbox: Annotated[
        str | None, typer.Option("--sandbox", metavar="B", help="Where commands run: local, bubblewrap, docker, ….")
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Keep an existing configuration and set only what the flags name.")
    ] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="Begin a fresh configuration; the old one is copied aside first.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: keep what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> int:
    """Make the configuration and the folders. Sessions are never touched, and a second run changes nothing."""
    from bubbles.config.load import find_places
    from bubbles.config.setup import set_up

    if refresh and reset:
        raise typer.BadParameter("--refresh and --reset exclude each other: give one of them")
    wishes = Wishes(model=model, provider=provider, api_key_env=api_key_env, base_url=base_url, sandbox=sandbox)
    places = find_places()
    held = None if reset else _held(places)
    changes = _changes(wishes, held)
    if os.path.lexists(places.config) and not (refresh or reset or yes or as_json or changes):
        reset = _asked_to_reset(places)
    done = set_up(places, changes, reset=reset, now=datetime.now().astimezone())
    warnings = [*done.warnings, *_warnings(places, done)]
    steps = _next_steps(places, wishes)
    if as_json:
        _print_json(places, done, warnings, steps)
    else:
        _show(places, done, warnings, steps)
    return 0


def _held(places: Places) -> FileSettings | None:
    """What the file says by itself; None if there is none. The environment may be as odd as it likes."""
    from bubbles.config.edit import check
    from bubbles.config.schema import FileSettings

    if not os.path.lexists(places.config):
        return None
    try:
        settings = check(places.config).settings
    except ConfigError as error:
        said = f"{error} Nothing was changed; 'bubbles onboard --reset' copies it aside and begins a fresh one."
        fault = ConfigError(said)
    else:
        assert isinstance(settings, FileSettings)
        return settings
    raise fault


def _changes(wishes: Wishes, held: FileSettings | None) -> list[Change]:
    """What the flags demand. Raises typer.BadParameter."""
    from bubbles.config.care import looks_secret
    from bubbles.config.edit import Change
    from bubbles.config.references import NAME

    found: list[Change] = []
    defaults = ("agents", "defaults")
    if wishes.model is not None:
        if not wishes.model.strip().isprintable() or not wishes.model.strip():
            raise typer.BadParameter(f"--model {wishes.model!r} is no name of a model: give one such as openai/gpt-5")
        found.append(Change(names=(*defaults, "model"), value=wishes.model.strip()))
    if wishes.provider is not None:
        found.append(Change(names=(*defaults, "provider"), value=_provider_named(wishes.provider)))
    if wishes.api_key_env is not None:
        if looks_secret(wishes.api_key_env) or not NAME.fullmatch(wishes.api_key_env):
            raise typer.BadParameter("--api-key-env takes the name of an environment variable, such as OPENAI_API_KEY")
        names = ("providers", _provider(wishes, held, "--api-key-env"), "api_key")
        found.append(Change(names=names, value=f"${{{wishes.api_key_env}}}"))
    if wishes.base_url is not None:
        found.append(Change(names=("providers", _provider(wishes, held, "--base-url"), "base_url"), value=_url(wishes)))
    if wishes.sandbox is not None:
        found.append(Change(names=("tools", "sandbox", "backend"), value=_sandbox(wishes.sandbox)))
    return found


def _provider_named(name: str) -> str:
    from bubbles.config.schema import ProvidersSettings

    names = tuple(ProvidersSettings.model_fields)
    wanted = name.strip().lower().replace("-", "_")
    if wanted not in names:
        raise typer.BadParameter(f"--provider {name!r} is not known: take one of {', '.join(names)}")
    return wanted


def _provider(wishes: Wishes, held: FileSettings | None, flag: str) -> str:
    """Whose key or address it is: the flags tell, else the file."""
    from bubbles.config.schema import ProvidersSettings

    if wishes.provider is not None:
        return _provider_named(wishes.provider)
    chosen = held.agents.defaults if held else None
    if wishes.model is None and chosen and chosen.provider in ProvidersSettings.model_fields:
        return str(chosen.provider)
    model = wishes.model or (chosen.model if chosen else None) or ""
    prefix = model.strip().partition("/")[0] if "/" in model else ""
    if prefix in ProvidersSettings.model_fields:
        return prefix
    raise typer.BadParameter(f"{flag} needs to know whose it is: add --provider, such as --provider openai")


def _url(wishes: Wishes) -> str:
    url = (wishes.base_url or "").strip()
    if PASSWORD_IN_URL.search(url) and "${" not in url:
        raise typer.BadParameter(
            "--base-url holds a login, which others can read on a command line: write ${VAR} in place of its password"
        )
    return url


def _sandbox(name: str) -> str:
    from sandbox_backends.registry import backend_names

    names = backend_names()
    if name not in names:
        raise typer.BadParameter(f"--sandbox {name!r} is not known: take one of {', '.join(names)}")
    return name


def _asked_to_reset(places: Places) -> bool:
    """Whether the person at the terminal, if there is one, wants a fresh file. Raises typer.Abort."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    while True:
        print(f"{visible(str(places.config))} {QUESTION}", end="", flush=True)  # input() itself writes to stderr
        try:
            answer = input().strip().lower()
        except EOFError as error:
            print()
            raise typer.Abort from error
        if answer in ("", "k", "keep", "r", "reset"):
            return answer.startswith("r")
        print("Please answer k or r.")


def _names(done: SetUp) -> list[str]:
    return [".".join(each.names) for each in done.changes]


def _print_json(places: Places, done: SetUp, warnings: list[str], steps: list[str]) -> None:
    print_json(
        {
            "config": str(places.config),
            "action": done.action,
            "set": _names(done),
            "made": [str(path) for path in done.made],
            "mode_mended": done.closed,
            "backup": None if done.backup is None else str(done.backup),
            "warnings": warnings,
            "next": steps,
        }
    )


def _show(places: Places, done: SetUp, warnings: list[str], steps: list[str]) -> None:
    config = visible(str(places.config))
    match done.action:
        case "created":
            print(f"Made {config}, which only you can read.")
        case "reset":
            print(f"Made a fresh {config}.")
        case "changed":
            print(f"Kept {config}, and set in it what you named.")
        case _:
            print(f"Nothing to change: {config} is as asked." if done.nothing else f"Kept {config}.")
    if done.backup is not None:
        print(f"The old one is {visible(str(done.backup))}.")
    if done.changes:
        print(f"It says now: {', '.join(_names(done))}.")
    if done.closed:
        print("Others could read it, and no longer can (mode 0600).")
    for path in done.made:
        print(f"Made {visible(str(path))}/")
    for warning in warnings:
        complain(warning)
    for number, step in enumerate(steps, 1):
        print(f"{number}. {visible(step)}")


def _warnings(places: Places, done: SetUp) -> list[str]:
    """What is odd about the settings in force; a wrong variable is no fault of the file."""
    from bubbles.config.load import load_settings, variable_of

    covered = [variable_of(each.names) for each in done.changes]
    found = [
        f"{name} is set, and counts instead of what was written." for name in covered if places.environment.get(name)
    ]
    try:
        return [*load_settings(places.environment).warnings, *found]
    except ConfigError as error:
        return [str(error), *found]


def _next_steps(places: Places, wishes: Wishes) -> list[str]:
    """What is left to do, in plain words."""
    from bubbles.config.load import load_settings

    talk = "Talk to your assistant: bubbles agent"
    try:
        model = load_settings(places.environment).agents.defaults.model
    except ConfigError:
        return ["Mend what is said above, then talk to your assistant: bubbles agent"]
    if model is None:
        return [EXAMPLE, talk]
    if wishes.api_key_env is not None and not places.environment.get(wishes.api_key_env):
        return [f"Put the key into the environment variable {wishes.api_key_env}, where Bubbles is started.", talk]
    return [talk]
