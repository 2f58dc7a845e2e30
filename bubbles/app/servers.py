"""The MCP servers of the configuration, brought together with what starts and reaches them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bubbles.app.gate import Gate, OnWarning, owners_redactor
from bubbles.app.workshop import Workshop, workshop
from bubbles.config.schema import Settings
from sandbox_backends.threads import in_thread

if TYPE_CHECKING:
    from bubbles.bus import Origin
    from bubbles.controller.contract import Workplace
    from bubbles.controller.sandboxes import Sandboxes
    from bubbles.mcp.contract import Servers
    from bubbles.mcp.servers import McpServers
    from bubbles.providers.select import Choice
    from bubbles.tools.mcp import McpTools
    from bubbles.tools.mcp_offer import Budget


@asynccontextmanager
async def mcp_servers(settings: Settings) -> AsyncIterator[Servers]:
    """All servers by themselves, without a gate: for who only asks what tools there are. Those that run in a session's
    sandbox run in one that is thrown away. Raises BubblesError.
    """
    redactor = await asyncio.to_thread(owners_redactor, settings)
    with workshop(settings) as shop:
        async with in_thread(TemporaryDirectory(prefix="bubbles-look-")) as directory, shop.sandboxes() as sandboxes:
            spec = shop.spec(session=None, roots=(Path(directory),))
            place = await asyncio.to_thread(shop.workplace, spec)
            async with servers_of(shop, sandboxes, lambda _: place, redactor.redact) as servers:
                yield servers


def servers_of(
    shop: Workshop, sandboxes: Sandboxes, place_of: Callable[[Origin], Workplace], redact: Callable[[str], str]
) -> McpServers:
    """Enter it: nothing is started before a turn needs it, and everything ends with it."""
    from bubbles.controller.programs import Launcher
    from bubbles.mcp.servers import McpServers

    settings = shop.settings
    starter = Launcher(sandboxes, lambda: shop.backend("local"), place_of)
    return McpServers(settings.tools.mcp_servers, starter, settings.data_dir, env=settings.host_env, redact=redact)


def tools_of(
    servers: Servers,
    opened: Gate,
    settings: Settings,
    place_of: Callable[[Origin], Workplace],
    choice_of: Callable[[Origin], Choice | None],
    on_warning: OnWarning,
) -> McpTools:
    """The tools of the servers, as many of them as a request to the session's provider may have."""
    from bubbles.tools.mcp import McpTools

    budgets = lru_cache(_budget)
    context = settings.agents.defaults.context_tokens

    def budget_of(origin: Origin) -> Budget:
        choice = choice_of(origin)
        return budgets(context, None if choice is None else choice.provider)

    return McpTools(
        servers,
        opened.calls,
        settings.tools.mcp_servers,
        place_of=place_of,
        budget_of=budget_of,
        on_warning=on_warning,
    )


def _budget(context_tokens: int, provider: str | None) -> Budget:
    from bubbles.providers.registry import REGISTRY
    from bubbles.tools.mcp_offer import Budget

    entry = None if provider is None else REGISTRY.get(provider)
    return Budget.within(context_tokens, None if entry is None else entry.max_tools)
