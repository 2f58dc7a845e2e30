"""``bubbles onboard``: makes the configuration and the folders, or changes single settings of what is there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from bubbles.cli import completing
from bubbles.cli.report import complain, print_json, visible
from bubbles.cli.unchosen import BY_ONBOARD, no_boundary
from bubbles.cli.wishes import Wishes, changes_of, meant
from bubbles.errors import ConfigError

if TYPE_CHECKING:
    from bubbles.config.edit import Change
    from bubbles.config.load import Places
    from bubbles.config.schema import FileSettings
    from bubbles.config.setup import SetUp
    from bubbles.providers.select import Choice

QUESTION = "is there already. [k]eep it, or [r]eset to a fresh one (this one is copied aside first)? [K/r] "
EXAMPLE = (
    "Say which model to use, and which environment variable holds the key to it, such as: "
    "bubbles onboard --model anthropic/claude-sonnet-5-5 --api-key-env ANTHROPIC_API_KEY"
)
TALK = "Talk to your assistant: bubbles agent"

Provider = Annotated[
    str | None,
    typer.Option(
        "--provider",
        metavar="P",
        help="Its provider; left out, the model's name tells.",
        autocompletion=completing.providers,
    ),
]
Sandbox = Annotated[
    str | None,
    typer.Option(
        "--sandbox",
        metavar="B",
        help="Where commands run: local, bubblewrap, docker, ….",
        autocompletion=completing.backends,
    ),
]


def onboard(
    model: Annotated[
        str | None, typer.Option("--model", metavar="M", help="The model, such as anthropic/claude-sonnet-5-5.")
    ] = None,
    provider: Provider = None,
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
    sandbox: Sandbox = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Keep an existing configuration and set only what the flags name.")
    ] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="Begin a fresh configuration; the old one is copied aside first.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: keep what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> int:
    """Make the configuration and the folders. Sessions are never touched, and a second run changes nothing.

    At a terminal, and with no flag that decides, it first looks for keys in the environment and for models on this
    machine, sends one request to the one that you choose, and tries the sandboxes. Off a terminal nothing is asked.
    """
    from bubbles.config.load import find_places
    from bubbles.config.setup import set_up

    if refresh and reset:
        raise typer.BadParameter("--refresh and --reset exclude each other: give one of them")
    wishes = Wishes(model=model, provider=provider, api_key_env=api_key_env, base_url=base_url, sandbox=sandbox)
    places = find_places()
    held = None if reset else _held(places)
    changes = changes_of(wishes, held)
    decided = bool(refresh or reset or yes or as_json or changes)
    if os.path.lexists(places.config) and not decided:
        reset = _asked_to_reset(places)
    talked = not decided and _has_a_person()
    if talked:
        changes, wishes = _talked(places, None if reset else held, reset)
    done = set_up(places, changes, reset=reset, now=datetime.now().astimezone())
    warnings = [*done.warnings, *_warnings(places, done)]
    problem, steps = _next_steps(places, wishes)
    if as_json:
        _print_json(places, done, warnings, problem, steps)
    else:
        _show(places, done, warnings, _as_called(places, wishes.api_key_env if talked else None, steps))
    return 0


def _has_a_person() -> bool:
    """Whether all three are a terminal: with stderr elsewhere half of the conversation would be missing."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams)


def _talked(places: Places, held: FileSettings | None, reset: bool) -> tuple[list[Change], Wishes]:
    """What the person at the terminal agreed to. Raises typer.Abort, with nothing written."""
    from bubbles.cli.setup.asking import heading
    from bubbles.cli.setup.conversation import Conversation
    from bubbles.cli.setup.writing import changes_for, program

    called = program(places.environment)
    try:
        agreed = Conversation(places=places, held=held, fresh=reset, program=called).hold()
    except ConfigError:  # such as an odd variable: it is told of below, as it is without a conversation
        return [], Wishes()
    heading("Set up")
    variable = agreed.offer.variable if agreed.offer is not None else None
    return changes_for(agreed, held), Wishes(api_key_env=variable, sandbox=agreed.sandbox)


def _as_called(places: Places, variable: str | None, steps: list[str]) -> list[str]:
    """The steps for a person: Bubbles as they call it, and where the key of ``variable`` has to be."""
    from bubbles.cli.setup.writing import program

    called = program(places.environment)
    steps = [step.replace("bubbles ", f"{called} ") for step in steps]
    if variable is None:
        return steps
    said = f"Set {variable} wherever Bubbles is started, in your shell's profile for one: the key itself is written"
    return [f"{said} nowhere.", *steps]


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


def _print_json(places: Places, done: SetUp, warnings: list[str], problem: str | None, steps: list[str]) -> None:
    print_json(
        {
            "config": str(places.config),
            "action": done.action,
            "set": _names(done),
            "made": [str(path) for path in done.made],
            "mode_mended": done.closed,
            "backup": None if done.backup is None else str(done.backup),
            "warnings": warnings,
            "problem": problem,
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
        settings = load_settings(places.environment)
        return [*settings.warnings, *settings.provider_warnings, *found]
    except ConfigError as error:
        return [str(error), *found]


def _next_steps(places: Places, wishes: Wishes) -> tuple[str | None, list[str]]:
    """Why no turn could run now, if so; and what is left to do, in plain words, beginning with what mends that."""
    from bubbles.config.load import load_settings
    from bubbles.providers.logins.store import missing_login
    from bubbles.providers.select import choose

    try:
        settings = load_settings(places.environment)
    except ConfigError as error:
        return str(error), ["Mend what is said above, then talk to your assistant: bubbles agent"]
    problem: str | None = None
    steps: list[str] = []
    try:
        choice = choose(settings)
    except ConfigError as error:
        problem = str(error)
        steps.append(EXAMPLE if settings.agents.defaults.model is None else problem)
    else:
        steps += _of_another(choice)
        if said := missing_login(settings.data_dir, choice.provider):
            problem = said
            steps.append(said)
        if wishes.api_key_env is not None and not places.environment.get(wishes.api_key_env):
            steps.append(f"Put the key into the environment variable {wishes.api_key_env}, where Bubbles is started.")
    if said := no_boundary(settings, wishes.sandbox, mend=BY_ONBOARD):
        steps.append(said)
    return problem, [*steps, TALK]


def _of_another(choice: Choice) -> Iterator[str]:
    """A provider that was set earlier gets every model, and one that has only its own knows no other's."""
    from bubbles.providers.registry import REGISTRY, Kind

    chosen, named = REGISTRY[choice.provider], meant(choice.model_given)
    if named is not None and named is not chosen and chosen.kind is Kind.VENDOR and chosen.keywords:
        yield (
            f"The provider is set to {chosen.name}, which has no {choice.model_given}: if {named.name} is meant, run "
            f"'bubbles onboard --provider {named.name}'."
        )
