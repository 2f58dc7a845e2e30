"""No key of a person's is in an error, a warning, or what settings show (SEC-03)."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest

from bubbles.config.care import careful, looks_secret, shown
from bubbles.config.edit import change
from bubbles.config.schema import Settings
from bubbles.config.secrets import secrets_of
from bubbles.errors import BubblesError
from tests.unit.config.test_load import loaded

pytestmark = pytest.mark.req("SEC-03", "CFG-01")

CANARY = "hunter2-canary"
KEY_LIKE = "sk-proj-aBcDeF0123456789aBcDeF"


def told(home: Path, config: object, **variables: str) -> str:
    """All that a person or a log could get to see of this configuration."""
    try:
        settings = loaded(home, config, **variables)
    except BubblesError as error:
        return "".join(traceback.format_exception(error)) + repr(error.__context__) + repr(error.__cause__)
    return "\n".join(
        (repr(settings), str(settings), settings.model_dump_json(), *settings.warnings, *settings.provider_warnings)
    )


@pytest.mark.parametrize(
    "config",
    [
        {"providers": CANARY},
        {"providers": [CANARY]},
        {"providers": {"openai": CANARY}},
        {"providers": {"openai": [CANARY]}},
        {"providers": {"openai": {"apiKey": [CANARY]}}},
        {"providers": {"openai": {"apiKey": {"key": CANARY}}}},
        {"providers": {"openai": {"apiKey": CANARY}, "groq": 5}},
        {"providers": {"openai": {"apiKey": f"{CANARY}\nX"}}},
        {"providers": {"openai": {"apiKey": f"{CANARY}\u2026"}}},
        {"providers": {"openai": {"extraHeaders": CANARY}}},
        {"providers": {"openai": {"extraHeaders": [CANARY]}}},
        {"providers": {"openai": {"extraHeaders": {"X-Key": [CANARY]}}}},
        {"providers": {"openai": {"extraHeaders": {"X-Key": f"{CANARY}\r\nX: y"}}}},
        {"providers": {"openai": {"extraHeaders": {"X Key": CANARY}}}},
        {"providers": {"openai": {"extraHeaders": {f"X {KEY_LIKE}": "x"}}}},
        {"providers": {"openai": {"baseUrl": f"ftp://me:{CANARY}@host/"}}},
        {"providers": {"openai": {"baseUrl": f"https://me:{CANARY}@host/"}, "groq": 5}},
        {"providers": {"openai": {"baseUrl": KEY_LIKE}}},
        {"providers": {KEY_LIKE: {}}},
        {"providers": {"openai": {KEY_LIKE: 1}}},
        {"tools": CANARY},
        {"tools": {"web": CANARY}},
        {"tools": {"web": {"searchApiKey": {"x": CANARY}}}},
        {"tools": [{"web": {"searchApiKey": CANARY}}]},
        {"gateway": {"port": KEY_LIKE}},
        {"gateway": {"port": "${SECRET}"}},
        {"agents": {"defaults": {"temperature": "${SECRET}"}}},
        {"tools": {"sandbox": {"network": "x-${SECRET}"}}},
        {"tools": {"sandbox": {"toolDirs": ["/ok", "${SECRET}"]}}},
        {"channels": {"identities": {"anna": "${SECRET}"}}},
        CANARY,
        f'"{CANARY}"',
        f'{{"providers": {{"openai": {{"apiKey": "{CANARY}" "x": 1}}',
        f'{{"providers": {{"openai": {{"apiKey": "{CANARY}',
        [CANARY],
    ],
)
def test_no_wrong_file_makes_a_sentence_with_a_key(tmp_path: Path, config: object) -> None:
    text = told(tmp_path, config, SECRET=CANARY)
    assert CANARY not in text
    assert KEY_LIKE not in text


@pytest.mark.parametrize(
    "variables",
    [
        {"BUBBLES_PROVIDERS__OPENAI__API_KEY": f"{CANARY}\nx"},
        {"BUBBLES_PROVIDERS__OPENAI__EXTRA_HEADERS": CANARY},
        {"BUBBLES_PROVIDERS__OPENAI__EXTRA_HEADERS": f'["{CANARY}"]'},
        {"BUBBLES_PROVIDERS__OPENAI__BASE_URL": KEY_LIKE},
        {"BUBBLES_PROVIDERS__OPENAI": CANARY},
        {"BUBBLES_TOOLS__WEB__SEARCH_API_KEY": f"\u00e9{CANARY}"},
    ],
)
def test_no_wrong_variable_makes_a_sentence_with_a_key(tmp_path: Path, variables: dict[str, str]) -> None:
    text = told(tmp_path, {}, **variables)
    assert CANARY not in text
    assert KEY_LIKE not in text
    assert next(iter(variables)) in text


@pytest.mark.parametrize("value", [CANARY + "\n.", [CANARY], {"a": CANARY}])
def test_b118_a_change_that_is_refused_shows_no_key_either(tmp_path: Path, value: object) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"providers": {"openai": {"apiKey": CANARY}}}))
    for names in (("providers", "groq", "api_key"), ("agents", "concurrency"), ("providers", "openai")):
        given = value if names[0] == "providers" else "many"
        with pytest.raises(BubblesError) as caught:
            change(path, names, given)
        assert CANARY not in "".join(traceback.format_exception(caught.value))


def full(home: Path) -> Settings:
    return loaded(
        home,
        {
            "providers": {
                "openai": {
                    "apiKey": "${SECRET}",
                    "extraHeaders": {
                        "Authorization": "Bearer token-of-header",
                        "X-Title": "Bubbles",
                        "HTTP-Referer": "https://bubbles.example/2",
                        "X-Whatever": "aB3dE5fG7hI9jK1",
                    },
                },
                "custom": {
                    "baseUrl": "https://me:pass%20word@host/v1?v=2024&api-key=key%2Bof%2Bquery&sig=",
                    "apiKey": " key-with-blanks\n",
                },
                "vllm": {"baseUrl": "https://login-as-key@host/v1", "apiKey": ""},
            },
            "tools": {"web": {"searchApiKey": "search-key"}},
            "channels": {"telegram": {"token": "77:token-of-bot", "proxy": "socks5://me:proxy-word@host:1080"}},
            "gateway": {"token": "token-of-the-gateway-0123456789abcdef"},
        },
        SECRET=CANARY,
    )


def test_secrets_of_settings_are_all_keys_and_whatever_looks_like_one(tmp_path: Path) -> None:
    assert set(secrets_of(full(tmp_path))) == {
        CANARY,
        "Bearer token-of-header",
        "token-of-header",
        "aB3dE5fG7hI9jK1",
        "pass%20word",
        "pass word",
        "key-with-blanks",
        "key%2Bof%2Bquery",
        "key+of+query",
        "login-as-key",
        "search-key",
        "77:token-of-bot",
        "proxy-word",
        "token-of-the-gateway-0123456789abcdef",
    }


def test_settings_show_no_secret_of_theirs(tmp_path: Path) -> None:
    settings = full(tmp_path)
    text = repr(settings) + str(settings) + repr(settings.providers) + repr(settings.providers.custom)
    assert not [secret for secret in secrets_of(settings) if secret in text]


def test_an_empty_key_is_no_key(tmp_path: Path) -> None:
    assert full(tmp_path).providers.vllm.api_key is None


@pytest.mark.parametrize(
    "text",
    [
        KEY_LIKE,
        "ghp_0123456789abcdefghij",
        "AKIAIOSFODNN7EXAMPLE",
        "https://me:secret@host",
        "0f8b1f0e-7f3c-4d55-9a55-000000000000",
        "QWxhZGRpbjpvcGVuIHNlc2FtZQ1=",
    ],
)
def test_what_looks_like_a_key_is_not_shown_wherever_it_stands(text: str) -> None:
    assert looks_secret(text)
    assert text not in shown([text])
    assert text not in careful(f"it is {text}, in a sentence")


@pytest.mark.parametrize(
    "text", ["/home/anna/project-2024/tools", "docker", "unix:///var/run/docker.sock", "512MiB", "anthropic/claude-4"]
)
def test_ordinary_values_are_shown_as_they_are(text: str) -> None:
    assert careful(text) == text


def test_a_long_value_is_cut() -> None:
    assert len(shown("x " * 1_000_000)) <= 80
