"""The log of the gateway: a file of its own and standard error, one line each, without secrets."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from bubbles.cli.logs import COMMAND, FILES, GATEWAY, MAX_BYTES, TELLTALE, logging_for
from bubbles.config.load import load_settings
from bubbles.config.schema import Settings

pytestmark = pytest.mark.req("OPS-02", "SEC-03")

KEY = "sk-test-0123456789abcdefghij"


def settings(tmp_path: Path) -> Settings:
    environment = {
        "HOME": str(tmp_path),
        "BUBBLES_HOME": str(tmp_path / "data"),
        "BUBBLES_PROVIDERS__OPENAI__API_KEY": KEY,
    }
    return load_settings(environment)


def test_what_the_gateway_does_is_in_its_own_file_and_shown(tmp_path: Path) -> None:
    said: list[str] = []
    with logging_for(settings(tmp_path), logging.INFO, GATEWAY) as log:
        log.write = said.append
        logging.getLogger("bubbles.gateway").info("telegram is up \x1b[2J %s", KEY)
        logging.getLogger("bubbles.gateway").debug("too much")
        logging.getLogger("somebody.else").info("not ours")
        logging.getLogger("somebody.else").warning("theirs")
    logging.getLogger("bubbles.gateway").warning("after it")
    assert log.path == tmp_path / "data" / "logs" / "gateway.log"
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert [path.name for path in log.path.parent.iterdir()] == ["gateway.log"]
    kept = log.path.read_text().splitlines()
    assert [line.split(": ", 1)[1] for line in kept] == ["telegram is up \\x1b[2J [redacted]", "theirs"]
    assert [line.split(" ", 1)[1] for line in said] == ["I telegram is up \\x1b[2J [redacted]\n", "W theirs\n"]


def test_what_broke_is_one_line_on_standard_error_and_whole_in_the_file(tmp_path: Path) -> None:
    said: list[str] = []
    with logging_for(settings(tmp_path), logging.INFO, GATEWAY) as log:
        log.write = said.append
        try:
            raise ValueError("no\tsuch thing")
        except ValueError:
            logging.getLogger("bubbles.gateway").exception("it broke")
    (line,) = said
    assert line.endswith("E it broke … ValueError: no such thing\n")
    assert line.count("\n") == 1
    assert "Traceback (most recent call last):\n" in log.path.read_text()


def test_with_debug_more_is_shown_whole_and_the_file_stays_as_it_is(tmp_path: Path) -> None:
    said: list[str] = []
    with logging_for(settings(tmp_path), logging.DEBUG, GATEWAY) as log:
        log.write = said.append
        logging.getLogger("bubbles.agent").debug("the prompt\nin three\nlines")
        logging.getLogger("bubbles.agent").info("kept")
    assert said[0].endswith("the prompt\nin three\nlines\n")
    assert len(said) == 2
    assert "prompt" not in log.path.read_text()
    assert "kept" in log.path.read_text()


@pytest.mark.parametrize("name", TELLTALE)
@pytest.mark.parametrize("kind", [COMMAND, GATEWAY], ids=["command", "gateway"])
def test_addresses_that_libraries_ask_are_not_logged(tmp_path: Path, name: str, kind: object) -> None:
    """They hold the token of a bot, and somebody may have turned their loggers up."""
    library = logging.getLogger(name)
    library.setLevel(logging.DEBUG)
    said: list[str] = []
    try:
        with logging_for(settings(tmp_path), logging.INFO, GATEWAY if kind is GATEWAY else COMMAND) as log:
            log.write = said.append
            logging.getLogger(f"{name}.inside").info("POST https://api.telegram.org/bot1234:secret/getUpdates")
            logging.getLogger(f"{name}.inside").warning("it is late")
        assert library.level == logging.DEBUG
    finally:
        library.setLevel(logging.NOTSET)
    assert not [line for line in said if "getUpdates" in line]
    assert "getUpdates" not in log.path.read_text()
    assert "it is late" in log.path.read_text()


def test_the_gateways_log_is_turned_over(tmp_path: Path) -> None:
    with logging_for(settings(tmp_path), logging.INFO, GATEWAY) as log:
        log.write = lambda _: None
        for _ in range(FILES + 1):
            log.path.parent.mkdir(parents=True, exist_ok=True)
            with log.path.open("ab") as file:
                file.write(b"x" * MAX_BYTES)
            logging.getLogger("bubbles.gateway").info("one more")
    assert sorted(path.name for path in log.path.parent.iterdir()) == [
        "gateway.log",
        *(f"gateway.log.{number}" for number in range(1, FILES)),
    ]
    assert log.path.stat().st_size < 1_000
