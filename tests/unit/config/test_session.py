"""A session's own settings, and ``/config`` (SESS-03)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bubbles.config.schema import SessionSettings
from bubbles.config.session import change_session_setting, load_session_settings
from bubbles.errors import ConfigError

pytestmark = pytest.mark.req("SESS-03")

KNOWN = {"sandbox": ("local", "docker"), "provider": ("openai", "custom")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session_state" / "work" / "config.json"


def test_without_a_file_nothing_differs_and_nothing_is_made(path: Path) -> None:
    assert load_session_settings(path) == (SessionSettings(), ())
    assert change_session_setting(path, "model", "default") == SessionSettings()
    assert not path.parent.exists()


@pytest.mark.parametrize("key", ["system_prompt", "systemPrompt"])
def test_a_setting_is_written_in_either_spelling_and_removed_again(path: Path, key: str) -> None:
    text = "Answer in verse.\nNever rhyme ${HOME} with $${x}."
    assert change_session_setting(path, key, f" {text} ").system_prompt == text
    assert json.loads(path.read_text()) == {"systemPrompt": text}
    assert path.stat().st_mode & 0o777 == 0o600
    change_session_setting(path, "model", "m")
    assert change_session_setting(path, key, "").system_prompt is None
    assert json.loads(path.read_text()) == {"model": "m"}
    assert change_session_setting(path, "model", "default").model is None


@pytest.mark.req("SEC-03")
def test_a_chat_cannot_ask_for_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    change_session_setting(path, "system_prompt", "${OPENAI_API_KEY}")
    assert load_session_settings(path)[0].system_prompt == "${OPENAI_API_KEY}"


def test_what_is_not_ours_stays_and_is_told(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text('{"later" : 1,\t"model":"a", "model":"b"}')
    assert change_session_setting(path, "model", "c").model == "c"
    assert path.read_text() == '{"later" : 1,\t"model":"a", "model":"c"}'
    warnings = load_session_settings(path)[1]
    assert "later is not a setting" in warnings[0]
    assert "model is written twice" in warnings[1]


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("colour", "red", "colour is no setting of a session: take one of model, provider, system_prompt, sandbox."),
        ("sandbox", "vm", 'sandbox "vm" is not known: take one of local, docker.'),
        ("provider", "opanai", 'provider "opanai" is not known: take one of openai, custom.'),
        ("model", "a\nb", "write it on one line"),
        ("model", "half \udc80", "write it on one line"),
        ("system_prompt", "half \udc80", "nothing was changed"),
        ("system_prompt", "x" * (1 << 20), "would be larger"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(path: Path, key: str, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        change_session_setting(path, key, text, KNOWN)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not path.exists()


def test_known_names_are_taken(path: Path) -> None:
    assert change_session_setting(path, "sandbox", "docker", KNOWN).sandbox == "docker"
    assert change_session_setting(path, "provider", "custom", KNOWN).provider == "custom"


@pytest.mark.parametrize("damage", ["{", "[]", '{"model": 5}', '{"sandbox": ""}'])
def test_a_damaged_file_is_told_and_left(path: Path, damage: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(damage)
    with pytest.raises(ConfigError, match=r"config\.json"):
        load_session_settings(path)
    if damage != '{"model": 5}':
        with pytest.raises(ConfigError):
            change_session_setting(path, "model", "m")
        assert path.read_text() == damage
