"""The gate over a workshop's sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bubbles.app.workshop import ONCE, Workshop
from bubbles.config.schema import Settings
from bubbles.config.secrets import secrets_of
from sandbox_backends.owner import owner_alive

if TYPE_CHECKING:
    from bubbles.bus import Origin
    from bubbles.controller.approvals.broker import ApprovalBroker
    from bubbles.controller.approvals.contract import Approver
    from bubbles.controller.calls import CallGate
    from bubbles.controller.controller import Controller
    from bubbles.controller.redaction import Redactor
    from bubbles.controller.rulefiles import LoadedRules
    from bubbles.controller.sandboxes import Sandboxes

ApproverFor = Callable[["Origin"], "Approver | None"]
"""Gives the way to the person behind an origin, or None if there is none."""
OnWarning = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The gate, and what others than its callers need of it."""

    controller: Controller
    calls: CallGate
    sandboxes: Sandboxes
    """For MCP servers that run in a session's sandbox: what the owner configured, not what a model chose."""
    redactor: Redactor
    """Knows the owner's keys (SEC-03)."""
    broker: ApprovalBroker
    rules: Callable[[str], LoadedRules]
    """Those in force for a session; reads files that have changed."""


@asynccontextmanager
async def gate(
    shop: Workshop, approver_for: ApproverFor, on_warning: OnWarning = lambda _: None
) -> AsyncIterator[Controller]:
    """The gate over this workshop's sandboxes; leaving it closes them.

    ``on_warning`` is told what is wrong with the rules of all sessions: what is left out of them restricts nothing.
    """
    async with whole_gate(shop, approver_for, on_warning) as opened:
        yield opened.controller


@asynccontextmanager
async def whole_gate(
    shop: Workshop,
    approver_for: ApproverFor,
    on_warning: OnWarning = lambda _: None,
    away: Callable[[Origin], AbstractAsyncContextManager[None]] = lambda _: nullcontext(),
) -> AsyncIterator[Gate]:
    """As ``gate``; ``away`` is entered while a turn waits for a person."""
    # Its tables take a moment to import: commands that only use a sandbox do without.
    from bubbles.controller.approvals.broker import ApprovalBroker
    from bubbles.controller.background import BackgroundWatch
    from bubbles.controller.calls import CallGate
    from bubbles.controller.consent import Consent
    from bubbles.controller.controller import Controller
    from bubbles.controller.policy.contract import Mode
    from bubbles.controller.rulefiles import RuleShelf, rule_layers
    from bubbles.controller.timeline.writing import Timeline

    settings = shop.settings
    redactor = await asyncio.to_thread(owners_redactor, settings)
    mode = Mode(settings.tools.approvals.mode)
    timeline = Timeline(settings.data_dir, redactor, owner=shop.owner.id)
    await timeline.close_lost(lambda owner: owner_alive(settings.data_dir, owner))
    shelf = RuleShelf(lambda session: rule_layers(settings, session))
    for warning in (await asyncio.to_thread(shelf.rulebook)).warnings:
        on_warning(str(warning))
    broker = ApprovalBroker(approver_for, timeout_s=settings.tools.approvals.timeout_s, away=away)

    def rules(session: str) -> LoadedRules:
        return shelf.rulebook(None if session == ONCE else session)

    async with BackgroundWatch(timeline) as watch, shop.sandboxes() as sandboxes:
        controller = Controller(
            sandboxes=sandboxes,
            rulebook=lambda session: rules(session).rulebook,
            broker=broker,
            timeline=timeline,
            mode=mode,
            watch=watch,
        )
        calls = CallGate(Consent(broker, timeline), timeline, mode)
        yield Gate(
            controller=controller, calls=calls, sandboxes=sandboxes, broker=broker, rules=rules, redactor=redactor
        )


def owners_redactor(settings: Settings) -> Redactor:
    """Knows the owner's keys: of the settings and of the environment, and tokens of logins. Blocks on the disk."""
    from bubbles.controller.redaction import Redactor
    from bubbles.providers.logins.store import known_secrets

    return Redactor.of_environment(settings.host_env, (*secrets_of(settings), *known_secrets(settings.data_dir)))
