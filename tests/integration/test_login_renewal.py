"""Renewing a login from several processes, and from one that is killed in the midst of it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bubbles.providers.logins.contract import Login
from bubbles.providers.logins.store import LoginStore
from tests.login_server import ACCOUNT, Held, LoginServer, logins_served

pytestmark = [pytest.mark.req("PROV-03", "SEC-03"), pytest.mark.timeout(60)]

PROGRAM = """
import asyncio, hashlib, sys
from datetime import UTC, datetime, timedelta

from bubbles.config.load import load_settings
from bubbles.providers.logins.contract import LoginError
from bubbles.providers.logins.source import LoginSource, vendor_for
from bubbles.providers.logins.store import LoginStore

async def main():
    minutes, last = 0, None
    settings = load_settings()
    source = LoginSource(
        LoginStore(settings.data_dir),
        vendor_for(settings, "openai_codex"),
        environment=settings.host_env,
        now=lambda: datetime.now(UTC) + timedelta(minutes=minutes),
    )
    while await asyncio.to_thread(sys.stdin.readline):
        try:
            last = await source.access(refused=last)
            print("token", hashlib.sha256(last.token.encode()).hexdigest(), flush=True)
        except LoginError as error:
            print(type(error).__name__, error, flush=True)
        minutes += 1  # a token that was just given is not renewed again

asyncio.run(main())
"""


@dataclass(slots=True)
class Asker:
    program: asyncio.subprocess.Process

    def asks(self) -> None:
        assert self.program.stdin
        self.program.stdin.write(b"\n")

    async def hears(self) -> str:
        assert self.program.stdout
        return (await self.program.stdout.readline()).decode().strip()

    async def is_killed(self) -> None:
        self.program.kill()
        await self.program.wait()


@dataclass(slots=True)
class Scene:
    server: LoginServer
    data: Path

    @asynccontextmanager
    async def asker(self) -> AsyncIterator[Asker]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.data.parent), "BUBBLES_HOME": str(self.data)}
        pipe = asyncio.subprocess.PIPE
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM), env={**env, **self.server.environment}, stdin=pipe, stdout=pipe
        )
        try:
            yield Asker(program)
        finally:
            if program.returncode is None:
                program.kill()
            await program.wait()

    async def log_in(self) -> None:
        tokens = self.server.codex_login()
        login = Login(
            provider="openai_codex",
            refresh_token=tokens["refresh_token"],
            account=ACCOUNT,
            more={"issuer": self.server.url},
            made_at=datetime.now(UTC),
        )
        await asyncio.to_thread(LoginStore(self.data).write, login)

    def file(self) -> str:
        return (self.data / "logins" / "openai_codex.json").read_text()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with logins_served() as server:
        made = Scene(server, tmp_path / "data")
        await made.log_in()
        yield made


async def test_three_processes_that_need_a_token_at_once_renew_once_twenty_times_over(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        askers = [await stack.enter_async_context(scene.asker()) for _ in range(3)]
        for number in range(20):
            for asker in askers:
                asker.asks()
            answers = {await asker.hears() for asker in askers}
            assert len(answers) == 1, answers
            assert answers.pop().startswith("token ")
            assert scene.server.renewals == number + 1
            scene.server.end_access()
    scene.server.check()


async def test_killed_before_the_vendor_answers_another_process_goes_on(scene: Scene) -> None:
    held = Held()
    scene.server.does.before["/oauth/token"] = [held]
    async with scene.asker() as first, scene.asker() as second:
        first.asks()
        await held.come.wait()
        second.asks()
        before = scene.file()
        await first.is_killed()
        assert (await second.hears()).startswith("token ")
    assert before != scene.file()
    scene.server.check()


async def test_killed_between_the_vendors_answer_and_our_write_the_person_logs_in_again(scene: Scene) -> None:
    """What cannot be helped: the vendor has taken the one token, and nobody has the other."""
    token = json.loads(scene.file())["refresh_token"]
    scene.server._refresh[token] = False
    async with scene.asker() as asker:
        asker.asks()
        said = await asker.hears()
    assert said.startswith("NotLoggedInError openai_codex: OpenAI no longer accepts the login (refresh_token_reused). ")
    assert said.endswith("Log in: bubbles provider login openai_codex")


async def test_killed_at_any_moment_the_file_is_whole_and_no_lock_stays(scene: Scene) -> None:
    chance = random.Random(4711)
    for _ in range(8):
        async with scene.asker() as asker:
            asker.asks()
            assert (await asker.hears()).startswith(("token ", "NotLoggedInError "))
            scene.server.end_access()
            asker.asks()
            await asyncio.sleep(chance.random() * 0.03)  # anywhere in a renewal
            await asker.is_killed()
        assert json.loads(scene.file())["provider"] == "openai_codex"
        await scene.log_in()
    assert [path.name for path in (scene.data / "logins").iterdir() if "damaged" in path.name] == []
    async with scene.asker() as asker:
        asker.asks()
        assert (await asker.hears()).startswith("token ")
