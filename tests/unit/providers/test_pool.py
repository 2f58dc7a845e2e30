"""The providers of a process, and that their tokens are told of before they are used."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bubbles.config.load import load_settings
from bubbles.providers.contract import ModelRequest, ProviderError, UserMessage
from bubbles.providers.logins.contract import ISSUER, Login
from bubbles.providers.logins.store import LoginStore
from bubbles.providers.pool import ProviderPool
from tests.playback import playing, refusal, said

TOKEN = "tid=invented-0123456789"


@pytest.mark.req("PROV-03", "SEC-03")
async def test_a_token_is_told_of_before_it_is_used(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    login = Login(
        provider="github_copilot",
        refresh_token="gho-invented-0123456789",
        access_token=TOKEN,
        expires_at=now + timedelta(hours=1),
        renewed_at=now,
        more={ISSUER: "https://github.com"},
    )
    await asyncio.to_thread(LoginStore(tmp_path).write, login)
    request = ModelRequest(model="m", system="", messages=(UserMessage(text="Hello"),))
    told: list[str] = []
    async with playing(refusal(400, "No."), said("Yes.")) as server:
        env = {
            "HOME": str(tmp_path),
            "BUBBLES_HOME": str(tmp_path),
            "BUBBLES_PROVIDERS__GITHUB_COPILOT__BASE_URL": server.url,
        }
        settings = await asyncio.to_thread(load_settings, env)
        async with ProviderPool(settings, on_secret=told.append) as pool:
            choice = pool.choose("github-copilot/m", None)
            assert pool.of(choice) is pool.of(choice)
            with pytest.raises(ProviderError):
                await pool.of(choice).complete(request)
            assert TOKEN in told
            assert (await pool.of(choice).complete(request)).message.text == "Yes."
    assert [sent.header("Authorization") for sent in server.requests] == [f"Bearer {TOKEN}"] * 2
