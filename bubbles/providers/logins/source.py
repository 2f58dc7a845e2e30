"""Tokens that count, renewed ahead of their end: once, however many ask, in however many processes.

A refresh token of OpenAI counts once, and a second use of it ends the login. So a renewal is done alone among all
processes (``LoginStore.alone``), begins with what another one may have written meanwhile, ends with what it got on the
disk, and is not broken off because one of those who wait for it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from bubbles.config.schema import Settings
from bubbles.providers.contract import ProviderError
from bubbles.providers.logins.codex import CodexVendor
from bubbles.providers.logins.contract import (
    ISSUER,
    Access,
    AccessSource,
    Login,
    NotLoggedInError,
)
from bubbles.providers.logins.copilot import CopilotVendor
from bubbles.providers.logins.issuers import CODEX, COPILOT, codex_issuer, copilot_issuer
from bubbles.providers.logins.store import LoginStore
from bubbles.providers.logins.web import Web

AHEAD = timedelta(minutes=5)
"""So long before its end a token is renewed; or a fifth of its life before, if that is shorter."""
YOUNG = timedelta(seconds=30)
"""If a token that replaced a refused one is refused too while it is newer than this, tokens are not the reason."""
GRACE_S = 5.0
"""That whoever is cancelled gives a renewal under way."""
_log = logging.getLogger(__name__)


class Vendor(Protocol):
    provider: str
    issuer: str
    """Who gives the tokens, and gets them."""

    async def renewed(self, web: Web, login: Login, now: datetime) -> Login: ...


class LoginSource:
    """An ``AccessSource``, for one event loop."""

    def __init__(
        self,
        store: LoginStore,
        vendor: Vendor,
        *,
        environment: Mapping[str, str],
        on_secret: Callable[[str], None] = lambda _: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``environment``: where proxies are named. ``on_secret`` is told of each token before it is used or kept, so
        that no log has it; called on the event loop. ``now`` gives aware times.
        """
        self._store = store
        self._vendor = vendor
        self._environment = environment
        self._on_secret = on_secret
        self._now = now
        self._flight = _Flight()
        self._known = ""
        self._replacement = ""
        self._spent = ""
        self._unsaved: tuple[str, Login] | None = None

    async def access(self, *, refused: Access | None = None) -> Access:
        """As in ``AccessSource``."""
        login = await self._read()
        if self._counts(login, refused):
            return self._access(login)
        try:
            return self._access(await self._flight.result(lambda: self._renewed(refused)))
        except ProviderError as error:
            if refused is None and error.retryable and _lasts(login, self._now()):
                _log.warning("%s: the token cannot be renewed yet, and still counts: %s", login.provider, error)
                return self._access(login)
            raise

    async def _read(self) -> Login:
        login = await asyncio.to_thread(self._store.read, self._vendor.provider)
        if login is None:
            raise NotLoggedInError(self._vendor.provider)
        made_at = login.more.get(ISSUER, self._vendor.issuer)
        if made_at != self._vendor.issuer:
            raise NotLoggedInError(login.provider, f"the login was made at {made_at}, and loginUrl leads elsewhere now")
        return login

    def _counts(self, login: Login, refused: Access | None) -> bool:
        now = self._now()
        if not login.access_token:
            return False
        if refused is not None and refused.token == login.access_token:
            young = login.renewed_at is not None and timedelta(0) <= now - login.renewed_at < YOUNG
            return young and login.access_token == self._replacement
        return _fresh(login, now)

    async def _renewed(self, refused: Access | None) -> Login:
        async with self._store.alone(self._vendor.provider):
            login = await self._read()
            if self._unsaved is not None and self._unsaved[0] == login.refresh_token:
                login = self._unsaved[1]
                await self._kept(login)
            if self._counts(login, refused):
                return login
            if login.refresh_token == self._spent:
                raise NotLoggedInError(login.provider, "the login no longer counts")
            with self._flight.not_to_be_broken_off():
                try:
                    async with Web(self._environment) as web:
                        renewed = await self._vendor.renewed(web, login, self._now())
                except NotLoggedInError:
                    self._spent = login.refresh_token
                    other = (
                        await self._read()
                    )  # where the file system has no locks, another process may have been at it
                    if other.refresh_token == login.refresh_token or not self._counts(other, refused):
                        raise
                    return other
                self._unsaved = (login.refresh_token, renewed)
                self._tell(renewed)
                if refused is not None:
                    self._replacement = renewed.access_token
                await self._kept(renewed)
                return renewed

    async def _kept(self, login: Login) -> None:
        """If the disk is full the login goes on in memory, and is written as soon as that can be done."""
        await asyncio.to_thread(self._store.write, login)
        self._unsaved = None

    def _access(self, login: Login) -> Access:
        self._tell(login)
        return Access(token=login.access_token, account=login.account, more=login.more)

    def _tell(self, login: Login) -> None:
        if login.access_token != self._known:
            for secret in login.secrets:
                self._on_secret(secret)
            self._known = login.access_token


class _Flight:
    """One renewal, for all who wait for it."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Login] | None = None
        self._waiting = 0
        self._delicate = False

    async def result(self, begin: Callable[[], Coroutine[Any, Any, Login]]) -> Login:
        task = self._task
        if task is None:
            task = self._task = asyncio.create_task(begin())
            task.add_done_callback(self._landed)
        self._waiting += 1
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._waiting == 1 and self._delicate:
                await asyncio.wait({task}, timeout=GRACE_S)
            raise
        finally:
            self._waiting -= 1
            if not self._waiting and self._task is task:
                self._task = None
                task.cancel()

    @contextmanager
    def not_to_be_broken_off(self) -> Iterator[None]:
        """While the vendor may have taken the old token and the new one is not on the disk."""
        self._delicate = True
        try:
            yield
        finally:
            self._delicate = False

    def _landed(self, task: asyncio.Task[Login]) -> None:
        if self._task is task:
            self._task = None
        if not task.cancelled():
            task.exception()  # those who waited have it, if any still do


def source_for(settings: Settings, provider: str, *, on_secret: Callable[[str], None] = lambda _: None) -> AccessSource:
    """Of ``openai_codex`` or ``github_copilot``. Nothing is read yet. Raises ``ConfigError`` for a bad ``loginUrl``."""
    return LoginSource(
        LoginStore(settings.data_dir),
        vendor_for(settings, provider),
        environment=settings.host_env,
        on_secret=on_secret,
    )


def vendor_for(settings: Settings, provider: str) -> CodexVendor | CopilotVendor:
    """Raises ``ConfigError`` for a bad ``loginUrl``, KeyError for a provider without logins."""
    if provider == CODEX:
        return CodexVendor(codex_issuer(settings))
    if provider == COPILOT:
        return CopilotVendor(copilot_issuer(settings))
    raise KeyError(provider)


def _fresh(login: Login, now: datetime) -> bool:
    if login.expires_at is None:
        return True  # nobody knows: until it is refused
    ahead = AHEAD
    if login.renewed_at is not None:
        ahead = min(ahead, max((login.expires_at - login.renewed_at) / 5, timedelta(0)))
    return now < login.expires_at - ahead


def _lasts(login: Login, now: datetime) -> bool:
    return bool(login.access_token) and (login.expires_at is None or now < login.expires_at)
