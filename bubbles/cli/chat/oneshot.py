"""One message, one turn: the reply on standard output, everything else on standard error."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bubbles.agent.contract import TurnOutcome
from bubbles.bus import Kind, OutboundMessage
from bubbles.cli.chat.commands import of_session
from bubbles.cli.chat.naming import name_of
from bubbles.cli.chat.options import Options, message_for
from bubbles.cli.chat.screen import Screen, colours
from bubbles.cli.chat.text import fitting, shown
from bubbles.cli.chat.view import TurnView
from bubbles.cli.logs import to_stderr
from bubbles.cli.report import complain, print_json
from bubbles.controller.approvals.terminal import TerminalApprover
from bubbles.providers.contract import NO_USAGE, ProviderError, ToolCall
from bubbles.sessions.contract import SessionBusyError, TurnEnd
from bubbles.tools.contract import ToolResult

if TYPE_CHECKING:
    from bubbles.app.workshop import Workshop
    from bubbles.dispatch.contract import Send

NOTHING_SAID = "The model's reply is empty."


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    text: str
    options: Options
    as_json: bool = False


@dataclass(slots=True)
class Heard:
    """What came of it."""

    errand: Errand
    live: bool
    """Whether it is shown while it comes."""
    reply: str = ""
    notices: list[str] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, message: OutboundMessage, view: TurnView, screen: Screen) -> None:
        if message.kind is Kind.END:
            self.over.set()
        elif message.kind is Kind.REPLY:
            self.reply = message.text
        elif of_session(self.errand.text) and not message.failed:
            self.reply = message.text  # the answer to a command is what was asked for
            if self.live:
                screen.out(f"{shown(message.text)}\n")
        else:
            self.notices.append(message.text)
            if not (self.live and _is_shown(view, message.text)):
                screen.notice(message.text)

    def end(self, view: TurnView) -> str:
        if of_session(self.errand.text):
            return TurnEnd.DONE if self.reply else TurnEnd.FAILED
        return view.came.end if isinstance(view.came, TurnOutcome) else TurnEnd.FAILED


class QuietView(TurnView):
    """For a pipe: nothing is printed that could still be withdrawn, and of the model only the last word on stdout.

    What the model says on the way to it goes, like all the rest, to ``aside``.
    """

    def __init__(self, screen: Screen, notices: list[str]) -> None:
        """``notices``: where what the program says of the turn is kept too."""
        super().__init__(screen)
        self._notices = notices
        self._said: list[str] = []
        self.calls = 0
        self.failed = 0
        """Of them: those that ended in an error or were declined."""

    def text(self, piece: str) -> None:
        self._said.append(piece)

    def withdrawn(self) -> None:
        self._said.clear()

    def reply_ended(self) -> None:
        """Whether it is the last one is seen by what follows."""
        self._said.append("\n")

    def tool(self, call: ToolCall, hint: str) -> None:
        if text := "".join(self._said).strip():
            self._screen.remark(text)
        self._said.clear()
        super().tool(call, hint)

    def result(self, call: ToolCall, result: ToolResult, duration_s: float) -> None:
        self.calls += 1
        self.failed += result.is_error
        super().result(call, result, duration_s)

    def notice(self, sentence: str) -> None:
        self._notices.append(sentence)
        super().notice(sentence)


def _to_stdout(text: str) -> None:
    sys.stdout.write(fitting(text, sys.stdout.encoding or "utf-8"))
    sys.stdout.flush()


async def run_once(shop: Workshop, errand: Errand) -> int:
    """The exit status: 0 only if there was a reply."""
    begun = time.monotonic()
    heard = Heard(errand, live=sys.stdout.isatty() and not errand.as_json)
    screen = Screen(
        out=_to_stdout,
        aside=(lambda _: None) if errand.as_json else to_stderr,
        coloured=colours(shop.settings.host_env, terminal=(sys.stdout if heard.live else sys.stderr).isatty()),
        folds=sys.stderr.isatty(),
    )
    view = TurnView(screen) if heard.live else QuietView(screen, heard.notices)
    try:
        await _turn(shop, errand, view, heard, lambda message: heard.take(message, view, screen))
    except asyncio.CancelledError:
        if errand.as_json:
            print_json(_as_json(heard, view, "stopped", time.monotonic() - begun))
        raise
    end = heard.end(view)
    done = end == TurnEnd.DONE and bool(heard.reply)
    if errand.as_json:
        print_json(_as_json(heard, view, end, time.monotonic() - begun))
    elif end == TurnEnd.DONE and not done:
        complain(NOTHING_SAID)
    return 0 if done else 1


async def _turn(shop: Workshop, errand: Errand, view: TurnView, heard: Heard, send: Send) -> None:
    from bubbles.app.assistant import assistant

    approver = TerminalApprover()
    async with assistant(
        shop,
        approver_for=lambda _: approver,
        send=send,
        observer_for=lambda _: view,
        project=errand.options.project,
        backend=errand.options.backend,
        on_warning=complain,
        goes_on=False,
        on_secret=errand.options.learn,
    ) as opened:
        await opened.dispatcher.deliver(message_for(errand.options.session, errand.text))
        await heard.over.wait()
        if heard.reply and not errand.as_json and not heard.live:
            # Here, and before the sandbox is closed: whoever waits for it has it, and a broken pipe is what it is.
            _to_stdout(heard.reply if heard.reply.endswith("\n") else f"{heard.reply}\n")


def _is_shown(view: TurnView, text: str) -> bool:
    """The explanation of a limit was the turn's last text already."""
    return isinstance(view.came, TurnOutcome) and view.came.end is TurnEnd.LIMIT and view.came.text == text


def _as_json(heard: Heard, view: TurnView, end: str, duration_s: float) -> dict[str, Any]:
    outcome = view.came if isinstance(view.came, TurnOutcome) else None
    usage = NO_USAGE if outcome is None else outcome.usage
    return {
        "session": name_of(heard.errand.options.session),
        "reply": heard.reply or None,
        "end": str(end),
        "calls": outcome.calls if outcome else getattr(view, "calls", 0),
        "failed_calls": getattr(view, "failed", 0),
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
        },
        "duration_s": round(duration_s, 3),
        "notices": heard.notices,
        "error": _error(view.came),
    }


def _error(came: TurnOutcome | Exception | None) -> str | None:
    """The category of what went wrong, and nothing else of it."""
    error = came.error if isinstance(came, TurnOutcome) else came
    if error is None:
        return None
    if isinstance(error, ProviderError):
        return str(error.category)
    return "session busy" if isinstance(error, SessionBusyError) else "failed"
