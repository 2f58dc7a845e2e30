"""What comes by a chat and what goes back, with everything real between the platform and the model."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from bubbles.bus import Kind
from bubbles.channels.access import Refusal
from bubbles.channels.contract import FatalChannelError, Person, Roster
from bubbles.channels.fake import FakeChannel, attached
from bubbles.channels.supervisor import Phase
from bubbles.config.channels import ChannelSettings
from bubbles.dispatch.dispatcher import FULL, MAX_WAITING, NOTHING_RUNS, STOPPED
from bubbles.dispatch.notices import BROKEN
from bubbles.gateway.intake import TAKEN_UP
from bubbles.gateway.outgoing import AGAIN
from bubbles.providers.contract import Category, ModelRequest, ProviderError
from bubbles.providers.scripted import Step, calls
from tests.gateway_at_work import PLAIN, Disk, at_work, offered, results, said, texts, until

LOOK = ("list_dir", {"path": "."})


def echo(request: ModelRequest) -> str:
    return f"You said: {texts(request)[-1]}"


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


# -- who is answered --------------------------------------------------------------------------------------------------


@pytest.mark.req("CHAN-02", "CORE-01", "OPS-02")
async def test_a_message_is_answered_once_and_nothing_of_it_is_left_to_do(disk: Disk) -> None:
    async with at_work(disk, ["Hello, Ann."]) as here:
        here.model.hold()
        await disk.telegram.say("hi", chat="7")
        await here.model.asked()
        await disk.telegram.until(lambda: disk.telegram.typed == ["7"])
        assert here.ledger.undone == 1
        here.model.release()
        assert await said(disk.telegram, "7") == ["Hello, Ann."]
        await here.settled()
        assert await here.ledger.parcels() == []
    assert len(disk.telegram.sent) == 1
    assert texts(here.model.requests[0]) == ["hi"]
    kinds = [line["kind"] for line in await asyncio.to_thread(disk.history, "telegram.7")]
    assert kinds == ["session", "user", "assistant", "turn"]


@pytest.mark.req("CHAN-02")
async def test_a_stranger_gets_nothing_and_the_owner_learns_which_id_to_allow(disk: Disk) -> None:
    async with at_work(disk, echo) as here:
        for text in ("let me in", "/status", "ok"):
            await disk.telegram.say(text, sender="eve", chat="66", name="Ann", attachments=(attached("x", b"x"),))
        await disk.telegram.say("/approve bcdf", sender="eve", chat="7", press=True)
        await disk.telegram.say("let me in", sender="eve", chat="g", is_group=True)
        await disk.telegram.say("it is me", chat="7")
        await said(disk.telegram, "7")
        (visitor,) = here.gateway.intake.turned_away("telegram")
        assert (visitor.id, visitor.name, visitor.why) == ("eve", "", Refusal.STRANGER)
    assert [piece.chat_id for _, piece in disk.telegram.sent] == ["7"]
    assert set(disk.telegram.typed) == {"7"}
    assert len(here.model.requests) == 1
    assert disk.sessions() == ["telegram.7"]


@pytest.mark.req("CHAN-03", "CHAN-04")
async def test_in_groups_it_answers_what_the_policy_says_and_in_private_always(tmp_path: Path) -> None:
    policies = ("mention", "all", "off")
    channels = {policy: FakeChannel(name=policy, traits=PLAIN) for policy in policies}
    access = {
        policy: ChannelSettings.model_validate({"allowFrom": ["ann"], "groupPolicy": policy}) for policy in policies
    }
    disk = Disk(tmp_path, access=access, more=tuple(channels.values()))
    async with at_work(disk, echo) as here:
        for channel in channels.values():
            asked = await channel.say("to you", chat="g", is_group=True, name="Ann")
            await channel.say("chatter", chat="g", is_group=True, addressed=False)
            await channel.say("private", chat="7")
            await said(channel, "7")
            await here.settled()
            heard = await said(channel, "g", 0)
            assert [text.removeprefix("You said: ") for text in heard] == {
                "mention": ["Ann (<@ann>): to you"],
                "all": ["Ann (<@ann>): to you", "<@ann>: chatter"],
                "off": [],
            }[channel.name]
            assert [piece.reply_to for _, piece in channel.sent if piece.chat_id == "g"][:1] in ([], [asked])


# -- whose conversation it is -----------------------------------------------------------------------------------------

ANN = {"ann": ["telegram:ann", "other:a1"]}
MODES = [
    ("channel", {"telegram.7", "other.9", "telegram.8"}, [1, 1, 1]),
    ("user", {"person.ann", "telegram.bob"}, [1, 2, 1]),
    ("global", {"global"}, [1, 2, 3]),
]


@pytest.mark.req("SESS-02", "CHAN-02")
@pytest.mark.parametrize(("mode", "sessions", "known"), MODES, ids=[mode for mode, _, _ in MODES])
async def test_what_one_session_is_and_that_each_chat_gets_its_own_answer(
    tmp_path: Path, mode: str, sessions: set[str], known: list[int]
) -> None:
    """Two platforms in one gateway. ``known``: messages of people that the model has with each of the three."""
    disk = Disk(tmp_path, {"channels": {"sessionMode": mode, "identities": ANN}})
    disk.access["other"] = ChannelSettings(allow_from=("a1",))
    async with at_work(disk, echo) as here:
        await disk.telegram.say("one", chat="7")
        assert await said(disk.telegram, "7") == ["You said: one"]
        await disk.other.say("two", chat="9", sender="a1")
        assert await said(disk.other, "9") == ["You said: two"]
        await disk.telegram.say("three", chat="8", sender="bob")
        assert await said(disk.telegram, "8") == ["You said: three"]
        assert [len(texts(request)) for request in here.model.requests] == known
    assert len(disk.telegram.sent) + len(disk.other.sent) == 3
    assert set(disk.sessions()) == sessions


@pytest.mark.req("CORE-06", "CORE-05")
async def test_a_turn_takes_in_what_its_chat_adds_and_not_what_another_chat_of_the_session_says(tmp_path: Path) -> None:
    disk = Disk(tmp_path, {"channels": {"sessionMode": "global"}})
    async with at_work(disk, [calls(LOOK), "Both of yours.", "Yours."]) as here:
        here.model.hold("first")
        await disk.telegram.say("first", chat="7")
        await here.model.asked()
        await disk.telegram.say("and this", chat="7")
        await disk.other.say("elsewhere", chat="9", sender="bob")
        await disk.telegram.say("/status", chat="7")  # which never waits, nor goes to the model
        assert "global" in (await said(disk.telegram, "7"))[0]
        here.model.release()
        assert (await said(disk.telegram, "7", 2))[1:] == ["Both of yours."]
        assert await said(disk.other, "9") == ["Yours."]
        await here.settled()
        _, second, third = here.model.requests
        assert texts(second) == ["first", "and this"]
        assert texts(third) == ["first", "and this", "elsewhere"]


# -- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("CLI-02", "HB-01", "SESS-03")
async def test_slash_commands_are_answered_in_the_chat_and_the_model_sees_none_of_them(disk: Disk) -> None:
    expected = {
        "/status": "telegram.7",
        "/config": "system_prompt",
        "/config system_prompt Be brief.": "system_prompt is set",
        "/compact": "nothing here that a summary would shorten",
        "/stop": NOTHING_RUNS,
        "/heartbeat": "The heartbeat is off",
        "/heartbeat 30m": "every 30m",
        "/heartbeat 3s": "one minute at least",
        "/help": "/heartbeat [TIME]",
        "/prompt": "Be brief.",
        "/status now": "takes nothing more",
    }
    async with at_work(disk, echo) as here:
        for command, answer in expected.items():
            seen = len(disk.telegram.sent)
            await disk.telegram.say(command, chat="7")
            await here.settled()
            assert answer in "".join((await said(disk.telegram, "7", seen + 1))[seen:]), command
        assert not here.model.requests
        assert "/session [NAME]" not in "".join(await said(disk.telegram, "7")), "of the terminal alone"
        await disk.telegram.say("/hlep me", chat="7")
        await here.settled()
        assert (await said(disk.telegram, "7"))[-1] == "You said: /hlep me"
        assert "Be brief." in here.model.requests[0].system
    assert (disk.desk("telegram.7") / "HEARTBEATS.md").exists()


@pytest.mark.req("CLI-02")
async def test_stop_ends_the_turn_of_its_chat_alone(disk: Disk) -> None:
    async with at_work(disk, echo) as here:
        here.model.hold("slowly")
        await disk.telegram.say("slowly", chat="7")
        await disk.telegram.say("slowly too", chat="8")
        await here.model.asked(2)
        await disk.telegram.say("/stop", chat="7")
        assert await said(disk.telegram, "7") == [STOPPED]
        await until(lambda: here.ledger.undone == 1)
        await disk.telegram.say("again", chat="7")
        assert (await said(disk.telegram, "7", 2))[1:] == ["You said: again"]
        here.model.release()
        assert await said(disk.telegram, "8") == ["You said: slowly too"]
        await here.settled()


@pytest.mark.req("CORE-05", "CHAN-07")
async def test_who_writes_more_than_a_session_takes_is_told_and_all_the_rest_is_answered(disk: Disk) -> None:
    written = [f"number {number}" for number in range(MAX_WAITING + 2)]
    async with at_work(disk, echo) as here:
        here.model.hold()
        await disk.telegram.say(written[0], chat="7")
        await here.model.asked()
        for text in written[1:]:
            await disk.telegram.say(text, chat="7")
        assert await said(disk.telegram, "7") == [FULL]
        here.model.release()
        await here.settled()
        assert texts(here.model.requests[-1]) == written[:-1]


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.req("ERR-01", "ERR-02", "ERR-03", "PROV-08")
async def test_a_failure_is_told_once_a_minute_to_who_waits_for_an_answer_and_to_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(tmp_path, access={"telegram": ChannelSettings(allow_from=("ann",), group_policy="all")})

    def think(request: ModelRequest) -> Step:
        text = texts(request)[-1]
        if "break" in text:
            raise RuntimeError("/etc/secret is broken")
        return ProviderError(Category.UNAVAILABLE, "vendor's words", retryable=False) if "fail" in text else "Fine."

    async with at_work(disk, think) as here:
        for text in ("fail", "fail", "break"):
            await disk.telegram.say(text, chat="7")
            await here.settled()
        await disk.telegram.say("break", chat="8")
        await disk.telegram.say("fail", chat="g", is_group=True, addressed=False)
        await here.settled()
        assert await said(disk.telegram, "g", 0) == [], "nobody waits for it"
        await disk.telegram.say("fail", chat="g", is_group=True)
        await here.settled()
        await disk.telegram.say("well", chat="7")
        assert (await said(disk.telegram, "7", 2))[1:] == ["Fine."]
        (notice,) = await said(disk.telegram, "g")
        assert (await said(disk.telegram, "7"))[0] == notice
        assert await said(disk.telegram, "8") == [BROKEN]
        assert notice.startswith("The model gave no answer: unavailable")
        assert len(here.model.requests) == 7
    assert len(disk.telegram.sent) == 4
    assert "vendor" not in notice
    assert sum(record.exc_info is not None for record in caplog.records) == 2, "of each break, the log has all"


@pytest.mark.req("CHAN-07")
async def test_a_channel_that_is_broken_holds_up_no_other(disk: Disk) -> None:
    async with at_work(disk, echo) as here:
        disk.telegram.open_for_sends.clear()  # a send never comes back
        await disk.telegram.say("one", chat="7")
        await until(lambda: here.gateway.post.waiting)
        await disk.other.say("two", chat="9")
        assert await said(disk.other, "9") == ["You said: two"]
        disk.telegram.open_for_sends.set()
        assert await said(disk.telegram, "7") == ["You said: one"]
        disk.telegram.fail(FatalChannelError("channels.telegram.token is wrong"))
        state = here.gateway.watched.supervisors["telegram"]
        await until(lambda: state.state.phase is Phase.OFF)
        await disk.other.say("three", chat="9")
        assert (await said(disk.other, "9", 2))[1:] == ["You said: three"]
        assert state.state.why == "channels.telegram.token is wrong"


# -- files and long answers -------------------------------------------------------------------------------------------


@pytest.mark.req("CHAN-05", "SBX-01")
@pytest.mark.parametrize("backend", ["local", pytest.param("bubblewrap", marks=pytest.mark.needs("bubblewrap"))])
async def test_a_file_lies_where_the_model_is_told_and_a_command_can_read_it(tmp_path: Path, backend: str) -> None:
    disk = Disk(tmp_path, {"tools": {"sandbox": {"backend": backend}}, "channels": {"maxFileBytes": 100}})

    def think(request: ModelRequest) -> Step:
        if seen := results(request):
            return seen[-1]
        name = texts(request)[-1].partition("[Attached: ")[2].partition(" (")[0]
        return calls(("exec", {"script": f"cat {name}"}))

    async with at_work(disk, think) as here:
        files = (attached("../no tes.txt", b"one\n", b"two\n", mime="text/plain"), attached("big", b"x" * 101))
        await disk.telegram.say("read this", chat="7", attachments=files)
        assert "one\ntwo" in (await said(disk.telegram, "7"))[0]
        told = texts(here.model.requests[0])[0].splitlines()
    assert told[0] == "read this"
    assert told[1].startswith("[Attached: data/received/")
    assert told[1].endswith("-no-tes.txt (text/plain, 8 bytes)]")
    assert told[2] == "[Not attached: big, since it is larger than 100 bytes.]"
    assert [path.read_bytes() for path in (disk.desk("telegram.7") / "data/received").iterdir()] == [b"one\ntwo\n"]


@pytest.mark.req("CHAN-08")
async def test_a_long_answer_comes_in_order_and_in_parts_that_fit(tmp_path: Path) -> None:
    code = "\n".join(f"line {number}" for number in range(60))
    disk = Disk(tmp_path, other=FakeChannel(name="other", traits=replace(PLAIN, max_text=120)))
    async with at_work(disk, [f"Look:\n\n```py\n{code}\n```\n\nThat was all."]) as here:
        await disk.other.say("show", chat="9")
        await here.settled()
        parts = await said(disk.other, "9", 5)
    assert all(len(part) <= 120 and part.count("```") in (0, 2) for part in parts)
    lines = [line for part in parts for line in part.splitlines() if line.strip("`py")]
    assert lines == ["Look:", *code.splitlines(), "That was all."]


WAY = [
    (True, False, ["Let me look."]),
    (False, True, ['list_dir(".")']),
    (True, True, ["Let me look.", 'list_dir(".")']),
    (False, False, []),
]


@pytest.mark.req("CORE-04")
@pytest.mark.parametrize(("progress", "hints", "seen"), WAY)
async def test_what_is_seen_on_the_way_is_as_configured(
    tmp_path: Path, progress: bool, hints: bool, seen: list[str]
) -> None:
    disk = Disk(tmp_path, {"channels": {"sendProgress": progress, "sendToolHints": hints}})
    script: list[Step] = [calls(LOOK, text="Let me look."), "Empty."]
    async with at_work(disk, script * 2) as here:
        for number, (channel, count) in enumerate([(disk.telegram, min(1, len(seen))), (disk.other, len(seen))], 1):
            here.model.held = lambda request: bool(results(request))
            await channel.say("look", chat="7")
            await here.model.asked(2 * number)
            on_the_way = await channel.heard(count, kinds={Kind.PROGRESS, Kind.HINT})
            here.model.release()
            assert await said(channel, "7") == ["Empty."]
            await here.settled()
            assert "\n".join(piece.text for piece in on_the_way) == "\n".join(seen)
            assert len(channel.sent) == count + 1, "where the platform can edit, it is one message"


# -- other chats and people -------------------------------------------------------------------------------------------


@pytest.mark.req("TOOL-04")
async def test_the_assistant_writes_to_another_chat_that_is_known_and_to_no_other(disk: Disk) -> None:
    def to(channel: str, chat: str) -> tuple[str, dict[str, Any]]:
        return "message", {"channel": channel, "chat_id": chat, "text": "dinner is ready"}

    async with at_work(disk, ["Hello.", calls(to("other", "9"), to("other", "66"), to("cli", "x")), "Told."]) as here:
        await disk.other.say("hi", chat="9", sender="bob")
        assert await said(disk.other, "9") == ["Hello."]
        await disk.telegram.say("tell Bob", chat="7")
        assert await said(disk.telegram, "7") == ["Told."]
        assert (await said(disk.other, "9", 2))[1:] == ["dinner is ready"]
        sent, unknown, none = results(here.model.requests[-1])
        await here.settled()
    assert "on its way" in sent
    assert "nothing is sent there" in unknown
    assert "no channel 'cli'" in none
    assert len(disk.other.sent) == 2


@pytest.mark.req("TOOL-08", "CHAN-06")
async def test_people_of_a_group_are_found_by_name_and_mentioned_by_id(disk: Disk) -> None:
    people = (Person(id="ann", names=("Ann",)), Person(id="b0b", names=("Bob Müller", "bobm")))
    disk.telegram.rosters["g"] = Roster(people=people)
    find = calls(("find_person", {"name": "muller"}))
    async with at_work(disk, [find, "<@b0b> should know.", find, "Nobody."]) as here:
        await disk.telegram.say("who is Müller?", chat="g", is_group=True)
        assert await said(disk.telegram, "g") == ["<@b0b> should know."]
        await disk.telegram.say("who is Müller?", chat="7")
        assert await said(disk.telegram, "7") == ["Nobody."]
        assert results(here.model.requests[1]) == ["<@b0b> Bob Müller, bobm"]
        assert "private conversation" in results(here.model.requests[3])[0]


@pytest.mark.req("TOOL-10")
async def test_who_wrote_gets_an_answer_so_silence_is_not_offered(disk: Disk) -> None:
    async with at_work(disk, [calls(("stay_silent", {})), "I may not."]) as here:
        await disk.telegram.say("hush", chat="7")
        assert await said(disk.telegram, "7") == ["I may not."]
        request = here.model.requests[0]
    assert "stay_silent" not in offered(request)
    assert {"cron", "message", "find_person", "spawn", "exec"} <= offered(request)


# -- the next start ---------------------------------------------------------------------------------------------------


@pytest.mark.req("OPS-02", "CHAN-07")
async def test_what_was_taken_and_not_answered_is_answered_by_the_next_start_once(disk: Disk) -> None:
    write: Step = calls(("write_file", {"path": "data/log", "content": "once\n"}))
    async with at_work(disk, [write], hurry=True) as here:
        here.model.held = lambda request: bool(results(request))
        await disk.telegram.say("write it down", chat="7", message_id="m1")
        await here.model.asked(2)
        here.model.hold()
        await disk.telegram.say("and hurry", chat="7", message_id="m2")
        await disk.other.say("never begun", chat="9", message_id="m1")
        await here.model.asked(3)
    assert disk.telegram.sent == disk.other.sent == []

    async with at_work(disk, echo) as again:
        taken_up = TAKEN_UP.format(text="write it down")
        first, reply, *more = await said(disk.telegram, "7", 2)
        assert first == taken_up
        assert more == []
        assert await said(disk.other, "9", 2)
        await again.settled()
        (mine,) = [request for request in again.model.requests if "write it down" in texts(request)]
        assert texts(mine).count("write it down") == texts(mine).count("and hurry") == 1
        assert results(mine) == results(here.model.requests[1]), "what was done is known, and not done again"
        assert reply == "You said: and hurry"
    sent = len(disk.telegram.sent), len(disk.other.sent)
    async with at_work(disk, echo) as third:
        for channel, chat, ident in ((disk.telegram, "7", "m1"), (disk.telegram, "7", "m2"), (disk.other, "9", "m1")):
            await channel.say("the platform offers it again", chat=chat, message_id=ident)
        await disk.telegram.say("new", chat="8", message_id="m1")
        assert await said(disk.telegram, "8") == ["You said: new"]
        await third.settled()
        assert len(third.model.requests) == 1
    assert (len(disk.telegram.sent) - 1, len(disk.other.sent)) == sent


@pytest.mark.req("OPS-02", "CHAN-08")
async def test_an_answer_that_was_not_sent_goes_out_after_the_next_start_and_is_not_made_again(disk: Disk) -> None:
    async with at_work(disk, repeat("Late, but here.")) as here:
        here.model.hold()
        await disk.telegram.say("hi", chat="7")
        await here.model.asked()
        disk.telegram.down()
        await disk.telegram.until(lambda: not disk.telegram.running)
        here.model.release()
        await until(lambda: not here.ledger.undone and here.gateway.post.waiting)
    assert disk.telegram.sent == []
    disk.telegram.up()
    async with at_work(disk) as again:
        assert await said(disk.telegram, "7") == ["Late, but here."]
        await again.settled()
        assert not again.model.requests
    assert AGAIN not in disk.telegram.shown("7")[0]
