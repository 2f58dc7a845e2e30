"""Keys in the operating system's keyring: put there by ``bubbles provider key``, referred to in config.json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import own_keyring

pytestmark = [pytest.mark.req("SEC-03", "CFG-01"), pytest.mark.timeout(60)]

ROOT = Path(__file__).parents[2]
KEY = "sk-canary-0123456789abcdef"
READS = """
import sys
from bubbles.config.load import load_settings
settings = load_settings()
key = getattr(settings.providers, sys.argv[1]).api_key
print(key.get_secret_value() if key else None, *settings.provider_warnings, sep="\\n")
"""


class Program:
    """Bubbles with a data directory and a keyring of its own, each call a process."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.config = home / ".bubbles" / "config.json"
        self.kept = home / "kept.json"
        self.env = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "PYTHON_KEYRING_BACKEND": "tests.own_keyring.OwnKeyring",
            own_keyring.FILE: str(self.kept),
        }

    def python(self, *argv: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *argv],
            env={**self.env, **env},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    def key(self, *argv: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "bubbles", "provider", "key", *argv, stdin=stdin, **env)

    def loaded(self, provider: str, **env: str) -> tuple[str, str]:
        """The key that the settings hold, and their warnings."""
        done = self.python("-c", READS, provider, **env)
        assert done.returncode == 0, done.stderr
        key, _, warnings = done.stdout.partition("\n")
        return key, warnings.strip()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_a_key_goes_into_the_keyring_and_only_a_reference_into_the_file(program: Program) -> None:
    done = program.key("openai", stdin=f"{KEY}\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert KEY not in done.stdout
    assert json.loads(program.config.read_text()) == {"providers": {"openai": {"apiKey": "keyring:bubbles/openai"}}}
    assert program.config.stat().st_mode & 0o777 == 0o600
    assert json.loads(program.kept.read_text()) == {"bubbles/openai": KEY}
    assert program.loaded("openai") == (KEY, "")

    gone = program.key("openai", "--remove")
    assert (gone.returncode, gone.stderr) == (0, "")
    assert json.loads(program.config.read_text()) == {"providers": {"openai": {}}}
    assert program.loaded("openai") == ("None", "")
    again = program.key("openai", "--remove")
    assert (again.returncode, again.stdout) == (
        0,
        "The keyring had no such key; providers.openai.apiKey was not set.\n",
    )


@pytest.mark.parametrize(
    ("written", "field"),
    [
        ({"providers": {"groq": {"apiKey": "keyring:other/my key"}}}, "groq"),
        ({"providers": {"custom": {"api_key": "keyring:other/my key"}}}, "custom"),
    ],
)
def test_any_name_of_the_keyring_may_be_referred_to(program: Program, written: object, field: str) -> None:
    program.kept.write_text(json.dumps({"other/my key": KEY}))
    program.config.parent.mkdir()
    program.config.touch(mode=0o600)
    program.config.write_text(json.dumps(written))
    assert program.loaded(field) == (KEY, "")


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({}, "nothing is kept in the keyring as bubbles/openai"),
        ({own_keyring.MODE: "fails"}, "the keyring of this system cannot be used (RuntimeError)"),
        ({"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}, "cannot be used (there is none)"),
    ],
)
def test_a_key_that_cannot_be_had_counts_as_unset_and_says_why(program: Program, env: dict[str, str], why: str) -> None:
    program.config.parent.mkdir()
    program.config.touch(mode=0o600)
    program.config.write_text(json.dumps({"providers": {"openai": {"apiKey": "keyring:bubbles/openai"}}}))
    key, warnings = program.loaded("openai", **env)
    assert key == "None"
    assert why in warnings
    assert "providers.openai.api_key counts as unset" in warnings
    assert own_keyring.CANARY not in warnings


def test_a_keyring_that_does_not_answer_is_not_waited_for(program: Program) -> None:
    ask = "from bubbles.config.keys import *; look_up(KeyReference(service='a', name='b'), within_s=0.2)"
    done = program.python("-c", ask, **{own_keyring.MODE: "hangs"})
    assert done.stderr.splitlines()[-1].endswith("KeyringSilentError: the keyring did not answer within 0.2 seconds")


@pytest.mark.parametrize(
    ("argv", "stdin", "said"),
    [
        (("openai",), "\n", "the key is empty"),
        (("openai",), "two words \u2026\n", "one line of ASCII"),
        (("nobody",), KEY, "take one of anthropic"),
        (("openai_codex",), KEY, "'bubbles provider login openai_codex' is its way in"),
    ],
)
def test_what_is_no_key_is_refused_and_nothing_is_changed(
    program: Program, argv: tuple[str, ...], stdin: str, said: str
) -> None:
    done = program.key(*argv, stdin=stdin)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not program.config.exists()
    assert not program.kept.exists()


def test_a_damaged_file_costs_no_key(program: Program) -> None:
    assert program.key("openai", stdin=f"{KEY}\n").returncode == 0
    program.config.write_text('{"providers":')
    for argv, stdin in ((("openai",), "sk-another-key-of-somebody"), (("openai", "--remove"), "")):
        done = program.key(*argv, stdin=stdin)
        assert done.returncode == 2
        assert "is not valid JSON" in done.stderr
        assert json.loads(program.kept.read_text()) == {"bubbles/openai": KEY}


def test_a_key_that_is_kept_but_cannot_be_referred_to_is_told(program: Program) -> None:
    program.config.parent.write_text("in the way of the directory")
    done = program.key("openai", stdin=f"{KEY}\n")
    assert done.returncode == 1
    assert "The key is in the keyring as bubbles/openai, but not in use:" in done.stderr
    assert KEY not in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_a_keyring_the_sentence_names_another_way(program: Program) -> None:
    done = program.key("openai", stdin=KEY, PYTHON_KEYRING_BACKEND="keyring.backends.fail.Keyring")
    assert done.returncode == 1
    assert "--api-key-env OPENAI_API_KEY" in done.stderr
    assert KEY not in done.stderr
    assert not program.config.exists()


def test_a_reference_means_nothing_where_no_secret_is_expected(program: Program) -> None:
    program.kept.write_text(json.dumps({"bubbles/openai": KEY}))
    program.config.parent.mkdir()
    program.config.touch(mode=0o600)
    program.config.write_text(json.dumps({"agents": {"defaults": {"systemPrompt": "keyring:bubbles/openai"}}}))
    done = program.python(
        "-c", "from bubbles.config.load import load_settings as f; print(f().agents.defaults.system_prompt)"
    )
    assert done.stdout == "keyring:bubbles/openai\n"


@pytest.mark.needs("gnome-keyring", "dbus", "bash")
def test_the_secret_service_of_a_linux_desktop_keeps_keys(program: Program) -> None:
    reads = program.home / "reads.py"
    reads.write_text(READS)
    script = (
        "printf canary | gnome-keyring-daemon --unlock --components=secrets >/dev/null && "
        f"printf {KEY} | {sys.executable} -m bubbles provider key openai && {sys.executable} {reads} openai"
    )
    env = {name: value for name, value in program.env.items() if name != "PYTHON_KEYRING_BACKEND"}
    done = subprocess.run(
        ["dbus-run-session", "--", "bash", "-c", script],
        env={**env, "XDG_RUNTIME_DIR": str(program.home), "XDG_DATA_HOME": str(program.home / "share")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert KEY in done.stdout.splitlines()
    assert KEY not in program.config.read_text()
