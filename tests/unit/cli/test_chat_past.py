"""What was typed in earlier conversations, and the log: files of the owner alone, bounded, without secrets."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest
from pydantic import SecretStr

from bubbles.cli.chat.past import KEPT, MAX_ENTRY, MAX_FILE_BYTES, Past
from bubbles.cli.logs import FILES, MAX_BYTES, level_of, logging_for
from bubbles.config.load import load_settings
from bubbles.config.schema import Settings

KEY = "sk-test-0123456789abcdefghij"


def past(tmp_path: Path) -> Past:
    return Past(file=tmp_path / "cli_history", redact=lambda text: text.replace(KEY, "[redacted]"))


def settings(tmp_path: Path, **env: str) -> Settings:
    return load_settings({"HOME": str(tmp_path), "BUBBLES_HOME": str(tmp_path / "data"), **env})


@pytest.mark.req("SEC-03")
def test_what_was_typed_is_there_the_next_time_and_keys_are_not(tmp_path: Path) -> None:
    past(tmp_path).add("first\nsecond line")
    past(tmp_path).add(f"my key is {KEY}")
    past(tmp_path).add("x" * (MAX_ENTRY + 1))
    assert past(tmp_path).load() == ["first\nsecond line", "my key is [redacted]"]
    assert stat.S_IMODE((tmp_path / "cli_history").stat().st_mode) == 0o600


def test_a_history_that_is_damaged_or_large_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "cli_history"
    assert past(tmp_path).load() == []
    file.write_bytes(b'"a"\n\xff{]\n[1]\n"cut off')
    assert past(tmp_path).load() == ["a"]
    file.write_bytes(b'"some words that were typed once"\n' * (2 * MAX_FILE_BYTES // 34))
    assert len(past(tmp_path).load()) == KEPT
    assert file.stat().st_size < MAX_FILE_BYTES
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    past(tmp_path).add("x")
    assert past(tmp_path).load() == []
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.req("ERR-01", "SEC-03")
def test_what_broke_is_in_the_log_with_its_traceback_and_without_keys(tmp_path: Path) -> None:
    chosen = settings(tmp_path, BUBBLES_PROVIDERS__CUSTOM__API_KEY="quite-an-ordinary-word-9")
    assert chosen.providers.custom.api_key == SecretStr("quite-an-ordinary-word-9")
    with logging_for(chosen, None) as log:
        assert not log.path.exists()
        assert not chosen.data_dir.exists()
        try:
            raise ValueError(f"{KEY} quite-an-ordinary-word-9")
        except ValueError:
            logging.getLogger("bubbles.test").exception("it broke \x1b[2J")
        logging.getLogger("somebody.else").warning("heard too")
        logging.getLogger("bubbles.test").info("not kept")
    logging.getLogger("bubbles.test").warning("after it")
    text = log.path.read_text()
    assert "Traceback" in text
    assert "heard too" in text
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert not [part for part in (KEY, "ordinary-word", "\x1b", "not kept", "after it") if part in text]


def test_a_message_whose_arguments_do_not_fit_it_is_kept_as_it_is(tmp_path: Path) -> None:
    with logging_for(settings(tmp_path), None) as log:
        ours = logging.getLogger().handlers[-1]  # pytest's own, before it, would raise
        ours.handle(logging.makeLogRecord({"levelno": logging.WARNING, "msg": "%d of them", "args": ("three",)}))
    assert "%d of them" in log.path.read_text()


def test_the_log_stays_small(tmp_path: Path) -> None:
    with logging_for(settings(tmp_path), None) as log:
        for _ in range(FILES + 1):
            log.path.parent.mkdir(parents=True, exist_ok=True)
            with log.path.open("ab") as file:
                file.write(b"x" * MAX_BYTES)
            logging.getLogger("bubbles.test").warning("one more")
    assert sorted(path.name for path in log.path.parent.iterdir()) == [
        "bubbles.log",
        *(f"bubbles.log.{number}" for number in range(1, FILES)),
    ]
    assert log.path.stat().st_size < 1000


@pytest.mark.req("CORE-08", "SEC-03")
def test_what_is_logged_can_be_shown_to_the_person(tmp_path: Path) -> None:
    said: list[str] = []
    with logging_for(settings(tmp_path), level_of(logs=True, debug=False)) as log:
        log.write = said.append
        logging.getLogger("bubbles.test").info("call with %s\x1b[2J", KEY)
        logging.getLogger("bubbles.test").debug("too much")
        logging.getLogger("somebody.else").info("not ours")
    (line,) = said
    assert "call with" in line
    assert line.endswith("\\x1b[2J\n")
    assert KEY not in line
    assert (level_of(logs=False, debug=False), level_of(logs=False, debug=True)) == (None, logging.DEBUG)
