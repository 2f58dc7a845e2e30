"""The library litellm, made to do what it is asked and nothing else (PROV-04, SEC-01, SEC-03).

Left to itself it downloads a price list when it is imported and tokenizers when a model's name looks like Llama, reads
``.env`` files into the environment, prints advice, and writes prompts and keys to its log.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import threading
import warnings
from typing import Any

from bubbles.config.load import set_for_library

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_OFFLINE_MODE": "true",
    "LITELLM_MODE": "PRODUCTION",  # otherwise it loads .env files
}
"""It looks at these while it is imported, so that there is no other way to tell it."""
_SILENT = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "openai")
_SETTINGS = {
    "suppress_debug_info": True,
    "telemetry": False,
    "set_verbose": False,
    "num_retries": None,
    "disable_hf_tokenizer_download": True,
    "disable_token_counter": True,  # what the provider did not count is not counted
    "disable_streaming_logging": True,
    "turn_off_message_logging": True,
    "redact_messages_in_exceptions": True,
    "route_all_chat_openai_to_responses": False,
    "use_litellm_proxy": False,
    "headers": None,
    "api_base": None,
    "api_key": None,
    "organization": None,
    "model_fallbacks": None,
    "cache": None,
}
_CALLBACKS = ("callbacks", "input_callback", "success_callback", "failure_callback", "service_callback")

_OF_ITS_OWN_CODE = (
    "Accessing the .*attribute on the instance is deprecated",
    ".*`ReadOnly` qualifier",
    ".*conflict with protected namespace",
)
"""Warnings that it gives of itself, with every piece of a reply."""
_library: Any = None
_importing = threading.Lock()


async def library() -> Any:
    """The module. The first time takes seconds and 190 MiB; the event loop goes on meanwhile."""
    if _library is None:
        await asyncio.to_thread(_import)
    known = {found[1].pattern for found in warnings.filters if found[1] is not None}
    for message in _OF_ITS_OWN_CODE:
        if message not in known:
            warnings.filterwarnings("ignore", message=message)
    return _library


def _import() -> None:
    global _library
    with _importing:  # a turn's request may come while the import that was begun ahead goes on
        if _library is None:
            _library = _imported()


def _imported() -> Any:
    for variable, text in _ENVIRONMENT.items():
        set_for_library(variable, text)
    module = importlib.import_module("litellm")
    for name, value in _SETTINGS.items():
        setattr(module, name, value)
    for name in _CALLBACKS:
        setattr(module, name, [])
    for name in _SILENT:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.setLevel(logging.CRITICAL + 1)
        logger.propagate = False
    for name in ("httpx", "httpcore"):  # they log addresses, in which a person may have put a key
        logging.getLogger(name).setLevel(logging.WARNING)
    importlib.import_module("litellm.main")
    clients = importlib.import_module("litellm.llms.custom_httpx.http_handler")
    from bubbles.providers.by_litellm.transport import CurrentPassage, OneClient

    client = clients.AsyncHTTPHandler(transport=CurrentPassage(), follow_redirects=False)
    setattr(module, "in_memory_llm_clients_cache", OneClient(client))  # noqa: B010
    return module


def without_bookkeeping(stream: Any) -> None:
    """Its records of costs and outcomes go nowhere here, and making them takes time on the event loop."""
    for name in ("dispatch_success_handlers", "dispatch_attempt_failure_handlers"):
        setattr(stream.logging_obj, name, _nothing)


async def _nothing(*_: object, **__: object) -> None:
    return None
