"""The conformance suite and the escapes once more, by an ordinary user: no privilege is taken for granted."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.as_tester import REPOSITORY, command_as_tester, directory_of_tester, environment, interpreter
from tests.needs import missing

NEEDED = ("pytest", "pytest-asyncio", "pytest-timeout", "blockbuster", "psutil")
"""Beside what is tested, with all that they need themselves."""
SAME_FOR_ALL = ("docker", "bubblewrap")
"""What this machine has for root it must have for an ordinary user, too."""


@pytest.fixture(scope="module")
def copy() -> Iterator[Path]:
    """The tests, and what runs them, where everybody can read it."""
    with tempfile.TemporaryDirectory(prefix="bubbles-tests-", ignore_cleanup_errors=True) as made:
        top = Path(made)
        for name in ("tests", "bubbles"):
            shutil.copytree(REPOSITORY / name, top / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(REPOSITORY / "pyproject.toml", top)
        for distribution in distributions(NEEDED):
            for file in distribution.files or ():
                # An old pip's record of a package may name files that it never installed.
                if ".." not in file.parts and "__pycache__" not in file.parts and os.path.isfile(file.locate()):
                    (top / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(str(file.locate()), top / file)
        for path in (top, *top.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield top


def distributions(names: Iterable[str]) -> list[metadata.Distribution]:
    """The installed ones of these names and of all that they require."""
    found: dict[str, metadata.Distribution] = {}
    todo = list(names)
    while todo:
        name = canonicalize_name(todo.pop())
        if name not in found:
            found[name] = metadata.distribution(name)
            wanted = map(Requirement, found[name].requires or ())
            todo += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return list(found.values())


def groups() -> tuple[int, ...]:
    """The one that may use the engine, if there is one."""
    try:
        info = os.stat("/var/run/docker.sock")
    except FileNotFoundError:
        return ()
    return (info.st_gid,) if info.st_gid and stat.S_IMODE(info.st_mode) & 0o060 else ()


HARD = "bubblewrap"
"""Where privileges make the difference. Docker for an ordinary user has tests of its own (test_docker_as_tester); the
slow run tries all places.
"""
SUITE = ("tests/conformance/test_backends.py", "tests/conformance/test_files.py")
CONFORMANCE = (*SUITE, "-k", f"{HARD} and not thousand and not slow_reader")
ESCAPES = ("tests/security/test_escapes.py", "tests/security/test_escape_races.py", "-k", HARD)
FAULTS = ("tests/integration/test_faults.py", "-k", f"{HARD} and not deadline")
LOCAL = (*SUITE, "-k", "(local or docker) and not thousand and not slow_reader")
FLOODS = ("tests/integration/test_floods.py", "tests/integration/test_many_sessions.py")


@pytest.mark.timeout(180)
@pytest.mark.needs("tester")
@pytest.mark.parametrize(
    "parts",
    [
        # At once: they wait more than they work.
        pytest.param({CONFORMANCE: 30, ESCAPES: 70, FAULTS: 3}, id="conformance, escapes, faults"),
        pytest.param({FLOODS: 4, LOCAL: 30}, id="floods, local places", marks=pytest.mark.slow),
    ],
)
@pytest.mark.req("SBX-02", "DEC-13")
def test_ordinary_user_passes_the_same_tests(copy: Path, parts: dict[tuple[str, ...], int]) -> None:
    """Each part with how many tests it has at least for each place."""
    usable = [name for name in SAME_FOR_ALL if missing(name) is None]
    with directory_of_tester() as mine:
        env = environment()
        env |= {
            "PYTHONPATH": f"{copy}:{env['PYTHONPATH']}",
            "BUBBLES_REQUIRE": ",".join(usable),
            "TMPDIR": str(mine),
        }
        command = [*command_as_tester(groups()), str(interpreter()), "-s", "-m", "pytest", "-pno:cacheprovider", "-q"]
        command += ["-rfE", "--maxfail=3"]
        runs = [
            subprocess.Popen(
                [*command, f"--basetemp={mine}/{number}", *part],
                cwd=copy,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for number, part in enumerate(parts)
        ]
        try:
            for run, (part, of_each_place) in zip(runs, parts.items(), strict=True):
                places = {FLOODS: len(usable) + 2, LOCAL: len(usable) + 1}.get(part, 1)
                said, _ = run.communicate(timeout=170)
                assert run.returncode == 0, said[-8000:]
                passed = re.search(r"(\d+) passed", said)
                assert passed is not None
                assert int(passed[1]) >= of_each_place * places, said[-2000:]
        finally:
            for run in runs:
                run.kill()
                run.communicate()
