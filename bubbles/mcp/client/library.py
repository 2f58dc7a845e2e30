"""The official SDK, made to do what it is asked and nothing else (SEC-03).

Left to itself it logs what servers say with stack traces, to loggers that write to stderr where nobody set them up, and
makes spans for OpenTelemetry, which sends them wherever the environment says.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import threading
from typing import TYPE_CHECKING

from bubbles.config.load import set_for_library

if TYPE_CHECKING:
    from bubbles.mcp.client.session import McpSession

_SILENT = ("mcp", "client", "httpx2", "httpcore2", "opentelemetry")
"""``client`` is what the SDK calls one of its loggers; httpx2 logs addresses, in which a person may have put a key."""
_importing = threading.Lock()
_silenced = False


async def speaking() -> type[McpSession]:
    """What speaks with a server. The first time takes half a second, in a thread."""
    return await asyncio.to_thread(_imported)


def _imported() -> type[McpSession]:
    global _silenced
    with _importing:
        if not _silenced:
            _silence()
            _silenced = True
        module = importlib.import_module("bubbles.mcp.client.session")
    found: type[McpSession] = module.McpSession
    return found


def _silence() -> None:
    set_for_library("OTEL_PROPAGATORS", "none")  # read while it is imported; a name it does not know would stop that
    for name in _SILENT:
        logger = logging.getLogger(name)
        logger.setLevel(logging.CRITICAL + 1)
        logger.propagate = False
    from opentelemetry import trace

    trace.set_tracer_provider(trace.NoOpTracerProvider())
