"""Code run as the ordinary user ``tester``, from a test run that is root.

The run's own interpreter and checkout may lie where that user cannot read (a home of root's), so a copy of what is
needed is laid where everybody can, for the system's Python.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.needs import TESTER, give_up

REPOSITORY = Path(__file__).parent.parent
PACKAGES = ("docker", "requests", "urllib3", "idna", "certifi", "charset_normalizer")
"""What ``sandbox_backends`` needs beside the standard library."""
VARIABLES = ("PATH", "LANG", "LC_ALL")


def run_as_tester(
    code: str, *arguments: str, groups: Sequence[int] = (), timeout_s: float = 15, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """``python -c code arguments`` as that user with exactly these supplementary groups. Its output is text."""
    done = subprocess.run(
        [*command_as_tester(groups), str(interpreter()), "-s", "-c", code, *arguments],
        env=environment(),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if check and done.returncode != 0:
        raise AssertionError(f"as {TESTER}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def command_as_tester(groups: Sequence[int] = ()) -> list[str]:
    """What to put before a command line, so that it runs as that user."""
    user = pwd.getpwnam(TESTER)
    chosen = ["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]
    return ["setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), *chosen, "--"]


def environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return {**kept, "HOME": pwd.getpwnam(TESTER).pw_dir, "PYTHONPATH": str(_copy()), "PYTHONDONTWRITEBYTECODE": "1"}


@functools.cache
def interpreter() -> Path:
    """A Python that this user may run and that our code runs on."""
    minor = f"python3.{sys.version_info.minor}"
    candidates = (Path(os.path.realpath(sys.executable)), Path("/usr/bin") / minor, Path("/usr/local/bin") / minor)
    found = next((candidate for candidate in candidates if _runs(candidate)), None)
    if found is None:
        give_up("tester", f"user {TESTER} finds no {minor} outside root's directories (apt-get install {minor})")
    return found


def _runs(candidate: Path) -> bool:
    # By a shell: setpriv itself still passes where only root may while it executes its program.
    start = ["sh", "-c", 'exec "$0" "$@"', str(candidate)]
    trial = [*command_as_tester(), *start, "-s", "-c", "import ssl, sandbox_backends.contract, docker"]
    done = subprocess.run(trial, env=environment(), cwd="/", capture_output=True, timeout=20, check=False)
    return done.returncode == 0


@functools.cache
def _copy() -> Path:
    """Everything that may be imported, readable by all. Removed with the test run."""
    holder = tempfile.TemporaryDirectory(prefix="bubbles-as-tester-", ignore_cleanup_errors=True)
    _KEPT.append(holder)
    top = Path(holder.name)
    top.chmod(0o755)
    leave = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(REPOSITORY / "sandbox_backends", top / "sandbox_backends", ignore=leave)
    if (REPOSITORY / "images").is_dir():
        shutil.copytree(REPOSITORY / "images", top / "images", ignore=leave)
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            shutil.copytree(Path(spec.origin).parent, top / name, ignore=leave)
    for path in (top, *top.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return top


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


@contextmanager
def directory_of_tester() -> Iterator[Path]:
    """A directory of that user's own; ``tmp_path`` lies below one that only root can enter."""
    user = pwd.getpwnam(TESTER)
    with tempfile.TemporaryDirectory(prefix="bubbles-tester-") as made:
        os.chown(made, user.pw_uid, user.pw_gid)
        yield Path(made)
