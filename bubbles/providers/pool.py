"""The providers that this process talks to: one for each choice, made when it is first wanted, closed at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bubbles.config.schema import Settings
from bubbles.providers.contract import Provider
from bubbles.providers.select import Choice, choose

if TYPE_CHECKING:
    from bubbles.providers.logins.contract import AccessSource


class ProviderPool:
    """Use as an async context. ``instead`` stands for whatever the settings would choose: a script needs no key.

    ``on_secret`` is told of each token of a login before it is used, so that no log has it.
    """

    def __init__(
        self,
        settings: Settings,
        instead: Provider | None = None,
        on_secret: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._instead = instead
        self._on_secret = on_secret
        self._made: dict[str, Provider] = {}
        self._warming: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with AsyncExitStack() as stack:  # each is closed, whatever becomes of the others
            for provider in self._made.values():
                stack.push_async_callback(provider.aclose)
            if self._warming is not None:
                await asyncio.wait({self._warming})

    def warm(self, choice: Choice) -> None:
        """A turn with this choice begins: import what its request needs while other things are made ready."""
        from bubbles.providers.build import warm

        if self._instead is None and self._warming is None and choice.provider not in self._made:
            self._warming = asyncio.create_task(warm(choice))

    def choose(self, model: str | None, provider: str | None) -> Choice:
        """As ``select.choose``."""
        if self._instead is None:
            return choose(self._settings, model=model, provider=provider)
        name = model or self._instead.name
        return Choice(provider=self._instead.name, model=name, model_given=name, reason="this program brings it")

    def of(self, choice: Choice) -> Provider:
        if self._instead is not None:
            return self._instead
        if choice.provider not in self._made:
            from bubbles.providers.build import provider_for  # a script needs none of it

            self._made[choice.provider] = provider_for(self._settings, choice, self._login)
        return self._made[choice.provider]

    def _login(self, provider: str) -> AccessSource:
        from bubbles.providers.logins.source import source_for

        return source_for(self._settings, provider, on_secret=self._on_secret)
