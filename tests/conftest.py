"""What every test gets: skips that state their reason, a watched event loop, and the count of proven requirements."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from tests import sandbox_image as image
from tests.needs import CHECKS, give_up, need, required

HERE = Path(__file__).parent
REQUIREMENT_IDS = tuple((HERE / "requirement_ids.txt").read_text().split())
PROVEN = pytest.StashKey[set[str]]()


def pytest_configure(config: pytest.Config) -> None:
    # Under nohup, or in the background of a script, these are ignored, and so they would be in all that tests start.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[PROVEN] = set()
    if unknown := required() - CHECKS.keys():
        raise pytest.UsageError(f"BUBBLES_REQUIRE names {', '.join(sorted(unknown))}; known are {', '.join(CHECKS)}")


@pytest.hookimpl(tryfirst=True)  # before -m takes tests away: a slow test proves its requirement too
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("req"):
            if unknown := set(mark.args) - set(REQUIREMENT_IDS):
                raise pytest.UsageError(f"{item.nodeid}: no such requirement: {', '.join(sorted(unknown))}")
            config.stash[PROVEN].update(mark.args)
        for mark in item.iter_markers("needs"):
            if unknown := set(mark.args) - CHECKS.keys():
                raise pytest.UsageError(f"{item.nodeid}: tests/needs.py has no check for {', '.join(sorted(unknown))}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        need(*mark.args)


@pytest.hookimpl(tryfirst=True)  # building takes longer than a test may
def pytest_runtestloop(session: pytest.Session) -> None:
    if any("sandbox_image" in getattr(item, "fixturenames", ()) for item in session.items):
        image.problem()


@pytest.fixture(scope="session")
def sandbox_image() -> str:
    """The name of an image that docker sandboxes run from."""
    need("docker")
    if reason := image.problem():
        give_up("docker", reason)
    return image.NAME


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
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
