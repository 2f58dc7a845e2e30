"""What a sandbox is: a place where commands run and files are read and written.

Open this file first. A *backend* launches one small program, the runner, inside a place (the host itself, a
bubblewrap, a container); a *session* is one such place while it is open. Everything a caller does goes through
:class:`SandboxSession`, which behaves alike in every place (SBX-02).

Rules of the contract:

* A command that fails is a value (:class:`ExecResult`); a sandbox that fails is an exception (``errors.py``).
* A path is text: absolute inside a root, or relative to the session's working directory. Bytes that are not UTF-8 are
  carried with ``surrogateescape``. A root is seen at the same absolute path inside and outside.
* Nothing is inherited: the environment of a command is exactly what the request says.
* A spec says what is demanded, never how. What a backend cannot enforce is refused, never weakened (SBX-08).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol, runtime_checkable

MAX_READ_BYTES = 16 * 1024 * 1024
"""The most that one ``read_file`` returns; a larger file is read in several calls by ``offset``."""

MAX_LIST_ENTRIES = 10_000
"""The most entries that one ``list_dir`` returns; past it ``DirListing.truncated`` is true."""

NO_ENV: Mapping[str, str] = MappingProxyType({})


class Enforces(enum.Flag):
    """What a place holds against the code that runs in it; each flag is measured by ``sandbox doctor``."""

    NOTHING = 0
    FILESYSTEM = enum.auto()
    """Only the roots, the session's home and a minimal system are visible."""
    NETWORK = enum.auto()
    """No network, or only what the egress proxy lets through."""
    PROCESSES = enum.auto()
    """Other processes are invisible and their number inside is bounded."""
    MEMORY = enum.auto()
    """The memory of all processes together is bounded."""
    CPU = enum.auto()
    CREDENTIALS = enum.auto()
    """A HOME of its own: the logins of the person and of other sessions are not found."""


class Network(enum.StrEnum):
    NONE = "none"
    ALLOWLIST = "allowlist"
    FULL = "full"


class Outcome(enum.StrEnum):
    EXITED = "exited"
    SIGNALED = "signaled"
    TIMED_OUT = "timed_out"
    OOM = "oom"
    LOST = "lost"
    """The place went away under the command. Its end is unknown and the state of the place is gone."""


