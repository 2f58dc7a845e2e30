"""The tools that reach the web: what there is of them depends on the settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bubbles.config.schema import Settings
from bubbles.controller.addresses import AllowList, InvalidSpecError
from bubbles.errors import ConfigError
from bubbles.tools.contract import Tool
from bubbles.tools.web.fetch import WebFetch
from bubbles.tools.web.reach import Reach
from bubbles.tools.web.search import WebSearch


def web_tools(settings: Settings, mask: Callable[[str], str] = str) -> tuple[Tool[Any], ...]:
    """SPEC 6.7. ``mask`` changes a text that holds a key of the owner's: such a text is not sent (SEC-03).

    Raises ``ConfigError`` for an entry of ``tools.web.allow`` that cannot be used.
    """
    web, env = settings.tools.web, settings.host_env
    found: list[Tool[Any]] = []
    if web.search_api_key is not None:
        found.append(WebSearch(web, env, mask))
    if web.fetch:
        try:
            reach = Reach(AllowList.parse(web.allow))
        except InvalidSpecError as error:
            raise ConfigError(f"tools.web.allow: {error}") from None
        found.append(WebFetch(reach, web, env, mask))
    return tuple(found)
