"""Models by login in real processes: ``bubbles agent`` and ``status`` with a login on the disk, and without one."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bubbles.providers.logins.contract import ISSUER, Login
from bubbles.providers.logins.store import LoginStore
from tests.playback import Answer, Playback, playing, stream
from tests.responses_wire import Output, ended, faults_of

pytestmark = [pytest.mark.req("PROV-03"), pytest.mark.timeout(60)]

TOKEN = "eyJ-invented-token-0123456789"


async def bubbles(home: Path, *argv: str, url: str = "http://127.0.0.1:9") -> tuple[int, str, str]:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "BUBBLES_HOME": str(home / "data"),
        "BUBBLES_AGENTS__DEFAULTS__MODEL": "gpt-6.1-sol",
        "BUBBLES_AGENTS__DEFAULTS__PROVIDER": "openai_codex",
        "BUBBLES_AGENTS__DEFAULTS__MAX_RETRIES": "0",
        "BUBBLES_PROVIDERS__OPENAI_CODEX__BASE_URL": f"{url}/codex",
        "BUBBLES_TOOLS__SANDBOX__BACKEND": "local",
    }
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bubbles",
        *argv,
        env=env,
        cwd=home,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
    )
    out, err = await program.communicate()
    assert program.returncode is not None
    return program.returncode, out.decode(), err.decode()


def log_in(home: Path) -> None:
    now = datetime.now(UTC)
    LoginStore(home / "data").write(
        Login(
            provider="openai_codex",
            refresh_token="rt-invented-token-0123456789",
            access_token=TOKEN,
            expires_at=now + timedelta(days=9),
            account="account-1",
            more={ISSUER: "https://auth.openai.com"},
            made_at=now,
            renewed_at=now,
        )
    )


def reply(*events: Any) -> Answer:
    return stream(*events, ended(), done=False)


def wire_is_right(server: Playback) -> bool:
    return [fault for sent in server.requests for fault in faults_of(sent.json)] == []


@pytest.mark.req("PROV-10", "SEC-03")
async def test_a_conversation_with_tools_keeps_its_reasoning_over_calls_and_programs(tmp_path: Path) -> None:
    await asyncio.to_thread(log_in, tmp_path)
    one, two = Output(), Output()
    looks = [*one.reasoning("c2VhbGVk"), *one.text("I look."), *one.call("call_1", "list_dir", '{"path": "."}')]
    answers = (
        reply(*looks),
        reply(*two.reasoning("bGF0ZXI="), *two.text("It is empty.")),
        reply(*Output().text("No.")),
    )
    async with playing(*answers) as server:
        first = await bubbles(tmp_path, "agent", "-m", "What is there?", url=server.url)
        second = await bubbles(tmp_path, "agent", "-m", "Is that all?", url=server.url)
    assert (first[:2], second[:2]) == ((0, "It is empty.\n"), (0, "No.\n"))
    assert wire_is_right(server)
    assert {sent.header("Authorization") for sent in server.requests} == {f"Bearer {TOKEN}"}
    found = [item.get("encrypted_content") or item.get("call_id") for item in server.requests[2].json["input"]]
    assert [each for each in found if each] == ["c2VhbGVk", "call_1", "call_1", "bGF0ZXI="]
    assert TOKEN not in "".join([*first[1:], *second[1:]])
    log = await asyncio.to_thread(lambda: [path.read_bytes() for path in (tmp_path / "data").rglob("*.log")])
    assert TOKEN.encode() not in b"".join(log)


async def test_without_a_login_the_command_that_mends_it_is_named(tmp_path: Path) -> None:
    mend = "bubbles provider login openai_codex"
    status, out, err = await bubbles(tmp_path, "agent", "-m", "Hello", "--json")
    told = json.loads(out)
    assert (status, told["error"], told["reply"]) == (1, "authentication", None)
    assert told["notices"] == [
        f"The model gave no answer: authentication (tried once). openai_codex: there is no login. Log in: {mend}"
    ]
    status, out, err = await bubbles(tmp_path, "agent", "-m", "Hello")
    assert (status, out) == (1, "")
    assert mend in err
    assert "omething went wrong" not in err


async def test_status_says_that_a_login_is_missing(tmp_path: Path) -> None:
    for there in (False, True):
        if there:
            await asyncio.to_thread(log_in, tmp_path)
        status, out, _ = await bubbles(tmp_path, "status", "--json")
        model = json.loads(out)["model"]
        assert (status, model["model"], model["provider"]) == (0, "gpt-6.1-sol", "openai_codex")
        assert model["reason"] == "provider is set to openai_codex"
        assert (model["problem"] is None) == there
        plain = (await bubbles(tmp_path, "status"))[1]
        assert ("needs a login, and there is none: run 'bubbles provider login openai_codex'." in plain) != there
        assert "gpt-6.1-sol by openai_codex" in plain
