"""Every model provider by name (PROV-01): what kind it is, how a model's name leads to it, where its API is.

The names are those of SPEC 6.2 and of ``ProvidersSettings``; a test holds the three together. Nothing heavy is
imported here: choosing a provider costs nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


class Kind(enum.Enum):
    VENDOR = "vendor"
    """Offers models under its own key."""
    GATEWAY = "gateway"
    """Passes requests on to the models of others."""
    OWN = "own"
    """A server of the person's own."""
    LOGIN = "login"
    """No key but a login by browser (PROV-03)."""


class Wire(enum.Enum):
    """The family of its HTTP API."""

    OPENAI = "openai"
    RESPONSES = "responses"
    """OpenAI's newer one."""
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    name: str
    kind: Kind
    base_url: str | None = None
    """Up to where the API's own paths begin. None: there is no usual one."""
    elsewhere: str | None = None
    """The same service for another region, whose keys are others."""
    key_variable: str | None = None
    """Where people usually keep the key, for help texts: it is read only through ``${…}`` in the configuration."""
    other_variables: tuple[str, ...] = ()
    """Where else people keep it."""
    default_model: str | None = None
    """What ``bubbles onboard`` offers: current, capable, and known to call tools. As of November 2026, by the vendors'
    pages and litellm's list. None: only its server knows."""
    needs_key: bool = True
    keywords: tuple[str, ...] = ()
    """Beginnings of words in the names of its models, in small letters."""
    prefixes: tuple[str, ...] = ()
    """What else may stand before ``/`` for it."""
    litellm: str | None = None
    """What the library calls it. None: it does not go that way (PROV-04)."""
    wire: Wire = Wire.OPENAI
    max_tools: int | None = 128
    """Of one request; OpenAI refuses more, and so do most who speak like it or pass requests on. None: there is no
    such number, or none that matters."""


_VENDORS = (
    Entry(
        name="anthropic",
        max_tools=None,
        kind=Kind.VENDOR,
        base_url="https://api.anthropic.com",
        key_variable="ANTHROPIC_API_KEY",
        default_model="claude-sonnet-5-5",
        keywords=("claude",),
        litellm="anthropic",
        wire=Wire.ANTHROPIC,
    ),
    Entry(
        name="openai",
        kind=Kind.VENDOR,
        base_url="https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        default_model="gpt-6.1-sol",
        keywords=("gpt-", "chatgpt-", "o1", "o3", "o4-mini", "codex-"),
        litellm="openai",
    ),
    Entry(
        name="gemini",
        max_tools=None,
        kind=Kind.VENDOR,
        base_url="https://generativelanguage.googleapis.com/v1beta",
        key_variable="GEMINI_API_KEY",
        other_variables=("GOOGLE_API_KEY",),
        default_model="gemini-3.8-flash",  # free keys have it too
        keywords=("gemini",),
        prefixes=("google",),
        litellm="gemini",
        wire=Wire.GEMINI,
    ),
    Entry(
        name="deepseek",
        kind=Kind.VENDOR,
        base_url="https://api.deepseek.com",
        key_variable="DEEPSEEK_API_KEY",
        default_model="deepseek-flash",
        keywords=("deepseek",),
        litellm="deepseek",
    ),
    Entry(
        name="groq",
        kind=Kind.VENDOR,
        base_url="https://api.groq.com/openai/v1",
        key_variable="GROQ_API_KEY",
        default_model="openai/gpt-oss-120b",
        litellm="groq",  # no keywords: it hosts open models, which others host too
    ),
    Entry(
        name="moonshot",
        kind=Kind.VENDOR,
        base_url="https://api.moonshot.ai/v1",
        elsewhere="https://api.moonshot.cn/v1",
        key_variable="MOONSHOT_API_KEY",
        other_variables=("KIMI_API_KEY",),
        default_model="kimi-k3.1-pro",
        keywords=("moonshot", "kimi"),
        prefixes=("moonshotai",),
        litellm="moonshot",
    ),
    Entry(
        name="minimax",
        kind=Kind.VENDOR,
        base_url="https://api.minimax.io/v1",
        elsewhere="https://api.minimaxi.com/v1",
        key_variable="MINIMAX_API_KEY",
        default_model="MiniMax-M3",
        keywords=("minimax", "abab"),
        litellm="minimax",
    ),
    Entry(
        name="zhipu",
        kind=Kind.VENDOR,
        base_url="https://open.bigmodel.cn/api/paas/v4",
        elsewhere="https://api.z.ai/api/paas/v4",
        key_variable="ZHIPUAI_API_KEY",
        other_variables=("ZHIPU_API_KEY", "ZAI_API_KEY", "Z_AI_API_KEY"),
        default_model="glm-5.3",
        keywords=("glm", "zhipu"),
        prefixes=("zai", "z-ai", "zhipuai"),
        litellm="zai",
    ),
    Entry(
        name="dashscope",
        kind=Kind.VENDOR,
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        elsewhere="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key_variable="DASHSCOPE_API_KEY",
        other_variables=("QWEN_API_KEY",),
        default_model="qwen3.8-max",
        keywords=("qwen", "qwq", "qvq"),
        litellm="dashscope",
    ),
)

