"""One Docker engine: docker-py as the control plane, in threads, with every failure turned into a sentence."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any, TypeVar

from sandbox_backends.contract import Enforces
from sandbox_backends.errors import BackendUnavailableError

USUAL_SOCKET = "/var/run/docker.sock"
TIMEOUT_S = 60.0
"""Of one answer of the engine."""
OLDEST_API = (1, 40)
"""Docker 19.03: the first whose bind mounts can leave out what is mounted below them."""

NEWEST_API = (1, 44)
"""What this was written for; a newer engine speaks it too."""
THREADS = 16

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What an engine says of itself; ``sandbox doctor`` measures whether it is so."""

    version: str
    api: tuple[int, int]
    rootless: bool
    user_mapping: bool
    """The engine gives containers other uids than the host's (userns-remap)."""
    desktop: bool
    """It runs in a virtual machine: unix sockets cannot be shared with a container."""
    memory: bool
    pids: bool
    cpu: bool
    n_cpus: int
    memory_bytes: int
    runtimes: Mapping[str, str]
    """OCI runtimes by name, each with its program."""

    def shares_sockets(self, runtime: str | None) -> bool:
        """Whether a unix socket in a bind mount leads out of a container: not out of a kernel of its own."""
        program = f"{runtime} {self.runtimes.get(runtime or '', '')}"
        own_kernel = any(word in program for word in ("runsc", "gvisor", "kata"))
        return sys.platform == "linux" and not self.desktop and not own_kernel

    @property
    def enforces(self) -> Enforces:
        found = Enforces.FILESYSTEM | Enforces.NETWORK | Enforces.CREDENTIALS
        found |= Enforces.MEMORY if self.memory else Enforces.NOTHING
        found |= Enforces.PROCESSES if self.pids else Enforces.NOTHING
        found |= Enforces.CPU if self.cpu else Enforces.NOTHING
        return found


