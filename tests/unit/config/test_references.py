"""``${VAR}`` in config.json."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbles.config.keys import KeyReference, KeyringError, KeyringSilentError
from bubbles.config.references import References
from bubbles.config.schema import ProviderSettings
from tests.unit.config.test_load import loaded, refused, sandbox

pytestmark = pytest.mark.req("CFG-01")


def key(provider: ProviderSettings) -> str | None:
    return None if provider.api_key is None else provider.api_key.get_secret_value()


def test_a_reference_is_what_the_variable_holds_wherever_it_stands(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        {
            "providers": {
                "openai": {
                    "apiKey": "${OPENAI}",
                    "baseUrl": "https://${HOST}:${PORT}/v1",
                    "extraHeaders": {"X-Org": "org ${ORG}"},
                }
            },
            "channels": {"identities": {"anna": ["telegram:${ANNA}"]}},
            "agents": {"concurrency": "${PORT}"},
        },
        OPENAI="canary-1",
        HOST="models.example",
        PORT="8080",
        ORG="seven",
        ANNA="7",
    )
    openai = settings.providers.openai
    assert (key(openai), openai.base_url) == ("canary-1", "https://models.example:8080/v1")
    assert openai.extra_headers["X-Org"].get_secret_value() == "org seven"
    assert settings.channels.identities == {"anna": ("telegram:7",)}
    assert settings.agents.concurrency == 8080
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("$${HOME_OF}", "${HOME_OF}"),
        ("a $${ b ${X}", "a ${ b y"),
        ("$X $(X) ${X-1} ${} ${1} {X}", "$X $(X) ${X-1} ${} ${1} {X}"),
        ("${X}${X}", "yy"),
        ("${NESTED}", "${X}"),
    ],
)
def test_what_is_no_reference_stays_and_nothing_is_resolved_twice(tmp_path: Path, written: str, meant: str) -> None:
    config = {"agents": {"defaults": {"systemPrompt": written}}}
    assert loaded(tmp_path, config, X="y", NESTED="${X}").agents.defaults.system_prompt == meant


def test_names_are_no_references(tmp_path: Path) -> None:
    settings = loaded(tmp_path, {"channels": {"identities": {"${X}": ["slack:1"]}}}, X="y")
    assert list(settings.channels.identities) == ["${X}"]


@pytest.mark.parametrize("held", [{}, {"NOT_THERE": ""}])
def test_a_variable_that_is_not_set_unsets_its_field_and_is_named(tmp_path: Path, held: dict[str, str]) -> None:
    providers = {
        "openai": {"apiKey": "${NOT_THERE}", "extraHeaders": {"A": "${NOT_THERE}", "B": "b"}},
        "groq": {"apiKey": "x"},
    }
    settings = loaded(tmp_path, {"providers": providers}, **held)
    assert key(settings.providers.openai) is None
    assert list(settings.providers.openai.extra_headers) == ["B"]
    assert key(settings.providers.groq) == "x"
    assert settings.warnings == ()
    first, second = settings.provider_warnings
    for part in (str(tmp_path / ".bubbles" / "config.json"), "providers.openai.api_key", "NOT_THERE"):
        assert part in first
    assert "providers.openai.extra_headers.A" in second


def test_a_variable_that_overrides_the_field_makes_its_reference_irrelevant(tmp_path: Path) -> None:
    config = {"providers": {"openai": {"apiKey": "${NOT_THERE}"}}, **sandbox(backend="${NOR_THIS}")}
    settings = loaded(
        tmp_path, config, BUBBLES_PROVIDERS__OPENAI__API_KEY="canary", BUBBLES_TOOLS__SANDBOX__BACKEND="docker"
    )
    assert key(settings.providers.openai) == "canary"
    assert settings.tools.sandbox.backend == "docker"
    assert settings.warnings == settings.provider_warnings == ()


@pytest.mark.req("SBX-08")
@pytest.mark.parametrize("fields", [{"backend": "${GONE}"}, {"network": "${GONE}"}, {"limits": {"pids": "${GONE}"}}])
def test_a_wall_whose_variable_is_not_set_never_becomes_less_of_a_wall(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    message = refused(tmp_path, sandbox(**fields))
    assert "tools.sandbox." in message
    assert "GONE, which is not set: set it" in message


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize(("fault", "asked"), [(KeyringSilentError, 1), (KeyringError, 3)])
def test_a_keyring_that_does_not_answer_is_waited_for_once(fault: type[KeyringError], asked: int) -> None:
    questions: list[KeyReference] = []

    def look_up(reference: KeyReference) -> str:
        questions.append(reference)
        raise fault("no answer")

    references = References({}, lambda _: True, look_up)
    assert references.resolve({name: f"keyring:bubbles/{name}" for name in ("one", "two", "three")}) == {}
    assert [str(references.locked[name,]) for name in ("one", "two", "three")] == ["no answer"] * 3
    assert len(questions) == asked
