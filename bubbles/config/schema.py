"""Every setting that a person may write, with its default.

In ``config.json`` a name is written ``toolDirs`` or ``tool_dirs``; in the environment
``BUBBLES_TOOLS__SANDBOX__TOOL_DIRS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, SecretStr, ValidationInfo
from pydantic.alias_generators import to_camel
from pydantic.types import PositiveFloat, PositiveInt

PERSON_HOME = "person_home"
"""Key of the validation context under which ``load`` passes what ``~`` means."""


def with_home(path: str, person_home: str) -> str:
    """``~`` by the home that these settings know, which need not be the process's."""
    return person_home + path[1:] if path == "~" or path.startswith("~/") else path


def _expanded(path: object, info: ValidationInfo) -> object:
    return with_home(path, info.context[PERSON_HOME]) if isinstance(path, str) and info.context else path


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("it must be an absolute path")
    return path


AbsolutePath = Annotated[Path, BeforeValidator(_expanded), AfterValidator(_absolute)]


def _empty_is_unset(value: object) -> object:
    return None if isinstance(value, str) and not value.strip() else value


def _sendable(secret: SecretStr) -> SecretStr:
    """Without the line end that a key read from a file has. What cannot be a header would be in a client's error."""
    text = secret.get_secret_value().strip()
    if not (text.isascii() and text.isprintable()):
        raise ValueError("it must be one line of ASCII characters, since it is sent as a header")
    return SecretStr(text)


HeaderValue = Annotated[SecretStr, AfterValidator(_sendable)]
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
"""RFC 9110, 5.6.2."""
Key = Annotated[HeaderValue | None, BeforeValidator(_empty_is_unset)]
PositiveBytes = Annotated[ByteSize, Field(gt=0)]
"""A number of bytes, or text such as ``"512MiB"``."""
Text = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        loc_by_alias=False,
        frozen=True,
        hide_input_in_errors=True,  # what pydantic itself prints of a wrong value may be a key
    )


class DockerSettings(Section):
    url: Text | None = None
    """Address of the engine, such as ``unix:///var/run/docker.sock``; unset is the engine's usual socket."""
    image: Text = "bubbles-sandbox:latest"
    runtime: Text | None = None
    """An OCI runtime that the engine knows, such as ``runsc``."""


class LimitSettings(Section):
    """Ceilings of one session. Unset is the backend's own default; a number that it cannot hold is refused (SBX-08)."""

    memory_bytes: PositiveBytes | None = None
    pids: PositiveInt | None = None
    cpus: PositiveFloat | None = None
    disk_bytes: PositiveBytes | None = None
    tmp_bytes: PositiveBytes | None = None
    open_files: PositiveInt | None = None


class SandboxSettings(Section):
    backend: Text = "local"
    """``local``, ``local_isolated``, ``bubblewrap``, ``docker``, or what an installed package brings (SBX-13)."""
    network: Literal["none", "allowlist", "full"] | None = None
    """Unset is the backend's own default: off in hard sandboxes, the host's in local ones (SBX-07)."""
    allow: tuple[Text, ...] = ()
    """For ``allowlist``: ``host``, ``host:port``, ``*.host``, an address or a range in CIDR form."""
    docker: DockerSettings = DockerSettings()
    tool_dirs: tuple[AbsolutePath, ...] = ()
    """Directories shown read-only in a hard sandbox, such as a toolchain outside /usr."""
    limits: LimitSettings = LimitSettings()


class ApprovalSettings(Section):
    mode: Literal["ask", "trust_sandbox", "deny"] = "ask"
    """What happens to a command that neither the lane nor a rule decides on: ask a person; run it if the sandbox
    enforces file system and network, else ask; or decline it. ``deny`` declines all that would be asked about."""
    timeout_s: Annotated[float, Field(gt=0, le=10**7, allow_inf_nan=False)] = 300.0
    """Seconds that a person has for an answer; after them the command is declined (APPR-02)."""


class ExecSettings(Section):
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    """Seconds that a command has when the model names no limit of its own."""
    max_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 1_800.0
    """The longest limit that the model may name."""
    path: Text | None = None
    """PATH of commands; unset is the sandbox's own."""


class WebSettings(Section):
    """Read by the web tools, which are to come."""

    search_api_key: Key = None


class ToolSettings(Section):
    sandbox: SandboxSettings = SandboxSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    exec: ExecSettings = ExecSettings()
    web: WebSettings = WebSettings()
    result_tokens: Annotated[int, Field(ge=200)] = 8_000
    """Tokens of one tool result that reach the model; past it head and tail are kept, and the whole is put into the
    session's data/ (CORE-07)."""


