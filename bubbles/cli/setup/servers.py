"""Asks an Ollama and a vLLM on this machine which models they have (SEC-01: nobody else is asked unbidden).

Anything may listen on those ports. Each answer is bounded in size and time, goes through no proxy, is followed nowhere,
and names in it that no configuration should hold are left out: ``${VAR}`` in one would be read as a reference.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bubbles.providers.proxies import is_loopback
from bubbles.providers.registry import REGISTRY

if TYPE_CHECKING:
    from aiohttp import ClientSession

WITHIN_S = 1.5
"""For all questions together: a person waits."""
PATIENT_S = 10.0
"""For a server that the person has chosen."""
MAX_BYTES = 1 << 20
MAX_MODELS = 100
MAX_ASKED = 12
"""Models of Ollama whose capabilities are asked for."""
MOST_CONTEXT = 1 << 30
OLLAMA_PORT = 11434
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
"""Of a model."""
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model that a server has."""

    name: str
    tools: bool | None = None
    """Whether it can call tools; None: not known."""
    remote: bool = False
    """Ollama hands its requests on to another machine."""
    context_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    ollama: tuple[Served, ...] = ()
    vllm: tuple[Served, ...] = ()


def ollama_address(told: str | None) -> str | None:
    """What ``OLLAMA_HOST`` means to Ollama's own programs, as an address; None if it says nothing usable."""
    text = (told or "").strip().strip("\"'")
    if not text or "@" in text or "$" in text:
        return None
    scheme, there, rest = text.rpartition("://")
    scheme = scheme.lower() if there else "http"
    usual = {"http": 80 if there else OLLAMA_PORT, "https": 443}.get(scheme)
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname or "", parts.port or usual
    except ValueError:
        return None
    host = _ANY_ADDRESS.get(host, host)
    if usual is None or not _HOST.fullmatch(host) or parts.path.strip("/"):
        return None
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def is_here(address: str) -> bool:
    """Whether it is on this machine, by its text: no name is looked up."""
    try:
        return is_loopback(urlsplit(address).hostname or "")
    except ValueError:
        return False


def usual(provider: str) -> str:
    """Where a server of one's own is, unless somebody said otherwise."""
    address = REGISTRY[provider].base_url
    assert address is not None
    return address


async def look(ollama: str | None, vllm: str | None, *, within_s: float = WITHIN_S) -> Found:
    """What those two addresses have; None is not asked. Never raises: what does not answer in time is not there."""
    async with _session() as session, asyncio.TaskGroup() as group:
        deadline = asyncio.get_running_loop().time() + within_s
        asked = _Asked(session, deadline)
        first = group.create_task(_of_ollama(asked, ollama))
        second = group.create_task(_of_vllm(asked, vllm))
    return Found(ollama=first.result(), vllm=second.result())


async def context_of(provider: str, address: str, model: str) -> int | None:
    """How long a request the server really takes with this model, now that it is loaded."""
    async with _session() as session:
        asked = _Asked(session, asyncio.get_running_loop().time() + WITHIN_S)
        if provider == "vllm":
            return next((each.context_tokens for each in await _of_vllm(asked, address) if each.name == model), None)
        running = _listed(await asked.get(f"{_root(address)}/api/ps"), "models")
        return next((_context(each.get("context_length")) for each in running if each.get("name") == model), None)


async def _of_ollama(asked: _Asked, address: str | None) -> tuple[Served, ...]:
    if address is None:
        return ()
    root = _root(address)
    models = [
        Served(name=name, remote=bool(each.get("remote_host") or each.get("remote_model")) or name.endswith("cloud"))
        for each in _listed(await asked.get(f"{root}/api/tags"), "models")
        if (name := _name(each.get("name"))) is not None
    ]
    async with asyncio.TaskGroup() as group:
        shown = [
            group.create_task(asked.post(f"{root}/api/show", {"model": model.name})) for model in models[:MAX_ASKED]
        ]
    told = [_tools(task.result()) for task in shown]
    return tuple(
        replace(model, tools=tools) for model, tools in zip(models, [*told, *[None] * len(models)], strict=False)
    )


async def _of_vllm(asked: _Asked, address: str | None) -> tuple[Served, ...]:
    if address is None:
        return ()
    return tuple(
        Served(name=name, context_tokens=_context(each.get("max_model_len")))
        for each in _listed(await asked.get(f"{_root(address)}/v1/models"), "data")
        if (name := _name(each.get("id"))) is not None
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """Questions with one deadline."""

    session: ClientSession
    deadline: float

    async def get(self, url: str) -> object:
        return await self._answer("GET", url, None)

    async def post(self, url: str, body: Mapping[str, Any]) -> object:
        return await self._answer("POST", url, body)

    async def _answer(self, method: str, url: str, body: Mapping[str, Any] | None) -> object:
        """The JSON of a good answer, else None."""
        from aiohttp import ClientError
        from aiohttp.http_exceptions import HttpProcessingError

        data = b""
        try:
            async with (
                asyncio.timeout_at(self.deadline),
                self.session.request(method, url, json=body, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    return None
                async for piece in response.content.iter_chunked(65_536):
                    data += piece
                    if len(data) > MAX_BYTES:
                        return None
            return json.loads(data)
        except (ClientError, HttpProcessingError, OSError, ValueError, RecursionError):
            return None


@asynccontextmanager
async def _session() -> AsyncIterator[ClientSession]:
    aiohttp = await asyncio.to_thread(importlib.import_module, "aiohttp")  # a tenth of a second
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=PATIENT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        headers={"Accept": "application/json", "Accept-Encoding": "identity"},
    ) as session:
        yield session


def _root(address: str) -> str:
    """``http://localhost:11434/v1`` without the path of the API, and without a name to look up for this machine."""
    root = address.rstrip("/").removesuffix("/v1")
    return re.sub(r"^(https?://)localhost(?=[:/]|$)", r"\g<1>127.0.0.1", root)


def _listed(answer: object, name: str) -> list[dict[str, Any]]:
    held = answer.get(name) if isinstance(answer, dict) else None
    return [each for each in held[:MAX_MODELS] if isinstance(each, dict)] if isinstance(held, list) else []


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and NAME.fullmatch(value) else None


def _tools(answer: object) -> bool | None:
    told = answer.get("capabilities") if isinstance(answer, dict) else None
    return "tools" in told if isinstance(told, list) else None


def _context(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST_CONTEXT else None
