"""``bubbles rules``: what would become of a command, and which rules are in force."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bubbles.cli.report import HELP, complain, print_json, print_table, session_key, styled, visible
from bubbles.errors import BubblesError

if TYPE_CHECKING:
    from bubbles.config.schema import Settings
    from bubbles.controller.policy.contract import Command, Context, Decision
    from bubbles.controller.rulefiles import LoadedRules

app = typer.Typer(
    help="See what would become of a command, and which rules are in force; nothing is run.",
    no_args_is_help=True,
    context_settings=HELP,
)

OUTCOMES = ("auto_allow", "ask", "decline")
"""By ``Verdict``."""
SAID = ("It runs without asking", "A person is asked", "It is declined")
STYLES = ("green", "yellow", "red")
MAX_COMPLAINTS = 5
MAX_LINE_BYTES = 4 << 20
"""Of one row of ``--batch``."""

Session = Annotated[
    str | None,
    typer.Option("--session", "-s", metavar="NAME", parser=session_key, help="Also this session's own rules."),
]
Rules = Annotated[
    Path | None,
    typer.Option("--rules", metavar="DIR", help="In place of the assistant's rules.", show_default="~/.bubbles/rules"),
]
GlobalRules = Annotated[
    Path | None,
    typer.Option("--global-rules", metavar="DIR", help="In place of Codex's rules.", show_default="$CODEX_HOME/rules"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@app.command("check", context_settings={"allow_interspersed_args": False})
def check(
    command: Annotated[list[str] | None, typer.Argument(metavar="ARGV", help="A program and its arguments.")] = None,
    script: Annotated[str | None, typer.Option("--script", metavar="TEXT", help="Shell text instead.")] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch",
            metavar="FILE",
            help='JSON lines {"id", "cmd", "cwd"} instead, or - for standard input.',
        ),
    ] = None,
    cwd: Annotated[
        Path | None, typer.Option("--cwd", metavar="DIR", help="Where it would run.", show_default="the project root")
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", metavar="DIR", help="Project root.", show_default="current directory")
    ] = None,
    desk: Annotated[
        Path | None,
        typer.Option("--desk", metavar="DIR", help="The session's directory.", show_default="with -s: its own"),
    ] = None,
    backend: Annotated[
        str | None, typer.Option("--backend", "-b", metavar="B", help="Sandbox.", show_default="as configured")
    ] = None,
    session: Session = None,
    rules: Rules = None,
    global_rules: GlobalRules = None,
    as_json: Json = False,
) -> int:
    """Say what would become of a command, and why. The same function decides at run time; nothing is run.

    Exit status 0, whatever the verdict; 1 if rows of --batch are no commands.
    """
    from bubbles.config.load import load_settings
    from bubbles.controller.policy.contract import Command

    if [bool(command), script is not None, batch is not None].count(True) != 1:
        raise typer.BadParameter("give one of: -- PROGRAM ARGUMENTS, --script TEXT, or --batch FILE.")
    settings = load_settings()
    _warn(settings.warnings)
    loaded = _load(settings, session, rules, global_rules)
    _warn(str(warning) for layer in loaded.layers for warning in layer.warnings)
    context = _context(settings, backend=backend, session=session, root=root, desk=desk, cwd=cwd)
    if batch is not None:
        return _batch(batch, context, loaded)
    if command and len(command) == 1 and " " in command[0]:
        complain(f"{command[0]!r} is taken for the name of a program: for shell text give --script.")
    wanted = Command(argv=tuple(command)) if command else Command.of_script(script or "")
    decision = _decide(wanted, context, loaded)
    if as_json:
        print_json(_as_json(decision))
    else:
        _show(decision)
        if (hint := _hint(decision, settings)) is not None:
            print(styled(visible(hint), "dim"))
    return 0


@app.command("list")
def list_(session: Session = None, rules: Rules = None, global_rules: GlobalRules = None, as_json: Json = False) -> int:
    """Show every layer of rules, and what is wrong in it. Exit status 1 if something is."""
    from bubbles.config.load import load_settings

    settings = load_settings()
    loaded = _load(settings, session, rules, global_rules)
    if as_json:
        print_json({"layers": [_layer_as_json(layer, loaded) for layer in reversed(loaded.layers)]})
    else:
        _warn(settings.warnings)
        _list(loaded)
    return 1 if any(layer.warnings for layer in loaded.layers) else 0


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        complain(warning)


def _load(settings: Settings, session: str | None, rules: Path | None, global_rules: Path | None) -> LoadedRules:
    from bubbles.controller.policy.contract import Layer
    from bubbles.controller.rulefiles import load_rulebook, rule_layers

    given = {Layer.ASSISTANT: rules, Layer.GLOBAL: global_rules}
    for option, path in (("--rules", rules), ("--global-rules", global_rules)):
        if path is not None and not path.is_dir():
            raise typer.BadParameter(f"{option} {path} is not a directory: name one that holds *.rules files.")
    return load_rulebook([(layer, given.get(layer) or path) for layer, path in rule_layers(settings, session)])


def _context(
    settings: Settings,
    *,
    backend: str | None,
    session: str | None,
    root: Path | None,
    desk: Path | None,
    cwd: Path | None,
) -> Context:
    """Where the command would run, as far as the options tell."""
    from bubbles.app.workshop import enforced, home_inside
    from bubbles.controller.policy.contract import Context, Mode
    from bubbles.controller.whereabouts import real_path
    from sandbox_backends.contract import Enforces
    from sandbox_backends.owner import check_key

    if desk is None and session is not None:
        desk = settings.data_dir / "sessions" / check_key(session)
    roots = [_absolute(path) for path in (root or (None if desk and cwd else Path()), desk) if path is not None]
    name = backend or settings.tools.sandbox.backend
    holds = enforced(settings, name)
    for path in roots:
        if path == "/" or str(settings.person_home).startswith(f"{path}/") or path == str(settings.person_home):
            complain(f"No sandbox opens with the root {path}: name a directory made for the work, with --root DIR.")
        elif not os.path.isdir(path):
            complain(f"There is no directory {path}: what is said is said as if there were.")
    return Context(
        cwd=_absolute(cwd) if cwd is not None else roots[0],
        roots=tuple(roots),
        home=home_inside(settings, name, holds, session),
        person_home=str(settings.person_home),
        contained=Enforces.FILESYSTEM in holds,
        offline=Enforces.NETWORK in holds and settings.tools.sandbox.network != "full",
        mode=Mode(settings.tools.approvals.mode),
        resolve=real_path,
    )


def _absolute(path: Path) -> str:
    try:
        return os.path.normpath(path.absolute())
    except OSError as error:
        raise BubblesError(f"The current directory is gone ({error.strerror}): go to one that is there.") from error


def _decide(command: Command, context: Context, loaded: LoadedRules) -> Decision:
    from bubbles.controller.policy.decide import decide

    return decide(command, context, loaded.rulebook)


def _as_json(decision: Decision) -> dict[str, Any]:
    return {
        "outcome": OUTCOMES[decision.verdict],
        "stage": str(decision.stage),
        "policy": str(decision.policy),
        "reason": decision.reason,
        "segment": decision.segment,
        "matches": [
            {
                "decision": str(match.effect),
                "prefix": list(match.prefix),
                "layer": str(match.layer),
                "file": match.file,
                "line": match.line,
                "justification": match.justification,
                "overridden": match.overridden,
            }
            for match in decision.matches
        ],
    }


def _show(decision: Decision) -> None:
    said = styled(SAID[decision.verdict], STYLES[decision.verdict])
    print(f"{said} (stage {decision.stage}, policy {decision.policy}).")
    print(visible(decision.reason))
    if decision.segment and decision.verdict:
        print(f"part:  {visible(decision.segment)}")
    for match in decision.matches:
        over = "  (overridden)" if match.overridden else ""
        line = f"rule:  {match.effect} {' '.join(match.prefix)}  {match.layer} {match.file}:{match.line}{over}"
        print(visible(line))


def _hint(decision: Decision, settings: Settings) -> str | None:
    """The rule that would let a plain command through, for a person to copy."""
    import shlex

    from bubbles.controller.policy.contract import Layer, Policy, Verdict
    from bubbles.controller.policy.rules import parse_rules

    if decision.verdict is not Verdict.ASK or decision.policy is not Policy.NO_RULE or decision.matches:
        return None
    try:
        words = shlex.split(decision.segment)
    except ValueError:
        return None
    plain = [word for word in words[:3] if word.isascii() and word.replace("-", "").replace("_", "").isalnum()]
    if not plain or plain[0] != words[0] or any(mark in decision.segment for mark in "$`<>{}*?~="):
        return None
    prefix = plain[:2] if len(plain) > 1 and plain[1] == words[1] and not plain[1].startswith("-") else plain[:1]
    line = f"prefix_rule(pattern={json.dumps(prefix)})"
    made = parse_rules(line + "\n", file="hint", layer=Layer.ASSISTANT).rules
    if not made or not made[0].grants:
        return None
    return f"to allow it and the like: {line} in a file {settings.data_dir / 'rules'}/NAME.rules"


def _batch(name: str, context: Context, loaded: LoadedRules) -> int:
    from dataclasses import replace

    from bubbles.controller.policy.contract import Command

    wrong = 0
    for number, line in enumerate(_lines(name), 1):
        if not line.strip():
            continue
        row = _row(line)
        if isinstance(row, str):
            wrong += 1
            if wrong <= MAX_COMPLAINTS:
                complain(f"line {number} of {name}: {row}")
            continue
        place = context
        if row.get("cwd"):
            place = replace(context, cwd=os.path.normpath(os.path.join(context.cwd, row["cwd"])))
        decision = _decide(Command.of_script(row["cmd"]), place, loaded)
        print(json.dumps({"id": row.get("id"), **_as_json(decision)}))
    if wrong > MAX_COMPLAINTS:
        complain(f"{wrong} lines of {name} are no commands; the first {MAX_COMPLAINTS} are named above.")
    return 1 if wrong else 0


def _lines(name: str) -> Iterator[bytes]:
    if name == "-":
        if sys.stdin is not None:
            yield from iter(lambda: sys.stdin.buffer.readline(MAX_LINE_BYTES), b"")
        return
    try:
        with open(name, "rb") as file:
            yield from iter(lambda: file.readline(MAX_LINE_BYTES), b"")
    except OSError as error:
        raise BubblesError(f"--batch {name} cannot be read ({error.strerror}): name a file of JSON lines.") from error


def _row(line: bytes) -> dict[str, Any] | str:
    """The row, or what is wrong with it."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return 'it is not JSON: write {"id": …, "cmd": "…"}.'
    if not isinstance(row, dict) or not isinstance(row.get("cmd"), str):
        return 'it has no text in "cmd": write {"id": …, "cmd": "…"}.'
    if not isinstance(row.get("cwd"), str | None):
        return '"cwd" is not a text: write the path of a directory.'
    return row