StreamName = Literal["stdout", "stderr"]
OnOutput = Callable[[StreamName, bytes], None]
"""Called in order, on the event loop, with each piece of output as it arrives; it must not block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A directory of the host that the sandbox sees at its own absolute path (SESS-06)."""

    path: Path
    writable: bool = True
    label: Literal["desk", "project"] = "project"
    identity: tuple[int, int] | None = None
    """Device and inode, found when the backend checked it: what is shown inside must be this very directory, whatever
    has been put at its path since. Callers leave it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ceilings for the whole session. ``None`` is the backend's own default; a number binds, or the spec is refused."""

    memory_bytes: int | None = None
    pids: int | None = None
    cpus: float | None = None
    disk_bytes: int | None = None
    """Size of the roots and home together on disk. No built-in backend holds one: a number is refused."""
    tmp_bytes: int | None = None
    """Size of each temporary directory (/tmp, /dev/shm, /run) in a hard sandbox."""
    open_files: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What one session demands of its place."""

    session: str
    """The session's key: names its persistent home and its records. Letters, digits, ``.``, ``_``, ``-``."""
    roots: tuple[Root, ...]
    home: Path | None = None
    """Host directory that persists as HOME; ``None`` is a throw-away home that ends with the session."""
    network: Network | None = None
    """``None`` is the backend's own default: off in hard sandboxes, the host's in local ones (SBX-07)."""
    allow: tuple[str, ...] = ()
    """For ``allowlist``: ``host``, ``host:port``, ``*.host``, an address or a range in CIDR form."""
    limits: Limits = Limits()
    env: Mapping[str, str] = field(default_factory=lambda: NO_ENV)
    """Added to the session's base environment."""
    requires: Enforces = Enforces.NOTHING

    @property
    def cwd(self) -> Path:
        """The project root if the session is bound to one, else the desk (SESS-06)."""
        for root in self.roots:
            if root.label == "project":
                return root.path
        return self.roots[0].path


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    argv: tuple[str, ...]
    """Passed to execve as it is. A script is ``("/bin/bash", "--noprofile", "--norc", "-c", script)``."""
    cwd: str | None = None
    """Absolute inside a root or relative to the session's; ``None`` and ``""`` are the session's own."""
    env: Mapping[str, str] | None = None
    """Complete. ``None`` is the session's own (:attr:`SandboxSession.env`)."""
    stdin: bytes | None = None
    """``None`` is /dev/null."""
    timeout_s: float | None = 120.0
    """After it the whole process tree is ended. ``None`` is allowed for ``start`` only."""
    max_output_bytes: int = 100_000
    """Kept of each stream, half of it from the head and half from the tail."""
    merge_stderr: bool = False
    """Send stderr into stdout, in the order written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    outcome: Outcome
    exit_code: int | None
    """The exit status when ``outcome`` is EXITED; the negative signal number when SIGNALED; else ``None``."""
    stdout: bytes = b""
    stderr: bytes = b""
    dropped_bytes: int = 0
    """Bytes of both streams that were read and thrown away between head and tail."""
    duration_s: float = 0.0
    detached: bool = False
    """The command ended but left a background process that still holds its output; that process lives on until the
    session closes, its output is discarded. In a hard sandbox it is ended earlier if a command finds no process free
    while most of all processes were left behind like this."""

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.EXITED and self.exit_code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    kind: Literal["file", "directory", "symlink", "other"]
    size_bytes: int
    mode: int
    """Permission bits, as ``stat.S_IMODE``."""
    mtime_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DirEntry:
    name: str
    stat: FileStat


@dataclass(frozen=True, slots=True, kw_only=True)
class DirListing:
    entries: tuple[DirEntry, ...]
    """Sorted by name. Links are named, never followed."""
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChunk:
    data: bytes
    next: int
    """Offset to pass to the next ``poll``."""
    dropped_bytes: int
    """Bytes between ``since`` and the start of ``data`` that the ring no longer holds."""
    result: ExecResult | None
    """Set once the process has ended; its streams are empty, the output is in the ring."""


class BackgroundProcess(Protocol):
    """A command that goes on while others run. Its stdout and stderr are one stream in a bounded ring."""

    id: str

    def poll(self, since: int = 0) -> OutputChunk: ...
    async def write(self, data: bytes, *, eof: bool = False) -> None: ...
    async def signal(self, number: int) -> None:
        """Signal the process group; SIGKILL ends the whole tree."""
        ...

    async def wait(self, timeout_s: float | None = None) -> ExecResult | None:
        """The result, or ``None`` when ``timeout_s`` passed first (the process goes on)."""
        ...


class SandboxSession(Protocol):
    """One open place. Safe for concurrent use inside one event loop. Any call may raise ``SandboxLostError``."""

    @property
    def id(self) -> str: ...
    @property
    def cwd(self) -> str: ...
    @property
    def env(self) -> Mapping[str, str]:
        """The base environment of a command here: HOME, PATH, locale, proxies, and what the spec added."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for the person, such as a limit that this host cannot hold."""
        ...

    @property
    def lost(self) -> str | None:
        """Why the place went away, or ``None`` while it lives."""
        ...

    async def exec(self, request: ExecRequest, *, on_output: OnOutput | None = None) -> ExecResult: ...
    async def start(self, request: ExecRequest, *, on_output: OnOutput | None = None) -> BackgroundProcess:
        """With ``on_output`` all of the output goes there as it comes, and ``poll`` has none of it: for a program that
        one speaks with. It is called on the event loop, and must bound what it keeps.
        """
        ...

    async def read_file(self, path: str, *, offset: int = 0, max_bytes: int = MAX_READ_BYTES) -> bytes: ...
    async def write_file(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Replace the whole file, or leave the old one; missing parent directories are made."""
        ...

    async def list_dir(self, path: str = ".") -> DirListing: ...
    async def stat(self, path: str) -> FileStat:
        """Links are not followed in the last component."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Whether a backend can be used here and now, in sentences for the person."""

    usable: bool
    reason: str = ""
    """Why not; or, when usable, what is weaker than it could be."""
    remedy: str = ""
    """The command or the setting that mends it."""
    version: str = ""


@runtime_checkable
class SandboxBackend(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def enforces(self) -> Enforces:
        """What this backend holds on this host, as far as is known before a session opens."""
        ...

    async def probe(self) -> Probe: ...
    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[SandboxSession]:
        """The context is the lifetime: leaving it ends every process of the session and removes the place.

        Raises ``InvalidSpecError`` or ``UnsupportedSpecError`` for a spec, ``BackendUnavailableError`` when the place
        cannot be made.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """What backends are built from. All paths are absolute. Nothing here reaches the inside of a place."""

    data_dir: Path
    """The owner's data directory (``~/.bubbles``): records, locks and sockets live in its ``run/``."""
    person_home: Path
    """HOME of the person who runs the controller; never a root."""
    host_env: Mapping[str, str] = field(default_factory=lambda: NO_ENV)
    """The controller's environment; local backends pass on a written list of names, hard ones nothing."""
    tool_dirs: tuple[Path, ...] = ()
    """Extra directories shown read-only in a hard sandbox, such as a toolchain outside /usr."""
    docker_url: str | None = None
    """``unix:///…``; ``None`` is the engine's usual socket."""
    docker_image: str = "bubbles-sandbox:latest"
    docker_runtime: str | None = None
    """An OCI runtime that the engine knows, such as ``runsc``."""
    on_refusal: Callable[[str, str], None] | None = None
    """``(session, sentence)``: called when the egress proxy refuses a connection, or cannot make it."""
