"""Requests that are made with a login (PROV-03)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bubbles.providers.contract import Category, ModelReply, ProviderError
from bubbles.providers.logins.contract import Access, AccessSource, LoginBusyError, LoginError, NotLoggedInError

UNAUTHORIZED = 401


class Admission:
    """Gives each request a token, and a new one, once, if the server turns the first down."""

    def __init__(self, provider: str, source: AccessSource) -> None:
        self._provider = provider
        self._source = source

    async def admitted(self, send: Callable[[Access], Awaitable[ModelReply]]) -> ModelReply:
        """Raises ``ProviderError``; if the login is what is wrong its ``mend`` says what to do."""
        access = await self._access()
        try:
            return await send(access)
        except ProviderError as error:
            if error.status != UNAUTHORIZED:
                raise
            refusal = error
        renewed = await self._access(refused=access)
        if renewed.token == access.token:
            raise self._hopeless(refusal)
        try:
            return await send(renewed)
        except ProviderError as error:
            raise self._hopeless(error) if error.status == UNAUTHORIZED else error from None

    async def _access(self, refused: Access | None = None) -> Access:
        try:
            return await self._source.access(refused=refused)
        except LoginError as error:
            busy = isinstance(error, LoginBusyError)
            failure = ProviderError(Category.UNAVAILABLE if busy else Category.AUTHENTICATION, str(error))
            failure.mend = str(error)
        raise failure

    def _hopeless(self, error: ProviderError) -> ProviderError:
        error.mend = str(NotLoggedInError(self._provider, "the server does not accept the login"))
        return error