class AgentDefaults(Section):
    model: Text | None = None
    """Such as ``anthropic/claude-sonnet-4-5``, or a name that a provider knows."""
    provider: Text | None = None
    """A name of SPEC 6.2. Unset: the model's prefix or a keyword in it chooses (PROV-02)."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Unset is the provider's own."""
    max_output_tokens: PositiveInt | None = None
    """Of one reply. Unset is the provider's own."""
    context_tokens: Annotated[int, Field(ge=4_000)] = 128_000
    """How long a request may get before old messages are summarised (CTX-01)."""
    compaction_reserve_tokens: Annotated[int, Field(ge=500)] = 16_000
    """How much of the newest history stays word for word when it is summarised."""
    memory_window_tokens: Annotated[int, Field(ge=100)] = 4_000
    """How much of MEMORY.md, and of SOUL.md, is sent with each request."""
    max_tool_iterations: PositiveInt = 200
    """Replies of the model in one turn (CORE-02)."""
    max_retries: Annotated[int, Field(ge=0, le=20)] = 2
    """How often a request that failed for a passing reason is sent again (PROV-05)."""
    request_timeout_s: Annotated[float, Field(gt=0, le=3_600)] = 120.0
    """Seconds without a byte from the provider after which a request has failed."""
    system_prompt: Text | None = None
    """Added to the global base of the system prompt."""


class AgentSettings(Section):
    defaults: AgentDefaults = AgentDefaults()
    concurrency: PositiveInt | None = None
    """Turns that run at a time. Unset follows from the number of processors (CORE-05)."""


class ProviderSettings(Section):
    api_key: Key = None
    base_url: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = Field(default=None, repr=False)
    """Not shown: it may hold a password, ``https://user:password@host``."""
    extra_headers: Mapping[HeaderName, HeaderValue] = Field(default_factory=dict)
    """Sent with every request, such as an organisation's id."""


class ProvidersSettings(Section):
    """One field a provider; the same names as SPEC 6.2 and ``bubbles.providers.registry`` (PROV-01)."""

    anthropic: ProviderSettings = ProviderSettings()
    openai: ProviderSettings = ProviderSettings()
    gemini: ProviderSettings = ProviderSettings()
    deepseek: ProviderSettings = ProviderSettings()
    groq: ProviderSettings = ProviderSettings()
    moonshot: ProviderSettings = ProviderSettings()
    minimax: ProviderSettings = ProviderSettings()
    zhipu: ProviderSettings = ProviderSettings()
    dashscope: ProviderSettings = ProviderSettings()
    openrouter: ProviderSettings = ProviderSettings()
    aihubmix: ProviderSettings = ProviderSettings()
    siliconflow: ProviderSettings = ProviderSettings()
    volcengine: ProviderSettings = ProviderSettings()
    custom: ProviderSettings = ProviderSettings()
    ollama: ProviderSettings = ProviderSettings()
    vllm: ProviderSettings = ProviderSettings()
    openai_codex: ProviderSettings = ProviderSettings()
    github_copilot: ProviderSettings = ProviderSettings()


class ChannelsSettings(Section):
    session_mode: Literal["channel", "user", "global"] = "channel"
    """What one session is: a chat, a person across channels, or all there is (SESS-02)."""
    identities: Mapping[str, tuple[Text, ...]] = Field(default_factory=dict)
    """For ``user``: a person's name and the ``channel:id`` by which channels know that person."""
    send_progress: bool = True
    """Whether text that the model writes on the way reaches a channel (CORE-04)."""
    send_tool_hints: bool = False
    """Whether tools about to run are named in a channel."""


class GatewaySettings(Section):
    """Read by the gateway, which is to come."""

    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65_535)] = 18_790


class FileSettings(Section):
    """The whole of ``config.json``."""

    agents: AgentSettings = AgentSettings()
    channels: ChannelsSettings = ChannelsSettings()
    providers: ProvidersSettings = ProvidersSettings()
    gateway: GatewaySettings = GatewaySettings()
    tools: ToolSettings = ToolSettings()


class SessionSettings(Section):
    """A session's own ``config.json``: what differs from the defaults (SESS-03)."""

    model: Text | None = None
    provider: Text | None = None
    system_prompt: Text | None = None
    sandbox: Text | None = None
    """The name of a backend."""


class Settings(FileSettings):
    """What a person wrote, and what was found out about the place where the program runs. Paths are absolute."""

    data_dir: Path
    person_home: Path
    host_env: Mapping[str, str] = Field(repr=False, exclude=True)
    """The controller's own environment. It holds keys: never logged, never shown, never passed on whole (SEC-03)."""
    warnings: tuple[str, ...] = ()
    """Sentences about settings that have no effect, such as a misspelt name."""
