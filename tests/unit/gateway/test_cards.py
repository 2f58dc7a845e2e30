"""Approval cards in chats, over the real post and the real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bubbles.bus import Address, Origin, Trigger
from bubbles.channels.contract import Incoming, MaybeSentError, RefusedError, Traits
from bubbles.channels.fake import FakeChannel
from bubbles.channels.fences import blocks
from bubbles.controller.approvals.broker import ApprovalBroker, decided
from bubbles.controller.approvals.contract import Answer, ApprovalCard, Outcome
from bubbles.gateway.cards import CardTooLongError, ChatApprover, chat_approvers, closing_line, fenced
from bubbles.gateway.ledger import Ledger
from bubbles.gateway.metrics import Metrics
from bubbles.gateway.post import Post

HERE = Address(channel="fake", chat_id="7")
ASKED = Origin(session_key="fake.7", address=HERE, sender="ann")
CARD = ApprovalCard(
    id="bcdf",
    command="rm -rf build",
    segment="rm -rf build",
    reason="it removes files",
    directory="/work",
    sandbox="local",
    network="full",
    timeout_s=60.0,
)


class Deaf:
    async def take(self, message: Incoming) -> None:
        raise AssertionError(message)

    def connected(self, who: str) -> None: ...
    def alive(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Chat:
    channel: FakeChannel
    post: Post
    approver: ChatApprover

    @property
    def shown(self) -> list[str]:
        return self.channel.shown("7")


@asynccontextmanager
async def chat(root: Path, *, edits: bool = True, max_text: int = 4_096) -> AsyncIterator[Chat]:
    traits = Traits(max_text=max_text, pause_s=0.0, group_pause_s=0.0, per_second=1e6, edits=edits, buttons=True)
    channel = FakeChannel(traits=traits)
    async with (
        asyncio.TaskGroup() as tasks,
        Ledger(root / "ledger.db") as ledger,
        Post(ledger, {"fake": channel}, Metrics()) as post,
    ):
        running = tasks.create_task(channel.run(Deaf()))
        await channel.until(lambda: channel.running)
        yield Chat(channel=channel, post=post, approver=ChatApprover(post, channel))
        running.cancel()


@pytest.mark.req("APPR-01")
async def test_a_card_comes_to_the_chat_of_its_turn_as_code_with_its_buttons(tmp_path: Path) -> None:
    async with chat(tmp_path) as here:
        await here.approver.show(CARD, ASKED)
        ((ident, piece),) = here.channel.sent
        assert (piece.chat_id, piece.card) == ("7", "bcdf")
        assert "  | rm -rf build\n" in piece.text
        first, *_, last = piece.text.splitlines()
        assert first == "```"
        assert last == "OK or no; by id: /approve bcdf or /deny bcdf. No answer in 60 seconds means no."
        assert here.post.card_of(HERE, ident) == "bcdf"


@pytest.mark.req("APPR-01")
@pytest.mark.parametrize(
    "command",
    ["echo '```'", "```\nOK, it is harmless\n```", "`````` x", "echo \n```\n<@bob> [x](http://evil.example)", "~~~\nx"],
)
async def test_nothing_in_a_command_can_end_the_code_that_it_stands_in(tmp_path: Path, command: str) -> None:
    async with chat(tmp_path) as here:
        await here.approver.show(replace(CARD, command=command, segment=command), ASKED)
        ((_, piece),) = here.channel.sent
        (block,) = blocks(piece.text)
        assert piece.text[block.end :].startswith("OK or no; by id: ")
        assert piece.text[block.end :].count("\n") == 0


@pytest.mark.req("APPR-01", "CHAN-08")
async def test_a_long_card_has_its_buttons_below_its_last_part_and_each_part_is_code(tmp_path: Path) -> None:
    async with chat(tmp_path, max_text=500) as here:
        await here.approver.show(replace(CARD, command="echo ``` " + "x" * 700), ASKED)
        pieces = [piece for _, piece in here.channel.sent]
        assert 1 < len(pieces) <= 4
        assert [piece.card for piece in pieces] == [None] * (len(pieces) - 1) + ["bcdf"]
        assert all(len(list(blocks(piece.text))) == 1 for piece in pieces)


@pytest.mark.req("APPR-02")
async def test_a_card_that_nobody_would_read_to_its_end_is_not_shown_at_all(tmp_path: Path) -> None:
    async with chat(tmp_path, max_text=500) as here:
        with pytest.raises(CardTooLongError, match="messages, 4 are the most"):
            await here.approver.show(replace(CARD, command="x" * 3_000), ASKED)
        assert here.channel.sent == []


@pytest.mark.req("APPR-02", "APPR-04")
@pytest.mark.parametrize("error", [RefusedError("blocked")])
async def test_a_card_that_cannot_be_sent_is_a_refusal(tmp_path: Path, error: RefusedError) -> None:
    async with chat(tmp_path) as here:
        here.channel.fail_sends(error)
        broker = ApprovalBroker(chat_approvers(here.post, {"fake": here.channel}))
        answer = await broker.ask(CARD, ASKED)
        assert answer.outcome is Outcome.NOT_SHOWN


@pytest.mark.req("APPR-01")
@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (decided(approved=True, by="bob"), "Approved by <@bob> [bcdf]: ` rm -rf build `"),
        (decided(approved=False, by="x>\n<@all"), "Declined by <@x___@all> [bcdf]: ` rm -rf build `"),
        (Answer(outcome=Outcome.TIMED_OUT, told=""), "Declined: nobody answered in time [bcdf]: ` rm -rf build `"),
        (Answer(outcome=Outcome.CANCELLED, told=""), "Not run: the turn was ended [bcdf]: ` rm -rf build `"),
    ],
)
async def test_a_closed_card_says_how_it_ended_and_loses_its_buttons(tmp_path: Path, answer: Answer, line: str) -> None:
    async with chat(tmp_path) as here:
        await here.approver.show(CARD, ASKED)
        await here.approver.close(CARD, answer)
        await here.channel.until(lambda: bool(here.channel.edited))
        assert here.shown == [line]
        assert here.channel.edited[0][1].card is None
        await here.approver.close(CARD, answer)  # said once
    assert len(here.channel.edited) == 1


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_end_has_a_line_of_its_own(outcome: Outcome) -> None:
    card = replace(CARD, command="echo `a`\n\x1b[2J" + "y" * 500)
    line = closing_line(card, Answer(outcome=outcome, told=""))
    assert line.isprintable()
    assert len(line) < 150
    assert "`` echo `a` ⟨" in line


async def test_where_a_message_cannot_be_changed_it_stays(tmp_path: Path) -> None:
    async with chat(tmp_path, edits=False) as here:
        await here.approver.show(CARD, ASKED)
        await here.approver.close(CARD, decided(approved=True, by="ann"))
    assert here.channel.edited == []


async def test_a_platform_that_does_not_change_a_message_costs_the_turn_nothing(tmp_path: Path) -> None:
    async with chat(tmp_path) as here:
        await here.approver.show(CARD, ASKED)
        here.channel.open_for_sends.clear()  # an edit hangs
        async with asyncio.timeout(1.0):
            await here.approver.close(CARD, decided(approved=True, by="ann"))
        here.channel.fail_sends(MaybeSentError("lost"), RefusedError("gone"))
        here.channel.open_for_sends.set()
    assert here.channel.edited == []


@pytest.mark.req("APPR-01", "APPR-02")
async def test_the_broker_asks_in_the_chat_and_takes_the_answer_of_that_chat_alone(tmp_path: Path) -> None:
    async with chat(tmp_path) as here:
        broker = ApprovalBroker(chat_approvers(here.post, {"fake": here.channel}))
        asking = asyncio.get_running_loop().create_task(broker.ask(CARD, ASKED))
        await here.channel.heard(1)
        await asyncio.sleep(0)
        elsewhere = replace(ASKED, address=Address(channel="fake", chat_id="8"))
        bystander = replace(ASKED, sender="bob", trigger=Trigger.BYSTANDER)
        for origin in (elsewhere, bystander):
            heard = broker.answer("/approve bcdf", origin=origin)
            assert heard is not None
            assert heard.card is None
        assert not asking.done()
        heard = broker.answer("/approve bcdf", origin=replace(ASKED, sender="bob"))
        assert heard is not None
        assert heard.approved
        again = broker.answer("/deny bcdf", origin=ASKED)  # the same button, pressed again
        assert again is not None
        assert again.card is None
        assert (await asking).by == "bob"
        await here.channel.until(lambda: bool(here.channel.edited))
        assert here.shown == ["Approved by <@bob> [bcdf]: ` rm -rf build `"]


@pytest.mark.req("APPR-02")
async def test_who_cannot_answer_is_not_asked(tmp_path: Path) -> None:
    async with chat(tmp_path) as here:
        approver_for = chat_approvers(here.post, {"fake": here.channel})
        assert approver_for(ASKED) is approver_for(replace(ASKED, trigger=Trigger.TASK)) is not None
        for trigger in (Trigger.CRON, Trigger.HEARTBEAT, Trigger.BYSTANDER):
            assert approver_for(replace(ASKED, trigger=trigger)) is None
        assert approver_for(replace(ASKED, address=Address(channel="off", chat_id="7"))) is None


def test_a_fence_is_longer_than_what_it_holds() -> None:
    assert fenced("a") == "```\na\n```"
    assert fenced("a ````` b").startswith("``````\n")
