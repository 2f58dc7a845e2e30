"""Makes a minimal Debian tree from Debian's own archive: the way to an image where no registry is reached.

Root only, Linux only. Everything runs in a mount and a pid namespace of its own, so that ending the build, at whatever
moment, ends its processes and its mounts, and what is left is plain files.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from sandbox_backends.errors import BackendUnavailableError

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
SECURITY_MIRROR = "http://deb.debian.org/debian-security"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCES = f"""\
deb {MIRROR} {SUITE} main
deb {MIRROR} {SUITE}-updates main
deb {SECURITY_MIRROR} {SUITE}-security main
"""

WORK_DIR = Path("/var/tmp")
"""Not /tmp: that is often small, and mounted without devices or programs."""
WORK_PREFIX = "bubbles-image-"

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSED_ON = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
IN_A_NAMESPACE = ("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--")

OnProgress = Callable[[str], None]
"""Called on the event loop with one line about what is being done."""


def require_debootstrap() -> None:
    """Raises ``BackendUnavailableError`` when a tree cannot be made here."""
    other_way = "or use --from docker."
    if sys.platform != "linux":
        raise BackendUnavailableError("debootstrap runs on Linux only.", "Use --from docker.")
    if shutil.which("debootstrap", path=SEARCH_PATH) is None:
        remedy = f"Install it (sudo apt-get install debootstrap), {other_way}"
        raise BackendUnavailableError("debootstrap is not installed.", remedy)
    if not KEYRING.exists():
        remedy = f"Install them (sudo apt-get install debian-archive-keyring), {other_way}"
        raise BackendUnavailableError(f"Debian's signing keys are not in {KEYRING}.", remedy)
    if os.geteuid() != 0:
        raise BackendUnavailableError("Making a Debian tree takes root.", f"Run the command with sudo, {other_way}")


@contextlib.asynccontextmanager
async def debian_tree(
    provision: Mapping[str, bytes], command: Sequence[str], *, host_env: Mapping[str, str], on_progress: OnProgress
) -> AsyncIterator[Path]:
    """A minimal Debian in which ``command`` was run with the files of ``provision`` (by name) in its /tmp.

    The tree is removed when the context ends. Raises ``BackendUnavailableError`` with the last lines of what failed.
    """
    await asyncio.to_thread(require_debootstrap)
    env = {name: host_env[name] for name in PASSED_ON if name in host_env}
    env |= {"PATH": SEARCH_PATH, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    work, lock = await asyncio.to_thread(_work_dir)
    tree = work / "tree"
    try:
        making = ("debootstrap", "--variant=minbase", "--force-check-gpg", f"--keyring={KEYRING}", SUITE)
        await _run((*making, str(tree), MIRROR), "debootstrap", env, lock, on_progress)
        await asyncio.to_thread(_lay, tree, provision)
        inside = ("sh", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"', str(tree))
        await _run((*inside, *command), "setting up the Debian tree", env, lock, on_progress)
        await asyncio.to_thread(_clear, tree, provision)
        yield tree
    finally:
        os.close(lock)
        await asyncio.to_thread(shutil.rmtree, work)


def _work_dir() -> tuple[Path, int]:
    """A fresh directory and its lock; what a killed build left behind goes, as its lock is free."""
    for leftover in WORK_DIR.glob(f"{WORK_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = _locked(leftover)
            os.close(lock)
            shutil.rmtree(leftover)
    work = Path(tempfile.mkdtemp(prefix=WORK_PREFIX, dir=WORK_DIR))
    return work, _locked(work)


def _locked(directory: Path) -> int:
    """A descriptor that holds the lock. The build's processes inherit it, so it outlives a killed controller."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(f"{directory} belongs to somebody else")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _lay(tree: Path, provision: Mapping[str, bytes]) -> None:
    (tree / "etc/apt/sources.list").write_text(SOURCES)
    for name, data in provision.items():
        (tree / "tmp" / name).write_bytes(data)


def _clear(tree: Path, provision: Mapping[str, bytes]) -> None:
    for name in provision:
        (tree / "tmp" / name).unlink()
    for copied_from_the_host in ("etc/resolv.conf", "etc/hostname"):
        (tree / copied_from_the_host).unlink(missing_ok=True)


async def _run(argv: Sequence[str], what: str, env: Mapping[str, str], lock: int, on_progress: OnProgress) -> None:
    process = await asyncio.create_subprocess_exec(
        *IN_A_NAMESPACE,
        *argv,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C comes to the controller, which ends the whole build in the right order
        pass_fds=(lock,),
    )
    assert process.stdout is not None
    last: deque[str] = deque(maxlen=3)
    try:
        async for raw in process.stdout:
            if line := raw.decode(errors="replace").strip().removeprefix("I: "):
                last.append(line)
                on_progress(line)
        status = await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if status:
        raise BackendUnavailableError(f"{what} failed ({' · '.join(last)}).", "See that Debian's archive is reached.")
