"""Slash commands that any channel understands: they look at a session or set it, and never reach the model (CLI-02)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bubbles.bus import Origin
from bubbles.config.schema import SessionSettings
from bubbles.config.session import DEFAULT, change_session_setting, named
from bubbles.controller.rulefiles import LoadedRules
from bubbles.cron.contract import JobsFileError
from bubbles.dispatch.contract import CommandError
from bubbles.dispatch.heartbeat import NOT_HERE, Heartbeats
from bubbles.dispatch.notices import CLI
from bubbles.dispatch.turns import CONFIG, Setup, TurnRunner
from bubbles.errors import BubblesError, ConfigError
from bubbles.providers.contract import ToolCall
from bubbles.tools.contract import ToolResult
from bubbles.tools.services import TaskInfo, TaskState
from bubbles.tools.spawn import told

HELP = {
    "/config [KEY]": "show what holds in this session",
    "/config KEY VALUE": "set model, provider, sandbox, system_prompt; 'default' undoes",
    "/prompt": "print the system prompt exactly as it is sent",
    "/compact": "summarise the older part of this conversation",
    "/status": "show what is in force here",
    "/heartbeat [TIME]": "show or set how often the assistant looks by itself: 30m, 2h, off",
    "/stop": "stop what runs; tasks in the background go on",
    "/stop ID": "stop one of them; 'all' stops them and what runs",
    "/help": "show this",
}
AT_TERMINAL = {
    "/session [NAME]": "show the sessions, or go to one, new or not",
    "exit": "leave (Ctrl-D too)",
}
"""Commands of the terminal itself, which answers them."""
MAX_ENDED = 5
"""Tasks that ended which /status shows."""
TAKE_MORE = frozenset({"/config", "/heartbeat", "/start"})
START = "/start"
"""What some platforms send when somebody comes to a chat for the first time."""
NAMES = (*dict.fromkeys(usage.split()[0] for usage in HELP), START)
WELCOME = "Hello. Write what you want done, in your own words. These commands are there besides:"
JOBS_BROKEN = "The jobs cannot be read just now: on the assistant's machine, `bubbles cron list` says why."
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Heard:
    """Keeps what a person would have been told."""

    said: list[str]

    def text(self, piece: str) -> None: ...
    def withdrawn(self) -> None: ...
    def reply_ended(self) -> None: ...
    def tool(self, call: ToolCall, hint: str) -> None: ...
    def result(self, call: ToolCall, result: ToolResult, duration_s: float) -> None: ...
    def notice(self, sentence: str) -> None:
        self.said.append(sentence)


class SessionCommands:
    """The dispatcher's ``Commands``. ``rules`` loads the rules of a session; it reads files."""

    def __init__(
        self,
        turns: TurnRunner,
        rules: Callable[[str], LoadedRules],
        servers: Callable[[str], list[str]] = lambda _: [],
        heartbeats: Heartbeats | None = None,
    ) -> None:
        """``servers``: of a session, a line for each MCP server. Without ``heartbeats`` there are no jobs here."""
        self._turns = turns
        self._rules = rules
        self._servers = servers
        self._heartbeats = heartbeats

    def known(self, text: str) -> bool:
        return text.split(maxsplit=1)[:1] in ([name] for name in NAMES)

    def waits(self, text: str) -> bool:
        words = text.split(maxsplit=1)
        return words[0] == "/compact" or (words[0] == "/config" and len(words) > 1)

    async def run(self, text: str, origin: Origin) -> str:
        name, _, rest = text.strip().partition(" ")
        rest = rest.strip()
        if rest and name not in TAKE_MORE:
            raise CommandError(f"{name} takes nothing more: {HELP.get(name, '')}.")
        match name:
            case "/config":
                key, *value = rest.split(maxsplit=1) or ("",)
                return await (self._set(key, value[0], origin) if value else self._show(key, origin))
            case "/prompt":
                session = await self._turns.parts.sessions.open(origin.session_key)
                return (await self._turns.setup(session, origin)).prompt
            case "/compact":
                return await self._compact(origin)
            case "/status":
                return await self._status(origin)
            case "/heartbeat":
                return await self._heartbeat(rest, origin)
        lines = {**HELP, **(AT_TERMINAL if origin.address.channel == CLI else {})}
        width = max(map(len, lines))
        listed = "\n".join(f"{usage:<{width}}  {what}" for usage, what in lines.items())
        return f"{WELCOME}\n\n{listed}" if name == START else listed

    async def _heartbeat(self, text: str, origin: Origin) -> str:
        if self._heartbeats is None:
            raise CommandError(NOT_HERE)
        try:
            return await (self._heartbeats.set(origin, text) if text else self._heartbeats.show(origin))
        except JobsFileError as error:
            if origin.address.channel == CLI:
                raise
            _log.warning("/heartbeat of session %s: %s", origin.session_key, error)
            raise CommandError(JOBS_BROKEN) from error

    async def _compact(self, origin: Origin) -> str:
        heard = _Heard([])
        done = await self._turns.compact(origin, heard)
        return "\n".join(heard.said) or ("Done." if done else "There is nothing here that a summary would shorten.")

    async def _show(self, key: str, origin: Origin) -> str:
        """All settings, or the one that ``key`` names."""
        try:
            asked = named(key) if key else None
        except ConfigError as error:
            raise CommandError(str(error)) from error
        session = await self._turns.parts.sessions.open(origin.session_key)
        setup = await self._turns.setup(session, origin)
        own = setup.own.model_dump(exclude_none=True)
        rows = [
            ("model", setup.choice.model_given, own),
            ("provider", setup.choice.provider, own),
            ("system_prompt", setup.own.system_prompt or "", own),
            ("sandbox", setup.own.sandbox or setup.place.backend, own),
        ]
        lines = [
            f"{name:<14} {value or 'none'}{'' if name in mine else '  (default)'}"
            for name, value, mine in rows
            if asked in (None, name)
        ]
        if asked in (None, "sandbox") and (overruled := _overruled(setup)):
            lines.append(overruled)
        return "\n".join(lines)

    async def _set(self, key: str, value: str, origin: Origin) -> str:
        session = await self._turns.parts.sessions.open(origin.session_key)
        path = session.folders.state / CONFIG
        known = await asyncio.to_thread(self._turns.parts.known)  # it looks for installed packages
        try:
            await asyncio.to_thread(change_session_setting, path, key, value, known=known)
        except ConfigError as error:
            said = str(error).replace(str(path), "This session's config.json")
            raise CommandError(said) from error
        done = f"{key} is the default again" if value == DEFAULT else f"{key} is set"
        try:
            setup = await self._turns.setup(session, origin)
        except BubblesError as error:
            return f"{done}, but as it is now no turn can run: {error}"
        return f"{done}. {_overruled(setup) or 'It holds from the next message on.'}"

    async def _status(self, origin: Origin) -> str:
        session = await self._turns.parts.sessions.open(origin.session_key)
        setup = await self._turns.setup(session, origin)
        loaded = await asyncio.to_thread(self._rules, origin.session_key)
        place = setup.place
        beats, jobs = await self._heartbeats.beside(origin.session_key) if self._heartbeats else ([], [])
        lines = [
            ("session", origin.session_key),
            ("model", f"{setup.choice.model} by {setup.choice.provider}: {setup.choice.reason}"),
            ("sandbox", f"{place.backend}, network: {place.network}, in {place.spec.cwd}"),
            ("differs", ", ".join(_differing(setup.own)) or "in nothing from the defaults"),
            ("rules", ", ".join(f"{layer.layer}: {layer.count}" for layer in reversed(loaded.layers))),
            *_beside("tasks", [told(task) for task in _shown(await self._turns.parts.tasks.of(origin.session_key))]),
            *_beside("servers", self._servers(origin.session_key)),
            *_beside("beats", beats),
            *_beside("jobs", jobs),
        ]
        return "\n".join(f"{label:<9}{text}" for label, text in lines)


def _beside(label: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    """The label stands beside the first line only."""
    return [(label if number == 0 else "", line) for number, line in enumerate(lines)]


def _shown(tasks: Sequence[TaskInfo]) -> list[TaskInfo]:
    """Those that run, and the last few that ended."""
    ended = [task for task in tasks if task.state is not TaskState.RUNNING][-MAX_ENDED:]
    return [task for task in tasks if task.state is TaskState.RUNNING or task in ended]


def _overruled(setup: Setup) -> str:
    """A sandbox that the command line named counts before the session's."""
    if setup.own.sandbox in (None, setup.place.backend):
        return ""
    return f"While this program runs, commands go to {setup.place.backend}, which it was started with."


def _differing(own: SessionSettings) -> Iterable[str]:
    return own.model_dump(exclude_none=True)
