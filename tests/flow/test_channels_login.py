"""``bubbles channels login telegram`` as somebody at a terminal goes through it, against a Bot API server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.channel_servers.telegram import BOB, GROUP, TOKEN, BotApi, bot_api
from tests.ptys import Person, at_a_terminal

pytestmark = [pytest.mark.req("CHAN-02", "CLI-01"), pytest.mark.timeout(60)]

PROGRAM = str(Path(sys.executable).parent / "bubbles")
LOGIN = [PROGRAM, "channels", "login", "telegram"]
WAITS = "waiting for a message"


@pytest.fixture
async def server() -> AsyncIterator[BotApi]:
    async with bot_api() as made:
        yield made


def environment(home: Path, server: BotApi, **more: str) -> dict[str, str]:
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "TERM": "xterm",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "BUBBLES_CHANNELS__TELEGRAM__BASE_URL": server.url,
        **more,
    }


def config(home: Path) -> Path:
    return home / ".bubbles" / "config.json"


def telegram(home: Path) -> Any:
    return json.loads(config(home).read_text())["channels"]["telegram"]


async def waits(person: Person, server: BotApi) -> None:
    """It has looked at what was there before, and waits for more."""
    await person.sees("write to it, alone")
    await server.until(lambda: len(server.asked("getUpdates")) > 1, 15)


@pytest.mark.req("SEC-03")
async def test_who_writes_and_is_confirmed_is_let_in_and_the_message_is_left_for_the_gateway(
    tmp_path: Path, server: BotApi
) -> None:
    await server.says("I was here before you", user=BOB)
    async with at_a_terminal(LOGIN, environment(tmp_path, server)) as person:
        await person.sees("(it is not shown):")
        person.types(f"{TOKEN}\n")
        await person.sees("The token is of @bubbles_bot (Bubbles).")
        await waits(person, server)
        await server.says("in a group", chat=GROUP, user=BOB)
        await server.says("let me in", user={**BOB, "first_name": "Bo\x1b[2J"})
        assert "\x1b" not in await person.sees("has written; the id is 1002.")
        person.types("\n")
        await server.says("it is me")
        await person.sees("Ann Ash (@ann_ash) has written; the id is 1001.")
        assert not config(tmp_path).exists()
        await person.sees("yes or no [no]")
        person.types("yes\n")
        await person.sees("Ann Ash may use the assistant by @bubbles_bot.")
        assert await person.leaves() == 0
        assert TOKEN not in person.raw.decode()
    assert telegram(tmp_path) == {"enabled": True, "token": TOKEN, "allowFrom": ["1001"]}
    assert config(tmp_path).stat().st_mode & 0o777 == 0o600
    assert server.acknowledged == []
    assert len(server.updates) == 4


async def test_a_token_of_the_environment_stays_there_and_so_do_other_settings(tmp_path: Path, server: BotApi) -> None:
    before = {"channels": {"telegram": {"allow_from": ["${OWNER}", 5], "groupPolicy": "off"}}, "unknown": 1}
    config(tmp_path).parent.mkdir()
    config(tmp_path).write_text(json.dumps(before))
    env = environment(tmp_path, server, BOT_TOKEN=TOKEN, OWNER="7")
    async with at_a_terminal([*LOGIN, "--token-env", "BOT_TOKEN"], env) as person:
        await waits(person, server)
        await server.says("me")
        await person.sees("yes or no [no]")
        person.types("y\n")
        assert await person.leaves() == 0
    assert json.loads(config(tmp_path).read_text()) == {
        "channels": {
            "telegram": {
                "allow_from": ["${OWNER}", 5, "1001"],
                "groupPolicy": "off",
                "enabled": True,
                "token": "${BOT_TOKEN}",
            }
        },
        "unknown": 1,
    }


@asynccontextmanager
async def polled_by_another(server: BotApi) -> AsyncIterator[None]:
    """A gateway: what ends its request does not keep it from asking again."""

    async def poll() -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                with suppress(aiohttp.ClientError):
                    await (await session.post(f"{server.url}/bot{TOKEN}/getUpdates", data={"timeout": 20})).read()

    task = asyncio.create_task(poll())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_it_is_refused_while_another_program_reads_the_messages(tmp_path: Path, server: BotApi) -> None:
    async with polled_by_another(server):
        env = environment(tmp_path, server, BOT_TOKEN=TOKEN)
        async with at_a_terminal([*LOGIN, "--token-env", "BOT_TOKEN"], env) as person:
            await person.sees("Another program reads the messages of @bubbles_bot")
            await person.sees("Nothing was changed.")
            assert await person.leaves() == 1
    assert not config(tmp_path).exists()


@pytest.mark.req("SEC-03")
async def test_a_token_that_telegram_does_not_know_is_not_written(tmp_path: Path, server: BotApi) -> None:
    wrong = TOKEN.replace("canary", "madeup")
    async with at_a_terminal(LOGIN, environment(tmp_path, server)) as person:
        await person.sees("(it is not shown):")
        person.types(f"{wrong}\n")
        await person.sees("channels.telegram.token is not known to Telegram")
        assert await person.leaves() == 1
        assert wrong not in person.raw.decode()
    assert not config(tmp_path).exists()


async def test_leaving_while_it_waits_changes_nothing(tmp_path: Path, server: BotApi) -> None:
    env = environment(tmp_path, server, BOT_TOKEN=TOKEN)
    async with at_a_terminal([*LOGIN, "--token-env", "BOT_TOKEN"], env) as person:
        await waits(person, server)
        person.types("\x03")
        await person.sees("Nothing was changed.")
        assert await person.leaves() == 130
    assert not config(tmp_path).exists()


def test_it_needs_a_terminal_and_says_so(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(LOGIN, env=env, input="", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "bubbles: Logging in is a conversation with you: run it in a terminal.\n"