class Engine:
    """Calls to the engine at ``url``, in threads of its own: one that hangs must not hold up the controller's."""

    def __init__(self, url: str | None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self.url = url or f"unix://{USUAL_SOCKET}"
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._client: Any = None
        self._version: dict[str, Any] = {}
        self._info: EngineInfo | None = None

    @property
    def socket_path(self) -> str:
        """Raises BackendUnavailableError for an engine that is not reached by a unix socket."""
        if not self.url.startswith("unix://"):
            raise BackendUnavailableError(
                f"The Docker engine at {self.url} is on another machine, which is not supported yet.",
                "Take an engine of this machine: a unix:// URL.",
            )
        return self.url.removeprefix("unix://")

    @property
    def known(self) -> EngineInfo | None:
        """What :meth:`info` last found."""
        return self._info

    @property
    def api_version(self) -> str:
        """Of the connection in use."""
        return str(self._client.api_version) if self._client is not None else "1.40"

    async def call(self, work: Callable[[Any], T]) -> T:
        """As :meth:`ask`, for what changes something: waited for even when cancelled, or it could not be undone."""
        doing = self._begin(work)
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            while not doing.done():
                try:
                    await asyncio.wait({doing})
                except asyncio.CancelledError:
                    continue
            doing.exception()
            raise

    async def ask(self, work: Callable[[Any], T]) -> T:
        """``work(client)`` in a thread, with a ``docker.APIClient``.

        Raises BackendUnavailableError when the engine is not reached; a ``docker.errors.APIError`` is left as it is for
        callers that tell its kinds apart, and is otherwise made a sentence by :func:`refusal`.
        """
        return await self._begin(work)

    async def info(self, *, fresh: bool = False) -> EngineInfo:
        """What the engine can do; asked once for each time it is connected to. Raises BackendUnavailableError."""
        from docker.errors import APIError

        if self._info is None or fresh:
            try:
                self._info = read_info(await self.ask(lambda client: client.info()), self._version)
            except APIError as error:
                raise refusal(error, "to say what it can do (/info)") from error
            except (TypeError, ValueError, AttributeError) as error:
                raise self._unreachable(error) from error
        return self._info

    def _begin(self, work: Callable[[Any], T]) -> asyncio.Future[T]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="docker")
        return asyncio.get_running_loop().run_in_executor(self._threads, self._call, work)

    def _call(self, work: Callable[[Any], T]) -> T:
        from docker.errors import APIError, DockerException, StreamParseError
        from urllib3.exceptions import HTTPError

        try:
            self._knock()
            return work(self._connected())
        except APIError:
            raise  # the engine answered
        # The errors of requests are OSErrors. The last three are of answers that are cut off or no JSON at all.
        except (OSError, HTTPError, DockerException, StreamParseError, JSONDecodeError, UnicodeDecodeError) as error:
            self._forget()
            raise self._unreachable(error) from error
        except (LookupError, TypeError) as error:
            if isinstance(error.__context__, OSError):  # docker-py, at a refusal that is not as an engine's are
                raise self._unreachable(error.__context__) from error
            raise

    def _knock(self) -> None:
        """Raises OSError, as the socket has it: docker-py hides the reason, and leaves its own socket open."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(self._timeout_s)
            sock.connect(self.socket_path)

    def _connected(self) -> Any:
        from docker import APIClient
        from docker.errors import APIError

        with self._lock:
            if self._client is None:
                path = self.socket_path
                asking = self._client_for(APIClient, "1.40")
                try:
                    said = asking.version(api_version=False)
                except APIError as error:
                    raise refusal(error, "to say its version (/version)") from error
                finally:
                    asking.close()
                if not isinstance(said, dict):
                    raise self._unreachable(TypeError("its version is no JSON object"))
                self._version = said
                api = _numbers(str(said.get("ApiVersion", "0")))
                if api < OLDEST_API:
                    raise BackendUnavailableError(
                        f"The Docker engine {self._version.get('Version')} at {path} is too old.",
                        "Install Docker 19.03 or newer.",
                    )
                self._client = self._client_for(APIClient, ".".join(map(str, min(api, NEWEST_API))))
            return self._client

    def _client_for(self, kind: Any, api: str) -> Any:
        client = kind(base_url=self.url, version=api, timeout=self._timeout_s)
        # docker-py keeps a connection for each URL, which is of no use when every container has its own.
        client.headers["Connection"] = "close"
        client.trust_env = False  # REQUESTS_CA_BUNDLE and proxies in the environment say nothing about an engine
        return client

    def _forget(self) -> None:
        """The engine went away: whatever answers next may be another."""
        with self._lock:
            client, self._client, self._info = self._client, None, None
        if client is not None:
            client.close()

    def _unreachable(self, error: Exception) -> BackendUnavailableError:
        """Why the engine cannot be used, with what mends it."""
        where = self.socket_path
        if isinstance(error, PermissionError):
            return BackendUnavailableError(
                f"You may not use the Docker engine at {where}.",
                "Join its group (sudo usermod -aG docker $USER), then log in again.",
            )
        if isinstance(error, FileNotFoundError) and not _installed():
            return BackendUnavailableError("Docker is not installed.", "Install it: sudo apt-get install docker.io")
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
            return BackendUnavailableError(
                f"The Docker engine is not running: nothing listens at {where}.",
                "Start it: sudo systemctl start docker",
            )
        return BackendUnavailableError(
            f"The Docker engine at {where} does not answer as it should ({error}).",
            "Restart it: sudo systemctl restart docker",
        )


def refusal(error: Exception, what: str) -> BackendUnavailableError:
    """A ``docker.errors.APIError`` as a sentence: the engine was reached and refused ``what``."""
    said = str(getattr(error, "explanation", None) or error).strip().rstrip(".")
    status = getattr(error, "status_code", None)
    reason = f"The Docker engine refused {what}: {said}."
    if status in (401, 403):
        return BackendUnavailableError(reason, "If a proxy stands before its socket, let it pass this request.")
    return BackendUnavailableError(reason, "Look into its log: sudo journalctl -u docker")


def _installed() -> bool:
    return any(shutil.which(name, path="/usr/bin:/usr/local/bin:/usr/sbin:/sbin") for name in ("dockerd", "docker"))


def _numbers(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def read_info(info: dict[str, Any], version: dict[str, Any]) -> EngineInfo:
    security = info.get("SecurityOptions") or []
    names = {option.split(",")[0].removeprefix("name=") for option in security}
    # Rootless without a cgroup it may write to: whatever else it says, it limits nothing.
    held = info.get("CgroupDriver") != "none"
    return EngineInfo(
        version=str(version.get("Version", "")),
        api=_numbers(str(version.get("ApiVersion", "0"))),
        rootless="rootless" in names,
        user_mapping="userns" in names,
        desktop="Docker Desktop" in str(info.get("OperatingSystem", "")),
        memory=held and bool(info.get("MemoryLimit")),
        pids=held and bool(info.get("PidsLimit")),
        cpu=held and bool(info.get("CpuCfsQuota")),
        n_cpus=int(info.get("NCPU") or 1),
        memory_bytes=int(info.get("MemTotal") or 0),
        runtimes={name: str((row or {}).get("path", "")) for name, row in (info.get("Runtimes") or {}).items()},
    )
