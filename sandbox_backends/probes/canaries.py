"""What the doctor plants on the host, so that a probe inside can prove that it got there. All of it is removed again.

Every canary carries one random token. A canary that cannot be planted here (another user's file without being root, a
key where the kernel has no keyrings) is left out, and its probe then does not apply.

What this does blocks: call it in a thread.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from sandbox_backends.contract import BackendSettings
from sandbox_backends.probes.leavings import FILE_PREFIX, HOME_PREFIX, HOMES, TMP, sweep

T = TypeVar("T")

SECRET_NAME = "BUBBLES_CANARY_TOKEN"
ENGINE_SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock")
_KEY_CALLS = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(platform.machine())
"""Numbers of add_key and keyctl."""
_USER_KEYRING, _UNLINK = -4, 9
_IPC_CREATE_NEW, _IPC_RMID = 0o3000, 0
_WAIT_FOR_EOF = "import sys; sys.stdin.read()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Canaries:
    """What was planted; ``None`` where it could not be."""

    settings: BackendSettings
    """The settings given, with a secret in the controller's environment."""
    token: str
    person_file: str | None
    user_file: str | None
    tmp_file: str | None
    abstract: str
    port: int
    pid: int
    shm_key: int | None
    key: str | None

    def config(self, *, root: Path, session_file: str) -> dict[str, object]:
        """What the probes inside are told of the outside. ``root`` is the session's only root."""
        data, home = str(self.settings.data_dir), str(self.settings.person_home)
        return {
            "token": self.token,
            "person_file": self.person_file,
            "user_file": self.user_file,
            "session_file": session_file,
            "tmp_file": self.tmp_file,
            "abstract": self.abstract,
            "port": self.port,
            "pid": self.pid,
            "shm_key": self.shm_key,
            "key": self.key,
            "shadow_sha256": _sha256("/etc/shadow"),
            "machine_id_sha256": _sha256("/etc/machine-id"),
            "engine_sockets": _engine_sockets(self.settings.docker_url),
            "block_devices": _block_devices(),
            "host_paths": [data, home],
            "root_paths": [str(root)],
        }


@contextmanager
def planted(settings: BackendSettings) -> Iterator[Canaries]:
    sweep(settings)
    token = f"canary{secrets.token_hex(12)}"
    with ExitStack() as stack:
        yield Canaries(
            settings=replace(settings, host_env={**settings.host_env, SECRET_NAME: token}),
            token=token,
            person_file=_try(stack, _file(settings.person_home, token, 0o600)),
            user_file=_try(stack, _other_users_file(token)),
            tmp_file=_try(stack, _file(TMP, token, 0o644)),
            abstract=stack.enter_context(_abstract_socket(token)),
            port=stack.enter_context(_loopback_port()),
            pid=stack.enter_context(_process(token)),
            shm_key=_try(stack, _shared_memory()),
            key=_try(stack, _user_key(token)),
        )


@contextmanager
def planted_setuid(root: Path) -> Iterator[str | None]:
    """A setuid-root copy of ``id`` in ``root``; only root can make one, or tell that it did."""
    program = shutil.which("id", path="/usr/bin:/bin")
    if os.geteuid() != 0 or program is None:
        yield None
        return
    path = root / f".bubbles-{secrets.token_hex(4)}"
    try:
        shutil.copyfile(program, path)
        os.chown(path, 0, 0)
        path.chmod(0o4755)
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


def _try(stack: ExitStack, canary: AbstractContextManager[T]) -> T | None:
    try:
        return stack.enter_context(canary)
    except OSError:
        return None


@contextmanager
def _file(directory: Path, token: str, mode: int) -> Iterator[str]:
    fd, path = tempfile.mkstemp(prefix=FILE_PREFIX, dir=directory)
    try:
        with open(fd, "w") as file:
            file.write(token)
        os.chmod(path, mode)
        yield path
    finally:
        os.unlink(path)


@contextmanager
def _other_users_file(token: str) -> Iterator[str]:
    """As in the home of another person who left it readable."""
    if os.geteuid() != 0:
        raise PermissionError("only root can plant a file of another user")
    home = Path(tempfile.mkdtemp(prefix=HOME_PREFIX, dir=HOMES))
    try:
        with _file(home, token, 0o644) as path:
            os.chown(path, 65534, 65534)
            os.chown(home, 65534, 65534)
            home.chmod(0o755)
            yield path
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _abstract_socket(token: str) -> Iterator[str]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + token)
        listener.listen(16)
        yield token


@contextmanager
def _loopback_port() -> Iterator[int]:
    """The kernel completes a connection by itself: nobody need accept it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield listener.getsockname()[1]


@contextmanager
def _process(token: str) -> Iterator[int]:
    """It ends with its stdin, so a doctor that is killed leaves none behind."""
    argv = [sys.executable, "-I", "-S", "-c", _WAIT_FOR_EOF, token]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, env={}, start_new_session=True) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@contextmanager
def _shared_memory() -> Iterator[int]:
    libc = ctypes.CDLL(None, use_errno=True)
    key = secrets.randbits(30) | 1
    segment = libc.shmget(key, ctypes.c_size_t(4096), _IPC_CREATE_NEW | 0o666)
    if segment < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    try:
        yield key
    finally:
        libc.shmctl(segment, _IPC_RMID, None)


@contextmanager
def _user_key(token: str) -> Iterator[str]:
    if _KEY_CALLS is None:
        raise OSError("the number of add_key is not known here")
    add_key, keyctl = (ctypes.c_long(number) for number in _KEY_CALLS)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    ring = ctypes.c_long(_USER_KEYRING)
    key = libc.syscall(add_key, b"user", token.encode(), b"x", ctypes.c_long(1), ring)
    if key < 0:
        raise OSError(ctypes.get_errno(), "add_key")
    try:
        yield token
    finally:
        libc.syscall(keyctl, ctypes.c_long(_UNLINK), ctypes.c_long(key), ring)


def _sha256(path: str) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


def _engine_sockets(docker_url: str | None) -> list[str]:
    own = [docker_url.removeprefix("unix://")] if docker_url and docker_url.startswith("unix://") else []
    return [*own, *ENGINE_SOCKETS, f"/run/user/{os.getuid()}/docker.sock"]


def _block_devices() -> list[str]:
    """Disks that really are there, not idle loop and ram devices."""
    try:
        return sorted(path.name for path in Path("/sys/block").iterdir() if (path / "device").exists())
    except OSError:
        return []
