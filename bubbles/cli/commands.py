"""The commands by name. A command's module is imported when it is wanted: ``--help`` needs its summary alone."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

SUMMARIES = {
    "agent": "Talk to the assistant in this terminal, or give it one message.",
    "gateway": "Answer in chats and run jobs, until it is stopped.",
    "onboard": "Find a model, try it, and set Bubbles up.",
    "status": "Show the configuration, the model, the sandbox and the rules.",
    "provider": "Log in to model providers, and keep their keys.",
    "channels": "Show the chat channels, and log in to them.",
    "demo": "Let a scripted model do a small task in a sandbox.",
    "sync-skills": "Bring new and changed skills to every session.",
    "cron": "Make, show and run jobs of all sessions.",
    "sandbox": "Run commands in a sandbox; no model and no key needed.",
    "rules": "See what would become of a command, and the rules in force.",
    "mcp": "Offer the tools to other agents, and see the MCP servers in use.",
    "timeline": "Show what was allowed, declined, asked about and run.",
}
"""Each is one line of a terminal. The module of a name has a function, or a group ``app``, of that name."""


class Commands(TyperGroup):
    """A group that makes a command when it is asked for it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, summary in SUMMARIES.items():
            self.add_command(TyperGroup(name=name, help=summary), name)
        self._made: dict[str, Command] = {}

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        del ctx
        if cmd_name in SUMMARIES and cmd_name not in self._made:
            self._made[cmd_name] = made(cmd_name)
        return self._made.get(cmd_name)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


def made(name: str) -> Command:
    """The command of this name, as the whole program would have it."""
    own = name.replace("-", "_")
    module = importlib.import_module(f"bubbles.cli.{own}")
    whole = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    whole.callback()(lambda: None)  # else one command alone would be the program
    if (group := getattr(module, "app", None)) is None:
        whole.command(name)(getattr(module, own))
    else:
        whole.add_typer(group, name=name)
    found: Command = typer.main.get_group(whole).commands[name]
    return found
