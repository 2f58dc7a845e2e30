"""One real request, through the same path as every turn's, to see that the model answers and takes tools (PROV-09)."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from bubbles.cli.setup.contract import Answered, Refused
from bubbles.errors import BubblesError

if TYPE_CHECKING:
    from bubbles.config.schema import Settings
    from bubbles.providers.contract import ModelRequest
    from bubbles.providers.select import Choice

WITHIN_S = 30.0
LOADING_S = 90.0
"""For a server of one's own, which may have to load the model first."""
SYSTEM = "You are being tried out. The tool need not be used."
TEXT = "Reply with the word OK and nothing else."
MAX_WORDS = 300
"""Characters of what a vendor says."""


async def ask_once(settings: Settings) -> Answered | Refused:
    """Ask the model of these settings for one word, once, with a tool on offer."""
    from bubbles.cli.setup.looking import address_of
    from bubbles.cli.setup.servers import context_of, is_here
    from bubbles.providers.build import make_provider, warm
    from bubbles.providers.contract import Category, ProviderError
    from bubbles.providers.registry import REGISTRY, Kind
    from bubbles.providers.select import choose

    try:
        choice = choose(settings)
        provider = make_provider(choice, settings)
    except BubblesError as error:
        return Refused(category=None, words=_short(error))
    own = REGISTRY[choice.provider].kind is Kind.OWN
    within_s = LOADING_S if own else WITHIN_S
    try:
        await warm(choice)
        began = time.monotonic()
        async with asyncio.timeout(within_s):
            await provider.complete(_request(choice))
        seconds = time.monotonic() - began
    except TimeoutError:
        return Refused(category=Category.UNAVAILABLE, words=f"no answer within {within_s:g} s")
    except ProviderError as error:
        return Refused(category=error.category, words=_short(error))
    except BubblesError as error:
        return Refused(category=None, words=_short(error))
    finally:
        await provider.aclose()
    context = None
    if choice.provider in ("ollama", "vllm") and is_here(address := address_of(settings, choice.provider)):
        context = await context_of(choice.provider, address, choice.model)
    return Answered(seconds=seconds, context_tokens=context)


def _request(choice: Choice) -> ModelRequest:
    from bubbles.providers.contract import ModelRequest, ToolSpec, UserMessage

    text = {"type": "string", "description": "What to write down."}
    tool = ToolSpec(
        name="note",
        description="Writes a line down.",
        parameters={"type": "object", "properties": {"text": text}, "required": ["text"]},
    )
    return ModelRequest(model=choice.model, system=SYSTEM, messages=(UserMessage(text=TEXT),), tools=(tool,))


def _short(error: Exception) -> str:
    text = str(error)
    return text if len(text) <= MAX_WORDS else f"{text[: MAX_WORDS - 1]}…"


class Warming:
    """Imports meanwhile what nearly every provider's first request needs: seconds, while the person reads.

    A thread of its own, not one that an event loop would wait for: whoever leaves need not sit through an import.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=_import, name="warming", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Until it is there, if it was begun. Ctrl-C ends the waiting."""
        if self._thread is not None:
            self._thread.join()

    def abandon(self, status: int) -> None:
        """Ends the program at once if the import goes on, else returns.

        An interpreter that shuts down under it would stop it in the middle of compiled code that is being loaded, which
        some of it answers with an abort.
        """
        if self._thread is not None and self._thread.is_alive():
            sys.stdout.flush()
            os._exit(status)


def _import() -> None:
    from bubbles.providers.by_litellm.library import library

    try:
        asyncio.run(library())
    except Exception:  # noqa: BLE001 - an edge: the request itself meets the same fault, and says it
        pass
