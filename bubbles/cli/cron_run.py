"""``bubbles cron run`` where no gateway runs: the job's turn, in this process. Nothing is sent to a chat."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bubbles.agent.contract import TurnOutcome
from bubbles.bus import Address, InboundMessage, Kind, Origin, OutboundMessage, Trigger
from bubbles.cli.chat.naming import name_of
from bubbles.cli.chat.oneshot import QuietView
from bubbles.cli.chat.options import CLI
from bubbles.cli.chat.screen import Screen, colours
from bubbles.cli.chat.text import fitting
from bubbles.cli.cron_options import found
from bubbles.cli.logs import logging_for, to_stderr
from bubbles.cli.report import complain, print_json, run
from bubbles.cli.unchosen import BY_ONBOARD, no_boundary
from bubbles.config.session import load_session_settings
from bubbles.cron.contract import Job, JobError, JobKind
from bubbles.cron.due import DONE, FAILED, INTERRUPTED, SILENT, Begun
from bubbles.cron.shown import target_of
from bubbles.cron.wording import text_of
from bubbles.dispatch.notices import of_failure, of_provider
from bubbles.errors import BubblesError
from bubbles.sessions.contract import TurnEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from bubbles.app.workshop import Workshop
    from bubbles.config.schema import Settings
    from bubbles.cron.store import JobStore

BROKEN = "Something went wrong on this side. The log says what."
STAYED_SILENT = "It stayed silent: there is no reply."
NOT_SENT = "The reply was not sent to {to}: only a gateway does that."


@dataclass(slots=True, kw_only=True)
class _Came:
    """What came of the turn."""

    outcome: str = FAILED
    reply: str = ""
    notices: list[str] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, message: OutboundMessage) -> None:
        if message.kind is Kind.END:
            self.over.set()
        elif message.kind in (Kind.REPLY, Kind.NOTICE):
            self.reply = message.text


def run_here(settings: Settings, store: JobStore, job_id: str, *, force: bool, as_json: bool) -> int:
    """The exit status: 0 if it went well, silent or not."""
    from bubbles.app.workshop import workshop

    job = run(found(store, job_id))
    if not job.draft.enabled and not force:
        raise JobError(f"{job.id} is disabled: enable it, or run it with -f.")
    for warning in (*settings.warnings, *settings.provider_warnings):
        complain(warning)
    if weak := no_boundary(settings, _own_sandbox(settings, job), mend=BY_ONBOARD):
        complain(weak)
    begun = time.monotonic()
    with logging_for(settings, None) as log, workshop(settings) as shop:
        came = run(_carried_out(shop, store, job, as_json=as_json, learn=log.learn))
    if as_json:
        print_json(_as_json(job, came, time.monotonic() - begun))
    elif came.outcome == SILENT:
        complain(STAYED_SILENT)
    elif job.draft.deliver_to is not None and came.reply:
        complain(NOT_SENT.format(to=target_of(job.draft.deliver_to)))
    return 1 if came.outcome == FAILED else 0


def _own_sandbox(settings: Settings, job: Job) -> str | None:
    with suppress(BubblesError):  # the turn says what is wrong with it
        return load_session_settings(settings.data_dir / "session_state" / job.session_key / "config.json")[0].sandbox
    return None


async def _carried_out(
    shop: Workshop, store: JobStore, job: Job, *, as_json: bool, learn: Callable[[str], None]
) -> _Came:
    came = _Came()
    screen = Screen(
        out=_to_stdout,
        aside=(lambda _: None) if as_json else to_stderr,
        coloured=colours(shop.settings.host_env, terminal=sys.stderr.isatty()),
        folds=sys.stderr.isatty(),
    )
    view = QuietView(screen, came.notices)
    try:
        await _turn(shop, job, view, came, learn)
        _judge(view, came, job)
        if came.outcome == FAILED:
            for notice in came.notices[-1:]:
                screen.notice(notice)
        elif came.reply and not as_json:
            # Before it is noted: whoever reads it has it, and a broken pipe is what it is.
            _to_stdout(came.reply if came.reply.endswith("\n") else f"{came.reply}\n")
    except asyncio.CancelledError:
        came.outcome = INTERRUPTED
        raise
    finally:
        await store.ran(job.id, came.outcome)
    return came


async def _turn(shop: Workshop, job: Job, view: QuietView, came: _Came, learn: Callable[[str], None]) -> None:
    from bubbles.app.assistant import assistant

    async with assistant(
        shop,
        approver_for=lambda _: None,
        send=came.take,
        observer_for=lambda _: view,
        on_warning=complain,
        program="bubbles cron run",
        goes_on=False,
        on_secret=learn,
    ) as opened:
        await opened.dispatcher.deliver(_message(job))
        await came.over.wait()


def _message(job: Job) -> InboundMessage:
    """As the gateway would have it, but that the reply comes to this terminal."""
    here = replace(job, draft=replace(job.draft, deliver_to=None))
    return InboundMessage(
        address=_here(job),
        sender=job.id,
        text=text_of(Begun(job=here, due=None)),
        trigger=Trigger.HEARTBEAT if job.kind is JobKind.HEARTBEAT else Trigger.CRON,
        session_key=job.session_key,
    )


def _here(job: Job) -> Address:
    return Address(channel=CLI, chat_id=job.session_key)


def _judge(view: QuietView, came: _Came, job: Job) -> None:
    """How it went. Of a turn that nobody began, a failure is said to nobody: here somebody looks."""
    origin = Origin(session_key=job.session_key, address=_here(job), sender=job.id, trigger=Trigger.CRON)
    ended = view.came
    if isinstance(ended, Exception):
        came.notices.append(of_failure(ended, origin))
    elif not isinstance(ended, TurnOutcome):
        came.notices.append(BROKEN)
    elif ended.error is not None:
        came.notices.append(of_provider(ended.error, origin))
    elif ended.end is TurnEnd.LIMIT:
        came.notices.append(ended.text)
        came.reply = ""
    elif ended.end is TurnEnd.DONE:
        came.outcome = DONE if came.reply else SILENT


def _as_json(job: Job, came: _Came, duration_s: float) -> dict[str, Any]:
    return {
        "id": job.id,
        "session": name_of(job.session_key),
        "outcome": came.outcome,
        "reply": came.reply or None,
        "delivered": False,
        "duration_s": round(duration_s, 3),
        "notices": came.notices,
    }


def _to_stdout(text: str) -> None:
    sys.stdout.write(fitting(text, sys.stdout.encoding or "utf-8"))
    sys.stdout.flush()
