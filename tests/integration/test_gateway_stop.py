"""``bubbles gateway`` told to end: what can is answered in time, the rest by the next start, and it is over soon."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bubbles.gateway.outgoing import AGAIN
from tests.channel_servers.telegram import BotApi, Sent, bot_api
from tests.gateway_scene import SILENT_MODEL, GatewayScene, telegram_environment
from tests.model_server import Calls, ModelServer, Request, serving
from tests.processes import comes_true

pytestmark = [pytest.mark.req("OPS-02"), pytest.mark.timeout(60)]

OVER_S = 10.0
SLEEPS = 'prefix_rule(pattern=["sleep"])\n'
FIRST: dict[str, str] = {"hurry": "sleep 1", "wait": "sleep 60", "ask": "touch ran; curl https://example.org/x"}
"""What each of these is begun with. The last needs a person's word."""
WORDS = ("hurry", "wait", "ask", "think", "stick")
ANSWER = {word: f"All of {word}." for word in WORDS}
PEOPLE: dict[str, dict[str, Any]] = {
    word: {"id": 1001 + n, "is_bot": False, "first_name": word.title()} for n, word in enumerate(WORDS)
}


def brain(request: Request) -> str | Calls:
    """Whatever has been begun is not begun again."""
    messages = request["messages"]
    said = " ".join(str(message["content"]) for message in messages if message["role"] == "user")
    word = re.findall(r"please (\w+)", said)[0]
    if word in FIRST and not any(message["role"] == "tool" for message in messages):
        return [("exec", {"script": FIRST[word]})]
    return ANSWER[word]


def shown(server: BotApi, word: str) -> list[Sent]:
    return [each for each in server.sent if each.chat == PEOPLE[word]["id"]]


def answers(server: BotApi, word: str) -> list[str]:
    return [each.text for each in shown(server, word) if each.text.endswith(ANSWER[word])]


async def says(server: BotApi, word: str) -> None:
    await server.says(f"please {word}", user=PEOPLE[word])


async def never(_: web.Request) -> web.Response:
    await asyncio.sleep(3_600)
    return web.Response()


def asked(requests: Sequence[Request], word: str) -> bool:
    return any(f"please {word}" in str(request["messages"]) for request in requests)


def said_twice(requests: Sequence[Request]) -> list[str]:
    """Messages that stand in a conversation more than once."""
    said = [[str(each["content"]) for each in request["messages"] if each["role"] == "user"] for request in requests]
    return [text for texts in said for text in texts if text.startswith("please") and texts.count(text) > 1]


@pytest.mark.req("APPR-04", "CHAN-07")
async def test_what_ends_in_time_is_answered_and_what_is_cut_off_is_taken_up_by_the_next_start(tmp_path: Path) -> None:
    people = [each["id"] for each in PEOPLE.values()]
    async with bot_api() as server, serving(brain) as model:
        async with GatewayScene(tmp_path, telegram_environment(server, people) | model.environment) as scene:
            (scene.data_dir / "rules").mkdir()
            (scene.data_dir / "rules" / "test.rules").write_text(SLEEPS)
            await scene.starts()
            await all_at_work(server, model)
            (card,) = shown(server, "ask")
            run, _ = card.buttons

            status, took_s = await scene.stops()
            print(f"over after {took_s:.1f} s")
            assert (status, took_s < OVER_S) == (0, True), scene.told()
            assert card.text.startswith("Not run: the turn was ended")
            assert {word: answers(server, word) for word in WORDS if answers(server, word)} == {
                "hurry": [ANSWER["hurry"]]
            }
            assert await comes_true(lambda: not scene.left_over()), scene.left_over()

            await scene.starts()
            await server.until(lambda: all(answers(server, word) for word in WORDS))
            await server.presses(run, user=PEOPLE["ask"])
            await server.until(lambda: "waits here" in shown(server, "ask")[-1].text)
            assert (await scene.stops())[0] == 0
        for word in ("wait", "ask", "think"):
            first, second = [each.text for each in shown(server, word) if each is not card][:2]
            assert first == f"I was interrupted while working on: «please {word}»; I take it up again."
            assert second == ANSWER[word]
        assert answers(server, "stick") == [f"{AGAIN}\n\n{ANSWER['stick']}"]
        assert all(len(answers(server, word)) == 1 for word in WORDS)
        assert list((scene.data_dir / "sessions").glob("*/ran")) == []
        assert not said_twice(model.requests)
        model.check()


async def all_at_work(server: BotApi, model: ModelServer) -> None:
    """An answer is being sent, a command runs, a question is open, the model thinks, and something ends soon."""
    server.faults["sendMessage"].append(never)
    await says(server, "stick")
    await server.until(lambda: server.asked("sendMessage"))
    for word in ("wait", "ask"):
        await says(server, word)
    await server.until(lambda: shown(server, "ask") and asked(model.requests, "wait"))
    model.delay_s = 3_600
    await says(server, "think")
    await server.until(lambda: asked(model.requests, "think"))
    model.delay_s = 0.0
    await says(server, "hurry")
    await server.until(lambda: asked(model.requests, "hurry"))


async def test_one_gateway_runs_for_a_data_directory_and_an_idle_one_ends_at_once(tmp_path: Path) -> None:
    async with GatewayScene(tmp_path, SILENT_MODEL) as scene:
        await scene.starts()
        status, out, err = await scene.runs("gateway")
        assert (status, out) == (1, "")
        assert f"A gateway runs for {scene.data_dir} already (process {scene.process.pid}, on 127.0.0.1" in err
        assert err.endswith("stop that one first.\n")
        status, took_s = await scene.stops()
        assert (status, took_s < 3) == (0, True), scene.told()
