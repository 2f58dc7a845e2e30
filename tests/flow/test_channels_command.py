"""``bubbles channels``: what the settings say of each channel, and what a running gateway adds to that."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbles.channels.access import Refusal
from bubbles.gateway.health import ChannelHealth, Health, Readiness
from bubbles.gateway.lock import gateway_lock
from bubbles.gateway.metrics import Metrics
from bubbles.gateway.turned_away import Visitor

pytestmark = pytest.mark.req("CLI-01", "CHAN-02")

BOT = "123456:token-of-the-bot-AAAAAAAAAAAAAAAAA"
TOKEN = "tulips-at-noon-0123456789abcdefghi"
LIVE = Readiness(
    ready=False,
    why="telegram is not up.",
    channels=(
        ChannelHealth(
            name="telegram",
            phase="waiting",
            up=False,
            who="@bubbles_bot",
            why="The connection was lost.",
            since=1_900_000_000.0,
            restarts=2,
            turned_away=(
                Visitor(id="4711", name="Eve\x1b[2J", at=1_900_000_060.0, why=Refusal.STRANGER),
                Visitor(id="4712", name="", at=1_900_000_000.0, why=Refusal.GROUPS_OFF),
            ),
        ),
    ),
)


async def bubbles(home: Path, *words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bubbles", *words),
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def status(home: Path) -> dict[str, Any]:
    code, out, err = await bubbles(home, "channels", "status", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def configure(home: Path, *, token: str | None = None, **telegram: object) -> None:
    (home / ".bubbles").mkdir(exist_ok=True)
    gateway = {} if token is None else {"gateway": {"token": token}}
    (home / ".bubbles" / "config.json").write_text(json.dumps({"channels": {"telegram": telegram}, **gateway}))
    (home / ".bubbles" / "config.json").chmod(0o600)


@asynccontextmanager
async def running(home: Path, *, token: str | None = None, told_port: int | None = None) -> AsyncIterator[None]:
    """A gateway, as far as others see it: its lock, and what it says of itself."""
    host = f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"
    with socket.socket() as found:
        found.bind((host, 0))
        port = int(found.getsockname()[1])
    lock = gateway_lock(home / ".bubbles", host, port if told_port is None else told_port)
    await asyncio.to_thread(lock.__enter__)
    try:
        async with Health(host, port, token, lambda: LIVE, Metrics()):
            yield
    finally:
        await asyncio.to_thread(lock.__exit__, None, None, None)


async def test_a_fresh_machine_has_every_channel_off_and_nothing_is_made(tmp_path: Path) -> None:
    code, out, err = await bubbles(tmp_path, "channels", "status")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "telegram: off; 'bubbles channels login telegram' sets it up",
        "gateway: not running: 'bubbles gateway' starts it",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("SEC-03")
async def test_what_is_missing_and_who_is_let_in_is_said_and_no_token(tmp_path: Path) -> None:
    configure(tmp_path, enabled=True)
    _, out, _ = await bubbles(tmp_path, "channels", "status")
    assert "token: not set; let in: nobody; in groups: mention" in out
    assert "warning: channels.telegram.token is not set: run 'bubbles channels login telegram'." in out
    assert "warning: channels.telegram.allowFrom is empty, so nobody is let in" in out
    (tmp_path / ".bubbles" / "config.json").write_text(
        json.dumps(
            {"channels": {"telegram": {"enabled": True, "token": BOT, "allowFrom": ["7", 8], "groupPolicy": "all"}}}
        )
    )
    _, out, err = await bubbles(tmp_path, "channels", "status")
    assert "token: set; let in: 2 (7, 8); in groups: all" in out
    assert "warning" not in out
    found = await status(tmp_path)
    assert found["gateway"] == {
        "running": False,
        "pid": None,
        "url": None,
        "ready": None,
        "why": None,
        "problem": None,
    }
    (telegram,) = found["channels"]
    assert telegram == {
        "name": "telegram",
        "enabled": True,
        "install": None,
        "has_token": True,
        "allow_from": ["7", "8"],
        "everybody": False,
        "group_policy": "all",
        "problems": [],
        "warnings": [],
        "live": None,
    }
    assert BOT not in out + err + json.dumps(found)


async def test_everybody_is_a_warning(tmp_path: Path) -> None:
    configure(tmp_path, enabled=True, allowFrom=["*"])
    _, out, _ = await bubbles(tmp_path, "channels", "status")
    assert "let in: everybody" in out
    assert "allowFrom has '*': everybody who finds the assistant may use it" in out
    assert (await status(tmp_path))["channels"][0]["everybody"] is True


@pytest.mark.req("CHAN-07", "OPS-02")
async def test_a_running_gateway_says_how_a_channel_is_and_whom_it_turned_away(tmp_path: Path) -> None:
    configure(tmp_path, token=TOKEN, enabled=True, allowFrom=["7"])
    async with running(tmp_path, token=TOKEN):
        code, out, err = await bubbles(tmp_path, "channels", "status")
        found = await status(tmp_path)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("telegram: waiting as @bubbles_bot, since 2030-03-1")
    assert lines[0].endswith(", started anew 2 times")
    assert "  warning: The connection was lost." in lines
    assert next(line for line in lines if "turned away: 4711" in line).endswith(
        'To let them in, put "4711" into channels.telegram.allowFrom and start the gateway again.'
    )
    assert next(line for line in lines if "turned away: 4712" in line).endswith("groups off")
    assert f"gateway: runs (process {os.getpid()}, http://127." in lines[-1]
    assert lines[-1].endswith("not ready: telegram is not up.")
    assert "\x1b" not in out
    assert TOKEN not in out + json.dumps(found)
    assert found["channels"][0]["live"]["restarts"] == 2
    assert found["gateway"]["ready"] is False


@pytest.mark.req("OPS-02")
async def test_a_gateway_that_says_nothing_is_a_sentence(tmp_path: Path) -> None:
    configure(tmp_path, enabled=True)
    async with running(tmp_path, token=TOKEN):
        _, out, _ = await bubbles(tmp_path, "channels", "status")
        assert "the gateway was started with another gateway.token: start it again." in out
        assert "telegram: on\n" in out
    async with running(tmp_path, told_port=1):
        assert "does not answer (Connection refused)" in (await status(tmp_path))["gateway"]["problem"]
    async with running(tmp_path, told_port=0):
        assert "the gateway listens nowhere" in (await status(tmp_path))["gateway"]["problem"]


async def test_login_knows_the_channels_that_there_are(tmp_path: Path) -> None:
    code, _, err = await bubbles(tmp_path, "channels", "login", "telegramm")
    assert code == 2
    assert "'telegramm' is no channel: take one of telegram" in err
    code, out, _ = await bubbles(tmp_path, "channels", "login", "--help")
    assert code == 0
    assert "--token-env" in out