def _layer_as_json(layer: Any, loaded: LoadedRules) -> dict[str, Any]:
    return {
        "layer": str(layer.layer),
        "path": str(layer.path),
        "files": [str(file) for file in layer.files],
        "rules": [
            {
                "decision": str(rule.effect),
                "pattern": [list(part) if len(part) > 1 else part[0] for part in rule.pattern],
                "file": rule.file,
                "line": rule.line,
                "justification": rule.justification,
            }
            for rule in loaded.rulebook.rules
            if rule.layer == layer.layer
        ],
        "warnings": [str(warning) for warning in layer.warnings],
    }


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _list(loaded: LoadedRules) -> None:
    for layer in reversed(loaded.layers):
        mine = [rule for rule in loaded.rulebook.rules if rule.layer == layer.layer]
        held = f"{_counted(len(mine), 'rule')} in {_counted(len(layer.files), 'file')}"
        print(styled(visible(f"{layer.layer}: {layer.path}, {held}"), "bold"))
        for warning in layer.warnings:
            print(visible(f"  warning: {warning}"))
        if mine:
            print_table(
                ("  DECISION", "PREFIX", "WHERE"),
                [
                    (
                        f"  {rule.effect}",
                        " ".join("|".join(part) for part in rule.pattern),
                        f"{os.path.basename(rule.file)}:{rule.line}",
                    )
                    for rule in mine
                ],
            )
