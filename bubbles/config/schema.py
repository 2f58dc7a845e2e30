"""Every setting that a person may write, with its default.

In ``config.json`` a name is written ``toolDirs`` or ``tool_dirs``; in the environment
``BUBBLES_TOOLS__SANDBOX__TOOL_DIRS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ByteSize, Field, SecretStr, model_validator
from pydantic.types import PositiveFloat, PositiveInt

from bubbles.config.channels import TelegramSettings
from bubbles.config.values import (
    AbsolutePath,
    HeaderName,
    HeaderValue,
    Key,
    PositiveBytes,
    Section,
    ServerName,
    Text,
    Token,
    VariableName,
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
    """Of ``web_search`` and ``web_fetch`` (TOOL-03)."""

    search_api_key: Key = None
    """Of Tavily; without one there is no web_search."""
    search_url: Annotated[str, Field(pattern=r"^https?://\S+$")] = Field(default="https://api.tavily.com", repr=False)
    """Where the search service is, if not at its usual address."""
    fetch: bool = True
    """Whether there is a web_fetch."""
    allow: tuple[Text, ...] = ()
    """Private addresses that web_fetch may reach all the same: hosts, addresses and ranges as in
    ``tools.sandbox.allow``. Public ones need not be listed."""
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    """Seconds that a search, or a fetch with its redirects, may take."""
    max_bytes: PositiveBytes = ByteSize(5_000_000)
    """Of one page, as it comes and again unpacked."""


class McpServerSettings(Section):
    """One MCP server (TOOL-09): a program that is started (``command``) or an address (``url``)."""

    command: Text | None = None
    args: tuple[str, ...] = ()
    env: Mapping[VariableName, SecretStr] = Field(default_factory=dict)
    """What its environment has beside a written few of the usual names. Nothing else of yours is passed on."""
    cwd: AbsolutePath | None = None
    """Where it starts. Unset: in a directory of its own; in a sandbox, in the session's working directory."""
    url: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = Field(default=None, repr=False)
    """Of a server that speaks streamable HTTP."""
    headers: Mapping[HeaderName, HeaderValue] = Field(default_factory=dict)
    """Sent with every request to ``url``."""
    sandboxed: bool = False
    """Whether ``command`` runs in each session's own sandbox."""
    enabled: bool = True
    tools: tuple[Text, ...] = ("*",)
    """Which of its tools there are for the model: names, with ``*`` for any characters."""
    allow: tuple[Text, ...] = ()
    """Which of them run without asking: names, with ``*`` for any characters (DEC-11)."""
    start_timeout_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    """Seconds until it must have said what tools it has."""
    call_timeout_s: Annotated[float, Field(gt=0, le=3_600)] = 120.0
    """Seconds that a call may take."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.command is None) is (self.url is None):
            raise ValueError("it needs either a command or a url")
        if self.url is not None and (self.args or self.env or self.cwd or self.sandboxed):
            raise ValueError("args, env, cwd and sandboxed belong to a command, not to a url")
        if self.command is not None and self.headers:
            raise ValueError("headers belong to a url, not to a command")
        return self


class TaskSettings(Section):
    """Of tasks in the background: sub-agents (TOOL-05)."""

    at_once: Annotated[int, Field(ge=0, le=20)] = 4
    """How many may run in one session. 0: there are none."""
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 1_800.0
    """Seconds that one may take."""
    max_tokens: Annotated[int, Field(ge=1_000)] = 1_000_000
    """Tokens that all its requests together may have, those of the prompt included."""
    max_iterations: PositiveInt = 60
    """Replies of the model in one."""


class ToolSettings(Section):
    sandbox: SandboxSettings = SandboxSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    exec: ExecSettings = ExecSettings()
    web: WebSettings = WebSettings()
    mcp_servers: Mapping[ServerName, McpServerSettings] = Field(default_factory=dict)
    """By name (TOOL-09)."""
    tasks: TaskSettings = TaskSettings()
    result_tokens: Annotated[int, Field(ge=200)] = 8_000
    """Tokens of one tool result that reach the model; past it head and tail are kept, and the whole is put into the
    session's data/ (CORE-07)."""


class AgentDefaults(Section):
    model: Text | None = None
    """Such as ``anthropic/claude-sonnet-5-5``, or a name that a provider knows."""
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


class EndpointSettings(Section):
    """What all providers have."""

    base_url: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = Field(default=None, repr=False)
    """Not shown: it may hold a password, ``https://user:password@host``."""
    extra_headers: Mapping[HeaderName, HeaderValue] = Field(default_factory=dict)
    """Sent with every request, such as an organisation's id."""


class ProviderSettings(EndpointSettings):
    api_key: Key = None


class LoginSettings(EndpointSettings):
    """Of a provider that is used by login (PROV-03)."""

    login_url: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = None
    """Where one logs in, if not at the usual address: a GitHub Enterprise, say."""

    @property
    def api_key(self) -> None:
        """There is none to set: the login gives what requests are made with."""


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
    openai_codex: LoginSettings = LoginSettings()
    github_copilot: LoginSettings = LoginSettings()


class ChannelsSettings(Section):
    session_mode: Literal["channel", "user", "global"] = "channel"
    """What one session is: a chat, a person across channels, or all there is (SESS-02)."""
    identities: Mapping[str, tuple[Text, ...]] = Field(default_factory=dict)
    """For ``user``: a person's name and the ``channel:id`` by which channels know that person."""
    send_progress: bool = True
    """Whether text that the model writes on the way reaches a channel (CORE-04)."""
    send_tool_hints: bool = False
    """Whether tools about to run are named in a channel."""
    max_file_bytes: PositiveBytes = ByteSize(20_000_000)
    """Of one file that comes with a message; a platform may allow less."""
    telegram: TelegramSettings = TelegramSettings()


class GatewaySettings(Section):
    """Where the gateway tells how it is (OPS-02)."""

    host: Text = "127.0.0.1"
    """Another address than one of this machine alone needs a token, and a sandbox that cannot read it."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 18_790
    """0: nothing listens."""
    token: Token = None
    """What whoever asks from another machine must send, ``Authorization: Bearer …``."""


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
    provider_warnings: tuple[str, ...] = ()
    """The same about keys and addresses of providers: only what needs a model says them."""
