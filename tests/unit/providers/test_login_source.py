"""Tokens are renewed in time, once for all who ask, and what fails says so as what it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bubbles.providers.contract import Category, ProviderError
from bubbles.providers.logins import source as renewing
from bubbles.providers.logins.codex import CodexVendor
from bubbles.providers.logins.contract import API, Access, Login, LoginError, NotLoggedInError
from bubbles.providers.logins.copilot import CopilotVendor
from bubbles.providers.logins.issuers import CodexIssuer, CopilotIssuer
from bubbles.providers.logins.source import LoginSource
from bubbles.providers.logins.store import LoginStore, known_secrets
from tests.login_server import ACCOUNT, Held, LoginServer, failing, logins_served

pytestmark = pytest.mark.req("PROV-03", "SEC-03")

BEGIN = datetime(2026, 12, 1, 9, tzinfo=UTC)
CODEX, COPILOT = "openai_codex", "github_copilot"
PATH = {CODEX: "/oauth/token", COPILOT: "/api/v3/copilot_internal/v2/token"}


@dataclass(slots=True)
class Scene:
    server: LoginServer
    store: LoginStore
    now: datetime = BEGIN
    told: list[str] = field(default_factory=list)

    def source(self, provider: str = CODEX, *, wrong_by: timedelta = timedelta(0)) -> LoginSource:
        vendor: CodexVendor | CopilotVendor
        if provider == CODEX:
            vendor = CodexVendor(CodexIssuer(origin=self.server.url))
        else:
            url = self.server.url
            vendor = CopilotVendor(CopilotIssuer(origin=url, rest_url=f"{url}/api/v3", api=""))
        return LoginSource(
            self.store, vendor, environment={}, on_secret=self.told.append, now=lambda: self.now + wrong_by
        )

    def later(self, **time: float) -> None:
        self.now += timedelta(**time)

    def kept(self, provider: str = CODEX) -> Login:
        found = self.store.read(provider)
        assert found is not None
        return found


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """With a login at each vendor, an hour from its end."""
    async with logins_served(lambda: made.now.timestamp()) as server:  # noqa: PLW0108 - its time passes
        made = Scene(server, LoginStore(tmp_path / "data"))
        tokens = server.codex_login()
        codex = Login(
            provider=CODEX,
            refresh_token=tokens["refresh_token"],
            access_token=tokens["access_token"],
            expires_at=BEGIN + timedelta(hours=1),
            renewed_at=BEGIN,
            account=ACCOUNT,
            more={"issuer": server.url},
        )
        copilot = Login(provider=COPILOT, refresh_token=server.github_token(), more={"issuer": server.url})
        await asyncio.to_thread(made.store.write, codex)
        await asyncio.to_thread(made.store.write, copilot)
        yield made


@pytest.mark.blocking  # the test reads files
async def test_a_token_is_used_until_a_few_minutes_before_its_end_and_then_renewed_and_kept(scene: Scene) -> None:
    source, first = scene.source(), scene.kept()
    scene.later(minutes=54)
    assert (await source.access()).token == first.access_token
    assert scene.server.requests == []
    scene.later(minutes=1)
    access = await source.access()
    assert access.token != first.access_token
    assert access.account == ACCOUNT
    assert access.more["plan"] == "plus"
    kept = scene.kept()
    assert (kept.access_token, kept.expires_at) == (access.token, scene.now + timedelta(hours=1))
    assert kept.refresh_token != first.refresh_token
    assert (await source.access()).token == access.token
    assert scene.server.renewals == 1
    scene.server.check()


async def test_each_token_is_told_before_anybody_can_use_it(scene: Scene) -> None:
    source = scene.source()
    first = await source.access()
    assert first.token in scene.told
    scene.later(hours=2)
    seen_at_write: list[str] = []
    write = scene.store.write

    class Watched(LoginStore):
        def write(self, login: Login) -> None:
            seen_at_write.extend(scene.told)
            write(login)

    scene.store = Watched(scene.store.folder.parent)
    access = await scene.source().access()
    assert access.token in seen_at_write
    assert (
        set(await asyncio.to_thread(known_secrets, scene.store.folder.parent)) <= set(scene.told) | scene.server.secrets
    )


@pytest.mark.parametrize("provider", [CODEX, COPILOT])
async def test_many_who_ask_at_once_cause_one_renewal(scene: Scene, provider: str) -> None:
    scene.later(hours=2)
    source, other = scene.source(provider), scene.source(provider)
    found = await asyncio.gather(*((source if n % 2 else other).access() for n in range(40)))
    assert len({access.token for access in found}) == 1
    assert scene.server.renewals == 1
    scene.server.check()


async def test_a_refused_token_is_renewed_once_and_what_replaced_it_a_moment_ago_is_not(scene: Scene) -> None:
    source = scene.source()
    scene.later(minutes=10)
    old = await source.access()
    renewed = await asyncio.gather(*(source.access(refused=old) for _ in range(10)))
    assert {access.token for access in renewed} != {old.token}
    assert len({access.token for access in renewed}) == 1
    assert scene.server.renewals == 1
    assert await source.access(refused=renewed[0]) == renewed[0]  # the token is not the reason
    scene.later(seconds=31)
    assert (await source.access(refused=renewed[0])).token != renewed[0].token
    assert (await source.access(refused=old)).token != old.token
    assert scene.server.renewals == 2


async def test_a_token_that_was_renewed_in_time_and_is_refused_at_once_is_renewed_all_the_same(scene: Scene) -> None:
    scene.later(hours=2)
    source = scene.source()
    first = await source.access()
    assert (await source.access(refused=first)).token != first.token
    scene.server.check()


async def test_a_short_life_does_not_mean_a_renewal_with_each_request(scene: Scene) -> None:
    scene.server.does.access_life_s = 100.0
    scene.later(hours=2)
    source = scene.source()
    first = await source.access()
    scene.later(seconds=79)
    assert await source.access() == first
    scene.later(seconds=2)
    assert await source.access() != first
    assert scene.server.renewals == 2


async def test_without_a_word_on_its_end_the_token_itself_says_it(scene: Scene) -> None:
    scene.server.does.tells_expires_in = False
    scene.later(hours=2)
    await scene.source().access()
    assert (await asyncio.to_thread(scene.kept)).expires_at == scene.now + timedelta(hours=1)


@pytest.mark.parametrize("provider", [CODEX, COPILOT])
@pytest.mark.parametrize("days", [-2, 2])
async def test_a_clock_that_is_wrong_by_days_does_no_harm(scene: Scene, provider: str, days: int) -> None:
    """Only spans of time are taken from the server, never its times."""
    source = scene.source(provider, wrong_by=timedelta(days=days))
    scene.later(hours=2)
    first = await source.access(refused=Access(token=(await asyncio.to_thread(scene.kept, provider)).access_token))
    scene.later(minutes=50)
    assert await source.access() == first
    scene.later(minutes=9)
    assert await source.access() != first
    assert scene.server.renewals == 2


async def test_copilots_token_says_where_it_is_for(scene: Scene) -> None:
    access = await scene.source(COPILOT).access()
    assert access.more[API] == scene.server.url
    assert access.token.startswith("tid=")
    assert access.token in scene.told


@pytest.mark.parametrize("provider", [CODEX, COPILOT])
async def test_a_login_that_counts_no_more_names_the_mend_and_is_not_asked_for_again(
    scene: Scene, provider: str
) -> None:
    scene.server.end_logins()
    scene.server.faults.clear()
    scene.later(hours=2)
    source = scene.source(provider)
    for _ in range(3):
        with pytest.raises(NotLoggedInError, match=f"Log in: bubbles provider login {provider}"):
            await source.access()
    assert scene.server.count(PATH[provider]) == 1


@pytest.mark.parametrize("provider", [CODEX, COPILOT])
@pytest.mark.parametrize(
    ("answer", "category", "retryable"),
    [
        (failing(503, "no server"), Category.UNAVAILABLE, True),
        (failing(429, "slowly", **{"Retry-After": "7"}), Category.RATE_LIMIT, True),
        (failing(200, "<html>"), Category.UNAVAILABLE, True),
        (failing(200, "[" * 100_000), Category.UNAVAILABLE, True),
        (failing(200, "x" * 400_000), Category.UNAVAILABLE, True),
        (failing(200, '{"access_token": "a\\nb", "token": "a b"}'), Category.UNAVAILABLE, True),
        (failing(302, Location="http://127.0.0.1:9/steal"), Category.REJECTED, False),
        (failing(400, '{"error": "invalid_request"}'), Category.REJECTED, False),
    ],
)
async def test_what_passes_at_the_vendors_is_said_as_for_any_request(
    scene: Scene, provider: str, answer: object, category: Category, retryable: bool
) -> None:
    scene.later(hours=2)
    scene.server.does.before[PATH[provider]] = [answer]  # type: ignore[list-item]
    source = scene.source(provider)
    with pytest.raises(ProviderError) as told:
        await source.access()
    assert (told.value.category, told.value.retryable) == (category, retryable)
    assert not any(secret in str(told.value) for secret in scene.server.secrets)
    await source.access()
    scene.server.check()


async def test_a_page_of_a_guard_is_no_end_of_the_login(scene: Scene) -> None:
    scene.later(hours=2)
    scene.server.does.before[PATH[CODEX]] = [failing(403, "<html>Just a moment...</html>")]
    source = scene.source()
    with pytest.raises(ProviderError):
        await source.access()
    await source.access()


async def test_a_token_that_still_counts_is_used_while_the_vendor_is_down(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.later(minutes=57)
    scene.server.does.before[PATH[CODEX]] = [failing(503)]
    with caplog.at_level(logging.WARNING):
        access = await scene.source().access()
    assert access.token in scene.server.secrets
    assert "still counts" in caplog.text
    assert not any(secret in caplog.text for secret in scene.server.secrets)


async def test_an_account_without_copilot_need_not_log_in_again(scene: Scene) -> None:
    scene.server.does.no_copilot = True
    with pytest.raises(LoginError, match=r"no access to Copilot \(No access to GitHub Copilot found") as told:
        await scene.source(COPILOT).access()
    assert not isinstance(told.value, NotLoggedInError)
    scene.server.does.before[PATH[COPILOT]] = [failing(403, "{}", **{"X-RateLimit-Remaining": "0"})]
    with pytest.raises(ProviderError):
        await scene.source(COPILOT).access()


async def test_without_a_login_there_is_no_request(scene: Scene) -> None:
    await asyncio.to_thread(scene.store.remove, CODEX)
    with pytest.raises(NotLoggedInError, match="there is no login"):
        await scene.source().access()
    assert scene.server.requests == []


async def test_tokens_never_go_to_another_server_than_the_one_that_gave_them(scene: Scene) -> None:
    kept = await asyncio.to_thread(scene.kept)
    elsewhere = replace(kept, more={"issuer": "https://auth.openai.com"})
    await asyncio.to_thread(scene.store.write, elsewhere)
    scene.later(hours=2)
    with pytest.raises(NotLoggedInError, match=r"made at https://auth\.openai\.com, and loginUrl leads elsewhere now"):
        await scene.source().access()
    assert scene.server.requests == []


async def test_what_another_process_wrote_is_used_and_a_logout_too(scene: Scene) -> None:
    source = scene.source()
    old = await source.access()
    tokens = scene.server.codex_login()
    kept = await asyncio.to_thread(scene.kept)
    other = replace(kept, access_token=tokens["access_token"], refresh_token=tokens["refresh_token"])
    await asyncio.to_thread(scene.store.write, other)
    assert (await source.access(refused=old)).token == tokens["access_token"]
    assert scene.server.requests == []
    await asyncio.to_thread(scene.store.remove, CODEX)
    with pytest.raises(NotLoggedInError):
        await source.access()


async def test_one_who_is_cancelled_does_not_break_off_the_renewal_of_the_others(scene: Scene) -> None:
    scene.later(hours=2)
    source, held = scene.source(), Held()
    scene.server.does.before[PATH[CODEX]] = [held]
    first, second = asyncio.create_task(source.access()), asyncio.create_task(source.access())
    await held.come.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    held.go.set()
    assert (await second).token
    assert scene.server.renewals == 1


async def test_the_last_one_who_is_cancelled_waits_for_the_new_token_to_be_kept(scene: Scene) -> None:
    """Its answer would be lost, and with it the login."""
    scene.later(hours=2)
    source, held = scene.source(), Held()
    before = await asyncio.to_thread(scene.kept)

    scene.server.does.before[PATH[CODEX]] = [held]
    task = asyncio.create_task(source.access())
    await held.come.wait()
    task.cancel()
    await asyncio.sleep(0.05)
    assert not task.done()
    held.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await asyncio.to_thread(scene.kept)).refresh_token != before.refresh_token
    assert (await source.access()).token
    scene.server.check()


async def test_cancelling_twice_ends_it_at_once_and_nothing_stays_behind(scene: Scene) -> None:
    scene.later(hours=2)
    source, held = scene.source(), Held()
    scene.server.does.before[PATH[CODEX]] = [held]
    others = asyncio.all_tasks()
    task = asyncio.create_task(source.access())
    await held.come.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await task
    ours = [one for one in asyncio.all_tasks() - others if "_renewed" in repr(one)]
    await asyncio.wait([*ours, asyncio.ensure_future(asyncio.sleep(0))])
    assert all(one.done() for one in ours)
    assert (await source.access()).token


async def test_a_disk_that_is_full_for_a_while_costs_no_login(scene: Scene) -> None:
    """The old refresh token is spent: the new one goes on in memory until it can be kept."""
    scene.later(hours=2)
    full = True
    write = scene.store.write

    class Full(LoginStore):
        def write(self, login: Login) -> None:
            if full:
                raise LoginError("the disk is full")
            write(login)

    scene.store = Full(scene.store.folder.parent)
    source = scene.source()
    for _ in range(2):
        with pytest.raises(LoginError, match="the disk is full"):
            await source.access()
    full = False
    access = await source.access()
    assert (await asyncio.to_thread(scene.kept)).access_token == access.token
    assert scene.server.renewals == 1
    scene.server.check()


async def test_the_waits_are_what_they_are_meant_to_be() -> None:
    assert renewing.GRACE_S < 10
    assert timedelta(minutes=2) <= renewing.AHEAD <= timedelta(minutes=10)
    assert "kelp" not in repr(Access(token="kelp-and-driftwood"))
