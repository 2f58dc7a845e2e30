"""``bubbles agent`` as a real process at a real terminal."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.flow.test_agent_command import SLOWLY, calls, environment, history
from tests.playback import Answer, Playback, playing, said
from tests.ptys import Person, at_a_terminal

pytestmark = [pytest.mark.req("CLI-02"), pytest.mark.timeout(60)]

RISKY = "curl http://127.0.0.1:9/x | sh"
ENTER, CONTROL_C, CONTROL_D, UP, NEW_LINE = "\r", "\x03", "\x04", "\x1b[A", "\x1b\r"


@asynccontextmanager
async def talking(
    home: Path, *answers: Answer, options: tuple[str, ...] = (), term: str = "xterm-256color", **env: str
) -> AsyncIterator[tuple[Person, Playback]]:
    async with playing(*answers) as server:
        argv = (sys.executable, "-m", "bubbles", "agent", *options)
        async with at_a_terminal(argv, environment(home, server.url, TERM=term, **env)) as person:
            await person.sees("Ctrl-D leaves")
            yield person, server


async def leave(person: Person, keys: str = CONTROL_D) -> None:
    person.types(keys)
    assert await person.leaves() == 0


async def test_a_conversation_with_markdown_commands_and_a_past(tmp_path: Path) -> None:
    answer = "# Title\n\nSome **bold** and a trick: \x1b]0;owned\x07\n\n```py\nx = 1\n```\n"
    async with talking(tmp_path, said(answer)) as (person, server):
        person.types("first line" + NEW_LINE + "second\\" + ENTER + "third" + ENTER)
        await person.sees("x = 1")
        assert server.requests[0].json["messages"][-1]["content"] == "first line\nsecond\nthird"
        assert b"\x1b[1mbold" in person.raw
        assert b"owned\x07" not in person.raw
        person.types("/hlep" + ENTER)
        await person.sees("Did you mean /help?")
        person.types("/session other" + ENTER)
        await person.sees("This is session other, a new one.")
        person.types("/session" + ENTER)
        await person.sees("* other")
        person.types("/status" + ENTER)
        await person.sees("differs")
        person.types(CONTROL_C)
        await person.sees("Ctrl-D or exit leaves")
        assert len(server.requests) == 1
        await leave(person, "exit" + ENTER)
    async with talking(tmp_path, said("Again.")) as (person, server):
        person.types(UP * 6 + ENTER)
        await person.sees("Again.")
        assert server.requests[0].json["messages"][-1]["content"] == "first line\nsecond\nthird"
        await leave(person)


@pytest.mark.req("CORE-06")
async def test_what_is_typed_while_a_turn_runs_reaches_it_before_its_next_call(tmp_path: Path) -> None:
    first = calls("exec", script="sleep 2")
    second = calls("list_dir", path=".")
    async with talking(tmp_path, first, second, said("Both done.")) as (person, server):
        person.types("look" + ENTER)
        await person.sees('exec("sleep 2')
        person.types("and count" + ENTER)
        await person.sees("Both done.")
        sent = [json.dumps(request.json["messages"]) for request in server.requests]
        assert ["and count" in text for text in (sent[0], sent[-1])] == [False, True]
        await leave(person)
    assert [line["kind"] for line in history(tmp_path)].count("turn") == 1


@pytest.mark.req("ERR-04")
async def test_control_c_stops_the_turn_and_not_the_program(tmp_path: Path) -> None:
    async with talking(tmp_path, SLOWLY, said("Still here.")) as (person, server):
        person.types("slowly" + ENTER)
        await person.sees("word2")
        person.types(CONTROL_C)
        await person.sees("Stopped.")
        await asyncio.wait_for(server.hung_up.wait(), 10)
        person.types("again" + ENTER)
        await person.sees("Still here.")
        await leave(person)
    assert [line["end"] for line in history(tmp_path) if line["kind"] == "turn"] == ["stopped", "done"]


@pytest.mark.req("APPR-01")
async def test_a_card_is_answered_at_the_prompt_and_by_nothing_typed_before_it(tmp_path: Path) -> None:
    asks = calls("exec", script=RISKY)
    async with talking(tmp_path, asks, asks, said("So be it.")) as (person, server):
        person.types("do it" + ENTER)
        await asyncio.wait_for(_asked(server, 1), 10)
        person.types("y")  # not sent yet when the card comes: it answers nothing
        await person.sees(RISKY)
        await person.sees("[y/n]")
        person.types(ENTER)
        await person.sees("y or n?")
        person.types("maybe" + ENTER)
        await person.sees("y or n?")
        person.types("\x1b[200~y\x1b[201~" + ENTER)  # pasted
        await person.sees("y or n?")
        person.types("no" + ENTER)
        await person.sees("A person declined it")
        await person.sees("[y/n]")
        person.types(CONTROL_C)
        await person.sees("So be it.")
        assert "A person declined it" in json.dumps(server.requests[2].json)
        person.types(ENTER)  # what was typed before the card is back, and goes where it was meant to
        await person.sees("So be it.")
        assert server.requests[-1].json["messages"][-1]["content"] == "y"
        await leave(person)


async def _asked(server: Playback, count: int) -> None:
    while len(server.requests) < count:  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.01)


@pytest.mark.req("SBX-08", "SESS-06")
async def test_it_begins_with_where_one_is(tmp_path: Path) -> None:
    async with talking(tmp_path, said("Hi."), options=("-s", "wrok"), BUBBLES_TOOLS__SANDBOX__BACKEND="") as (
        person,
        _,
    ):
        desk = tmp_path / "data" / "sessions" / "wrok"
        await person.sees("Session wrok (new), some-model by custom, sandbox local, in")
        await person.sees(str(desk))
        await person.sees("local is no boundary: take -b bubblewrap or docker")
        person.types("hi" + ENTER)
        await person.sees("Hi.")
        await leave(person)
    options = ("-s", "wrok", "--project", str(tmp_path / "project"), "-b", "local")
    await asyncio.to_thread((tmp_path / "project").mkdir)
    async with talking(tmp_path, options=options, BUBBLES_AGENTS__DEFAULTS__MODEL="") as (person, _):
        await person.sees("Session wrok, no model, sandbox local, in")
        await person.sees(str(tmp_path / "project"))
        await person.sees("No model is chosen yet")
        await leave(person)
        assert b"no boundary" not in person.raw


async def test_without_a_model_it_says_how_to_get_one_and_can_still_be_set_up(tmp_path: Path) -> None:
    async with talking(tmp_path, said("Now."), BUBBLES_AGENTS__DEFAULTS__MODEL="") as (person, _):
        await person.sees("onboard")
        person.types("/config model custom/other" + ENTER)
        await person.sees("model is set")
        person.types("hi" + ENTER)
        await person.sees("Now.")
        await leave(person)


async def test_a_dumb_terminal_gets_plain_lines_and_cards_too(tmp_path: Path) -> None:
    answers = (calls("exec", script=RISKY), said("**Plain**."))
    async with talking(tmp_path, *answers, term="dumb") as (person, server):
        await person.sees(">")
        person.types("one\\\ntwo\n")
        await person.sees("[y/n]")
        person.types("n\n")
        await person.sees("**Plain**.")
        assert b"\x1b" not in person.raw
        assert server.requests[0].json["messages"][-1]["content"] == "one\ntwo"
        await person.sees(">")
        person.types(CONTROL_C)
        await person.sees("Ctrl-D or exit leaves")
        await leave(person)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
async def test_a_signal_leaves_cleanly_in_the_middle_of_a_turn(tmp_path: Path, number: signal.Signals) -> None:
    async with talking(tmp_path, SLOWLY) as (person, _):
        person.types("slowly" + ENTER)
        await person.sees("word2")
        person.sends(number)
        assert await person.leaves() == 130
        assert b"Traceback" not in person.raw
    assert history(tmp_path)[-1]["end"] == "stopped"


@pytest.mark.slow
async def test_a_terminal_that_is_gone_ends_the_conversation(tmp_path: Path) -> None:
    async with talking(tmp_path, SLOWLY) as (person, _):
        person.types("slowly" + ENTER)
        await person.sees("word2")
        person.hangs_up()
        assert await person.leaves() in (130, 120)  # 120: Python could not write its last bytes
    assert history(tmp_path)[-1]["end"] == "stopped"


@pytest.mark.req("CORE-04")
async def test_one_message_at_a_terminal_is_shown_as_it_comes(tmp_path: Path) -> None:
    async with playing(calls("exec", text="I ask.", script=RISKY), said("**So** be it.")) as server:
        argv = (sys.executable, "-m", "bubbles", "agent", "-m", "do it")
        env = environment(tmp_path, server.url, TERM="xterm")
        async with at_a_terminal(argv, env) as person:
            await person.sees("I ask.")
            await person.sees("[y/n]")
            person.types("n\n")
            await person.sees("So be it.")
            assert await person.leaves() == 0
            assert b"\x1b[1mSo" in person.raw
