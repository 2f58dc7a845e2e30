"""Every setting that a person may write, with its default.

In ``config.json`` a name is written ``toolDirs`` or ``tool_dirs``; in the environment
``BUBBLES_TOOLS__SANDBOX__TOOL_DIRS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, ValidationInfo
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
PositiveBytes = Annotated[ByteSize, Field(gt=0)]
"""A number of bytes, or text such as ``"512MiB"``."""
Text = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        loc_by_alias=False,
        frozen=True,
        use_attribute_docstrings=True,
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


class ToolSettings(Section):
    sandbox: SandboxSettings = SandboxSettings()
    approvals: ApprovalSettings = ApprovalSettings()


class FileSettings(Section):
    """The whole of ``config.json``."""

    tools: ToolSettings = ToolSettings()


class Settings(FileSettings):
    """What a person wrote, and what was found out about the place where the program runs. Paths are absolute."""

    data_dir: Path
    person_home: Path
    host_env: Mapping[str, str] = Field(repr=False, exclude=True)
    """The controller's own environment. It holds keys: never logged, never shown, never passed on whole (SEC-03)."""
    warnings: tuple[str, ...] = ()
    """Sentences about settings that have no effect, such as a misspelt name."""
