"""A key that is asked for without showing it: whatever ends the question, the terminal shows again what is typed."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ptys import Person, at_a_terminal

pytestmark = [pytest.mark.req("CLI-01"), pytest.mark.timeout(60)]

PROGRAM = str(Path(sys.executable).parent / "bubbles")
ENDINGS: dict[str, Callable[[Person], None]] = {
    "ctrl-c": lambda person: person.types("\x03"),
    "terminate": lambda person: person.sends(signal.SIGTERM),
    "hang up": lambda person: person.sends(signal.SIGHUP),
}


def environment(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "TERM": "xterm",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "OLLAMA_HOST": "127.0.0.1:1",
        "BUBBLES_PROVIDERS__VLLM__BASE_URL": "http://127.0.0.1:1/v1",
    }


def shows_what_is_typed(person: Person) -> bool:
    return bool(termios.tcgetattr(person.master)[3] & termios.ECHO)


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
async def test_onboarding_that_is_left_gives_the_terminal_back(
    tmp_path: Path, ending: Callable[[Person], None]
) -> None:
    async with at_a_terminal([PROGRAM, "onboard"], environment(tmp_path)) as person:
        await person.sees("Enter goes on without a model:")
        person.types("openai\n")
        await person.sees("(it is not shown):")
        assert not shows_what_is_typed(person)
        ending(person)
        await person.sees("Nothing was written.")
        assert await person.leaves() == 130
        assert shows_what_is_typed(person)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
async def test_a_key_that_is_not_typed_to_its_end_gives_it_back_too(
    tmp_path: Path, ending: Callable[[Person], None]
) -> None:
    async with at_a_terminal([PROGRAM, "provider", "key", "openai"], environment(tmp_path)) as person:
        await person.sees("(it is not shown):")
        assert not shows_what_is_typed(person)
        ending(person)
        assert await person.leaves() == 130
        assert shows_what_is_typed(person)
