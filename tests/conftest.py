"""What every test gets: skips that state their reason, a watched event loop, and the count of proven requirements.

With ``-n`` several workers share a run (pytest-xdist): each collects all tests and runs some of them, and this file is
read by them and by the controller, which does neither.
"""

from __future__ import annotations

import gc
import inspect
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from blockbuster import blockbuster_ctx

from tests import sandbox_image as image
from tests.needs import CHECKS, give_up, need, required
from tests.turns import turn

HERE = Path(__file__).parent
REQUIREMENT_IDS = tuple((HERE / "requirement_ids.txt").read_text().split())
PROVEN = pytest.StashKey[set[str]]()
FAULTS = pytest.StashKey[set[str]]()
TURNS: pytest.StashKey[tempfile.TemporaryDirectory[str]] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    # Under nohup, or in the background of a script, these are ignored, and so they would be in all that tests start.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[PROVEN], config.stash[FAULTS] = set(), set()
    if unknown := required() - CHECKS.keys():
        raise pytest.UsageError(f"BUBBLES_REQUIRE names {', '.join(sorted(unknown))}; known are {', '.join(CHECKS)}")


@pytest.hookimpl(tryfirst=True)  # before -m takes tests away: a slow test proves its requirement too
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    faults = config.stash[FAULTS]
    for item in items:
        for mark in item.iter_markers("req"):
            if unknown := set(mark.args) - set(REQUIREMENT_IDS):
                faults.add(f"{item.nodeid}: no such requirement: {', '.join(sorted(unknown))}")
            config.stash[PROVEN].update(mark.args)
        for mark in item.iter_markers("needs"):
            if unknown := set(mark.args) - CHECKS.keys():
                faults.add(f"{item.nodeid}: tests/needs.py has no check for {', '.join(sorted(unknown))}")
    if faults and not hasattr(config, "workerinput"):  # nobody hears a worker that ends here
        raise pytest.UsageError("\n".join(sorted(faults)))


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: the garbage collector need not go through them again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In the controller, for each worker before it begins."""
    config: pytest.Config = node.config
    if TURNS not in config.stash:
        config.stash[TURNS] = tempfile.TemporaryDirectory(prefix="bubbles-turns-")
    node.workerinput["turns"] = config.stash[TURNS].name


def pytest_sessionfinish(session: pytest.Session) -> None:
    proven, faults = session.config.stash[PROVEN], session.config.stash[FAULTS]
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output.update(proven=sorted(proven), faults=sorted(faults))
    elif faults:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """In the controller, when a worker has ended; one that crashed leaves no output."""
    config: pytest.Config = node.config
    output: dict[str, Any] = getattr(node, "workeroutput", {})
    config.stash[PROVEN].update(output.get("proven", ()))
    config.stash[FAULTS].update(output.get("faults", ()))


def pytest_unconfigure(config: pytest.Config) -> None:
    if TURNS in config.stash:
        config.stash[TURNS].cleanup()


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around the test's time limit: waiting is none of its time
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    worker: dict[str, Any] | None = getattr(item.config, "workerinput", None)
    if worker is None:
        return (yield)
    names = [name for mark in item.iter_markers("turns") for name in mark.args]
    with turn(Path(worker["turns"]), names, alone=item.get_closest_marker("alone") is not None):
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        need(*mark.args)


@pytest.hookimpl(tryfirst=True)  # building takes longer than a test may
def pytest_runtestloop(session: pytest.Session) -> None:
    if any("sandbox_image" in getattr(item, "fixturenames", ()) for item in session.items):
        worker: dict[str, Any] | None = getattr(session.config, "workerinput", None)
        with turn(Path(worker["turns"]), ["images"]) if worker else nullcontext():
            image.problem()


@pytest.fixture(scope="session")
def sandbox_image() -> str:
    """The name of an image that docker sandboxes run from."""
    need("docker")
    if reason := image.problem():
        give_up("docker", reason)
    return image.NAME


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    faults: set[str] = config.stash[FAULTS]
    for fault in sorted(faults):
        terminalreporter.write_line(f"ERROR: {fault}", red=True)
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return  # a part of the tests says nothing about the whole
    unproven = [name for name in REQUIREMENT_IDS if name not in config.stash[PROVEN]]
    proven = len(REQUIREMENT_IDS) - len(unproven)
    terminalreporter.section("requirements")
    terminalreporter.write_line(f"{proven} of {len(REQUIREMENT_IDS)} have a test. None yet: {' '.join(unproven)}")


@pytest.fixture(autouse=True)
def watched_event_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Product code that blocks the event loop of an async test fails it, unless the test is marked ``blocking``."""
    function = getattr(request.node, "function", None)
    if not inspect.iscoroutinefunction(function) or request.node.get_closest_marker("blocking"):
        yield
        return
    with blockbuster_ctx(scanned_modules=["bubbles", "sandbox_backends"]):
        yield
