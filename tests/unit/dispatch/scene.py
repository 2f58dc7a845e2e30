"""A dispatcher whose turns do as a test says, for tests of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bubbles.agent.contract import TurnObserver, TurnOutcome
from bubbles.bus import Address, InboundMessage, Kind, Origin, OutboundMessage, Trigger
from bubbles.controller.approvals.contract import ApprovalCard, Heard
from bubbles.dispatch.contract import CommandError, NoTasks, Pending, Policy, RunningTasks
from bubbles.dispatch.dispatcher import Dispatcher, Wiring
from bubbles.dispatch.slots import Slots
from bubbles.errors import BubblesError
from bubbles.providers.contract import ToolCall
from bubbles.sessions.contract import TurnEnd

Play = Callable[[InboundMessage, Origin, TurnObserver, Pending], Awaitable[TurnOutcome | None]]
CALL = ToolCall(id="1", name="exec", arguments="{}")
IN_A_CHAT = Origin(session_key="fake.1", address=Address(channel="fake", chat_id="1"), sender="ann")


def done(text: str) -> TurnOutcome:
    return TurnOutcome(end=TurnEnd.DONE, text=text, turn="t")


async def echo(message: InboundMessage, _origin: Origin, _observer: TurnObserver, _pending: Pending) -> TurnOutcome:
    return done(f"you said {message.text}")


def a_turn_that_takes() -> tuple[Play, asyncio.Event, asyncio.Event]:
    """It says that it has begun, waits until it may go on, and answers with all that it was given."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def taking(message: InboundMessage, _o: Origin, _b: TurnObserver, pending: Pending) -> TurnOutcome:
        begun.set()
        await go.wait()
        return done(" + ".join([message.text, *(more.text for more in pending())]))

    return taking, begun, go


@dataclass(slots=True, kw_only=True)
class Scene:
    """A dispatcher, what it sent, and how to wait for it."""

    dispatcher: Dispatcher
    sent: list[OutboundMessage] = field(default_factory=list)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)
    now_s: float = 0.0
    begun: list[str] = field(default_factory=list)
    """Tickets of the turns that began."""

    async def say(self, text: str, *, chat: str = "1", channel: str = "fake", trigger: Trigger = Trigger.USER) -> None:
        address = Address(channel=channel, chat_id=chat)
        await self.dispatcher.deliver(InboundMessage(address=address, sender="ann", text=text, trigger=trigger))

    async def heard(self, count: int, *kinds: Kind) -> list[str]:
        def there() -> list[str]:
            return [said.text for said in self.sent if said.kind in (kinds or tuple(Kind))]

        async with self.news:
            await self.news.wait_for(lambda: len(there()) >= count)
        return there()

    async def idle(self) -> None:
        await self.dispatcher.idle()


@dataclass(slots=True)
class Plain:
    """Turns, commands and answers of a test."""

    play: Play
    answers: dict[str, str] = field(default_factory=dict)

    async def run(
        self, message: InboundMessage, origin: Origin, observer: TurnObserver, pending: Pending
    ) -> TurnOutcome | None:
        return await self.play(message, origin, observer, pending)

    def answer(self, text: str, *, origin: Origin, reply_to: str | None = None) -> Heard | None:
        return Heard(say=self.answers[text]) if text in self.answers else None

    def open_cards(self, address: Address) -> tuple[ApprovalCard, ...]:
        return ()


class PlainCommands:
    def known(self, text: str) -> bool:
        return text.split(maxsplit=1)[0] in ("/status", "/compact", "/bad", "/odd") if text else False

    def waits(self, text: str) -> bool:
        return text.startswith("/compact")

    async def run(self, text: str, origin: Origin) -> str:
        if text == "/bad":
            raise BubblesError("that is not there: /secret/path")
        if text == "/odd":
            raise CommandError("/odd takes a number.")
        return f"{text} of {origin.session_key}"


@asynccontextmanager
async def scene(
    play: Play = echo, *, slots: int = 4, policy: Policy | None = None, tasks: RunningTasks | None = None
) -> AsyncIterator[Scene]:
    plain = Plain(play, {"ok": "Approved: x."})
    found: list[Scene] = []

    async def send(message: OutboundMessage) -> None:
        async with found[0].news:
            found[0].sent.append(message)
            found[0].news.notify_all()

    async def begun(ticket: str) -> None:
        found[0].begun.append(ticket)

    wiring = Wiring(
        key_of=lambda message: f"{message.address.channel}.{message.address.chat_id}",
        turns=plain,
        commands=PlainCommands(),
        answers=plain,
        send=send,
        policy=policy or Policy(),
        begun=begun,
        tasks=tasks or NoTasks(),
    )
    async with Dispatcher(wiring, Slots(slots), clock=lambda: found[0].now_s) as dispatcher:
        found.append(Scene(dispatcher=dispatcher))
        yield found[0]