_GATEWAYS = (
    Entry(
        name="openrouter",
        kind=Kind.GATEWAY,
        base_url="https://openrouter.ai/api/v1",
        key_variable="OPENROUTER_API_KEY",
        default_model="anthropic/claude-sonnet-5.5",
        litellm="openrouter",
    ),
    Entry(
        name="aihubmix",
        kind=Kind.GATEWAY,
        base_url="https://aihubmix.com/v1",
        key_variable="AIHUBMIX_API_KEY",
        default_model="claude-sonnet-5",
        litellm="aihubmix",
    ),
    Entry(
        name="siliconflow",
        kind=Kind.GATEWAY,
        base_url="https://api.siliconflow.cn/v1",
        elsewhere="https://api.siliconflow.com/v1",
        key_variable="SILICONFLOW_API_KEY",
        default_model="deepseek-ai/DeepSeek-V4-Pro",
        litellm="custom_openai",
    ),
    Entry(
        name="volcengine",
        kind=Kind.GATEWAY,
        base_url="https://ark.cn-beijing.volces.com/api/v3",
        key_variable="ARK_API_KEY",
        other_variables=("VOLCENGINE_API_KEY", "VOLCANO_ENGINE_API_KEY"),
        default_model="doubao-seed-2-1-pro-260915",
        keywords=("doubao",),
        litellm="volcengine",
    ),
)

_OWN = (
    Entry(name="custom", kind=Kind.OWN, needs_key=False, max_tools=None),
    # By its OpenAI-compatible address: the library asks the server about the model, in between, by the other one.
    Entry(
        name="ollama",
        max_tools=None,
        kind=Kind.OWN,
        base_url="http://localhost:11434/v1",
        needs_key=False,
        litellm="custom_openai",
    ),
    Entry(
        name="vllm",
        max_tools=None,
        kind=Kind.OWN,
        base_url="http://localhost:8000/v1",
        needs_key=False,
        litellm="hosted_vllm",
    ),
)

_LOGINS = (
    Entry(
        name="openai_codex",
        kind=Kind.LOGIN,
        base_url="https://chatgpt.com/backend-api/codex",
        default_model="gpt-6.1-sol",
        needs_key=False,
        wire=Wire.RESPONSES,
    ),
    Entry(
        name="github_copilot",
        kind=Kind.LOGIN,
        base_url="https://api.githubcopilot.com",  # unless the login says otherwise
        default_model="claude-sonnet-5.5",
        needs_key=False,
    ),
)

REGISTRY: Mapping[str, Entry] = MappingProxyType(
    {entry.name: entry for entry in (*_VENDORS, *_GATEWAYS, *_OWN, *_LOGINS)}
)

NOBODYS = ("gpt-oss",)
"""Open models whose names look like a vendor's: no keyword counts in them."""


def names() -> tuple[str, ...]:
    """Of all providers."""
    return tuple(REGISTRY)


def spelled(name: str) -> str:
    """A provider's name as a person may write it, in the registry's spelling: ``OpenAI-Codex`` is ``openai_codex``."""
    return name.strip().lower().replace("-", "_")


def of_prefix(prefix: str) -> Entry | None:
    """The provider that is meant by what stands before a model's first ``/``."""
    known = REGISTRY.get(spelled(prefix))
    if known is not None:
        return known
    wanted = prefix.strip().lower()
    return next((entry for entry in REGISTRY.values() if wanted in entry.prefixes), None)
