"""Which provider answers for a model, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.config.load import load_settings
from bubbles.config.schema import FileSettings, Settings
from bubbles.errors import ConfigError
from bubbles.providers.build import make_provider, provider_for
from bubbles.providers.by_litellm.client import LitellmProvider
from bubbles.providers.copilot_client import CopilotProvider
from bubbles.providers.custom_client import CustomProvider
from bubbles.providers.registry import REGISTRY, Kind, spelled
from bubbles.providers.responses.codex import CodexProvider
from bubbles.providers.retry import Retrying
from bubbles.providers.select import Choice, choose, configured

KEY = "sk-invented-0123456789"


def settings(*keys: str, urls: dict[str, str] | None = None, **defaults: Any) -> Settings:
    """Settings in which these providers have a key, and those of ``urls`` an address."""
    providers: dict[str, Any] = {name: {"api_key": KEY} for name in keys}
    for name, url in (urls or {}).items():
        providers.setdefault(name, {})["base_url"] = url
    chosen = FileSettings.model_validate({"agents": {"defaults": defaults}, "providers": providers})
    return Settings(
        **{name: getattr(chosen, name) for name in FileSettings.model_fields},
        data_dir=Path("/nonexistent"),
        person_home=Path("/nonexistent"),
        host_env={},
    )


def refusal(where: Settings, **asked: str) -> str:
    with pytest.raises(ConfigError) as caught:
        choose(where, **asked)
    return str(caught.value)


@pytest.mark.req("PROV-02")
@pytest.mark.parametrize(
    ("keys", "model", "provider", "sent", "because"),
    [
        (
            ["anthropic", "openai"],
            "anthropic/claude-sonnet-5-5",
            "anthropic",
            "claude-sonnet-5-5",
            "prefix 'anthropic/'",
        ),
        (["deepseek", "openai"], "deepseek/deepseek-chat", "deepseek", "deepseek-chat", "prefix 'deepseek/'"),
        (["openrouter", "anthropic"], "openrouter/anthropic/claude-x", "openrouter", "anthropic/claude-x", "prefix"),
        (["groq", "openai"], "groq/openai/gpt-oss-120b", "groq", "openai/gpt-oss-120b", "prefix 'groq/'"),
        (["zhipu", "openai"], "z-ai/glm-4.6", "zhipu", "glm-4.6", "prefix 'z-ai/'"),
        (["gemini", "openai"], "Google/gemini-2.5-pro", "gemini", "gemini-2.5-pro", "prefix 'Google/'"),
        (["anthropic", "openai"], "claude-sonnet-5-5", "anthropic", "claude-sonnet-5-5", "'claude'"),
        (["anthropic", "openai"], "gpt-5.1", "openai", "gpt-5.1", "'gpt-'"),
        (["anthropic", "openai"], "o3", "openai", "o3", "'o3'"),
        (["gemini", "openai"], "gemini-2.5-flash", "gemini", "gemini-2.5-flash", "'gemini'"),
        (["moonshot", "openai"], "kimi-k2-0905-preview", "moonshot", "kimi-k2-0905-preview", "'kimi'"),
        (["minimax", "openai"], "MiniMax-M2", "minimax", "MiniMax-M2", "'minimax'"),
        (["zhipu", "openai"], "glm-4.6", "zhipu", "glm-4.6", "'glm'"),
        (["dashscope", "openai"], "qwen3-max", "dashscope", "qwen3-max", "'qwen'"),
        (["dashscope", "openai"], "qwq-plus", "dashscope", "qwq-plus", "'qwq'"),
        (["groq"], "llama-3.3-70b-versatile", "groq", "llama-3.3-70b-versatile", "only provider"),
        (["siliconflow"], "THUDM/chat-9b", "siliconflow", "THUDM/chat-9b", "only provider"),
        (["openrouter"], "claude-sonnet-5-5", "openrouter", "claude-sonnet-5-5", "means anthropic, which has no key"),
        (["openrouter"], "openai/gpt-5", "openrouter", "openai/gpt-5", "names openai, which has no key"),
        (["openrouter", "deepseek"], "openai/gpt-5", "openrouter", "openai/gpt-5", "names openai, which has no key"),
        ([], "ollama/llama3.1", "ollama", "llama3.1", "prefix 'ollama/'"),
        (["anthropic"], "vllm/Qwen/Qwen3-8B", "vllm", "Qwen/Qwen3-8B", "prefix 'vllm/'"),
    ],
)
def test_the_model_chooses(keys: list[str], model: str, provider: str, sent: str, because: str) -> None:
    choice = choose(settings(*keys, model=model))
    assert (choice.provider, choice.model, choice.model_given) == (provider, sent, model)
    assert because in choice.reason


@pytest.mark.parametrize("model", ["turbo1-x", "photo3", "my-tuned-model", "gpt-oss:20b", "foo3-large"])
def test_a_word_that_only_occurs_within_another_is_no_keyword(model: str) -> None:
    assert "several" not in choose(settings("groq", model=model)).reason
    assert choose(settings("groq", model=model)).provider == "groq"


@pytest.mark.req("PROV-02")
@pytest.mark.parametrize(
    ("provider", "model", "sent"),
    [
        ("deepseek", "deepseek/deepseek-chat", "deepseek-chat"),
        ("openrouter", "openrouter/anthropic/claude-x", "anthropic/claude-x"),
        ("openrouter", "anthropic/claude-x", "anthropic/claude-x"),
        ("zhipu", "zai/glm-4.6", "glm-4.6"),
        ("anthropic", "gpt-5", "gpt-5"),
        ("OpenAI", "whatever", "whatever"),
    ],
)
def test_a_provider_that_is_named_wins(provider: str, model: str, sent: str) -> None:
    everything = settings(*(name for name, entry in REGISTRY.items() if entry.needs_key))
    choice = choose(everything, model=model, provider=provider)
    assert (choice.provider, choice.model) == (provider.lower(), sent)
    assert choice == choose(settings(provider.lower(), model=model, provider=provider))
    assert choice.reason == f"provider is set to {provider.lower()}"


def test_what_is_asked_for_beats_the_defaults() -> None:
    here = settings("anthropic", "openai", model="gpt-5", provider="openai")
    assert choose(here).provider == "openai"
    assert choose(here, model="claude-x", provider="anthropic").model == "claude-x"


@pytest.mark.req("PROV-09")
def test_another_provider_is_one_line_of_model_and_one_key() -> None:
    assert choose(settings("anthropic", model="anthropic/claude-x")).provider == "anthropic"
    assert choose(settings("anthropic", "deepseek", model="deepseek/deepseek-chat")).provider == "deepseek"


@pytest.mark.req("PROV-03")
def test_a_provider_by_login_is_chosen_only_by_name() -> None:
    with_login = settings("github_copilot", urls={"openai_codex": "https://login.example"})
    assert configured(with_login) == ()
    assert "'bubbles provider login openai_codex'" in refusal(with_login, model="some-model")
    assert "needs a key of openai" in refusal(with_login, model="gpt-5")
    for asked, name in (
        ({"model": "github-copilot/gpt-5"}, "github_copilot"),
        ({"model": "gpt-5", "provider": "openai_codex"}, "openai_codex"),
    ):
        for here in (settings(), settings("openai"), with_login):
            choice = choose(here, **asked)
            assert (choice.provider, choice.model) == (name, "gpt-5")


@pytest.mark.parametrize(
    ("keys", "asked", "said"),
    [
        (
            [],
            {},
            "No model is set: run 'bubbles onboard --model anthropic/claude-sonnet-5-5 --api-key-env ANTHROPIC_AP",
        ),
        ([], {"model": "  "}, "No model is set"),
        (
            [],
            {"model": "gpt-5"},
            "and none is set: export OPENAI_API_KEY and run 'bubbles onboard --provider openai --api-key-env OPENAI_",
        ),
        (["deepseek"], {"model": "claude-x"}, "needs a key of anthropic"),
        (["anthropic"], {"model": "deepseek/deepseek-chat"}, "needs a key of deepseek"),
        ([], {"model": "some-model"}, "No provider is configured"),
        (["groq", "openai"], {"model": "llama-3"}, "openai, groq are configured: set agents.defaults.provider"),
        (["openrouter", "aihubmix"], {"model": "claude-x"}, "openrouter, aihubmix are configured"),
        (["deepseek", "dashscope"], {"model": "deepseek-r1-distill-qwen-32b"}, "deepseek, dashscope are configured"),
        (["openai"], {"model": "x", "provider": "opnai"}, "did you mean openai?"),
        (["openai"], {"model": "x", "provider": "??"}, "known are anthropic, openai"),
        (["openai"], {"model": "x", "provider": "gemini"}, "needs a key of gemini"),
        ([], {"model": "x", "provider": "custom"}, "set providers.custom.baseUrl"),
        ([], {"model": "custom/x"}, "set providers.custom.baseUrl"),
        (["openai"], {"model": "openai/"}, "only a provider's name"),
        (["openai"], {"model": "a\nb"}, "is no model's name"),
        (["openai"], {"model": "x" * 300}, "is no model's name"),
    ],
)
def test_where_nothing_can_be_chosen_one_sentence_says_why(keys: list[str], asked: dict[str, str], said: str) -> None:
    sentence = refusal(settings(*keys), **asked)
    assert said in sentence
    assert "\n" not in sentence
    assert KEY not in sentence


@pytest.mark.req("CFG-01")
@pytest.mark.parametrize(
    ("written", "model", "said"),
    [
        ({"openai": {"apiKey": "${MY_KEY}"}}, "gpt-5", "needs a key of openai, and none is set; export MY_KEY=…: the"),
        ({"groq": {"apiKey": "${MY_KEY}"}}, "llama-3", "export MY_KEY=…: the configuration takes the key of groq from"),
        ({"custom": {"baseUrl": "${PLACE}"}}, "custom/x", "export PLACE=…: the configuration takes the address from"),
        ({"gemini": {"apiKey": "${MY_KEY}"}}, "gpt-5", "export OPENAI_API_KEY and run"),
    ],
)
def test_a_variable_that_the_configuration_waits_for_is_what_is_asked_for(
    tmp_path: Path, written: dict[str, Any], model: str, said: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"providers": written}))
    sentence = refusal(load_settings({"HOME": str(tmp_path), "BUBBLES_HOME": str(tmp_path)}), model=model)
    assert said in sentence


def test_a_key_for_a_sessions_own_model_leaves_the_provider_of_the_others() -> None:
    sentence = refusal(settings("anthropic", model="claude-x"), model="openai/gpt-5")
    assert "--provider" not in sentence
    assert "set providers.openai.apiKey to ${OPENAI_API_KEY} in config.json" in sentence


def test_an_empty_key_is_none() -> None:
    empty = FileSettings.model_validate({"providers": {"openai": {"api_key": ""}}}).providers
    assert "needs a key" in refusal(settings().model_copy(update={"providers": empty}), model="gpt-5")


def test_an_address_of_ones_own_needs_no_key() -> None:
    behind_a_proxy = settings(urls={"openai": "http://proxy.example/v1"})
    assert choose(behind_a_proxy, model="gpt-5").provider == "openai"
    assert (
        choose(settings(urls={"custom": "http://nas:8080/v1"}), model="openai/gpt-oss-20b").model
        == "openai/gpt-oss-20b"
    )


NAMES = st.sampled_from([*REGISTRY, "OpenAI-Codex", "nobody", "", " ", "/"])
WORDS = st.sampled_from([word for entry in REGISTRY.values() for word in (*entry.keywords, *entry.prefixes)])
MODELS = st.one_of(
    st.text(max_size=30), st.builds("{}/{}".format, NAMES, st.text(max_size=12)), st.builds("{}{}".format, WORDS, NAMES)
)


@pytest.mark.req("PROV-02", "PROV-03")
@given(
    keys=st.sets(st.sampled_from(list(REGISTRY)), max_size=4),
    urls=st.sets(st.sampled_from(list(REGISTRY)), max_size=2),
    model=st.none() | MODELS,
    provider=st.none() | NAMES | st.text(max_size=10),
)
def test_a_choice_is_usable_and_has_a_reason_or_there_is_a_sentence(
    keys: set[str], urls: set[str], model: str | None, provider: str | None
) -> None:
    here = settings(*keys, urls=dict.fromkeys(urls, "http://nas:1/v1"))
    try:
        choice = choose(here, model=model, provider=provider)
    except ConfigError as error:
        sentence = str(error)
        assert sentence.strip()
        assert "\n" not in sentence
        return
    entry = REGISTRY[choice.provider]
    assert choice.reason.strip()
    assert choice.model.strip()
    if entry.kind is Kind.LOGIN:
        named = provider if provider and provider.strip() else (model or "").strip().partition("/")[0]
        assert spelled(named) == entry.name
    assert entry.name in keys | urls or not entry.needs_key
    assert make_provider(choice, here).name == choice.provider


@pytest.mark.req("PROV-04")
def test_custom_and_the_logins_have_their_own_clients_and_the_others_go_through_litellm() -> None:
    here = settings("deepseek", urls={"custom": "http://nas:1"}, max_retries=3)
    for name, kind in (
        ("custom", CustomProvider),
        ("deepseek", LitellmProvider),
        ("ollama", LitellmProvider),
        ("openai_codex", CodexProvider),
        ("github_copilot", CopilotProvider),
    ):
        choice = choose(here, model=f"{name}/m")
        assert isinstance(make_provider(choice, here), kind)
        provider = provider_for(here, choice)
        assert isinstance(provider, Retrying)
        assert provider.name == name


def test_a_choice_that_nobody_can_serve_is_refused() -> None:
    wrong = settings(urls={"openai_codex": "http://:80/x", "github_copilot": "http://h:x"})
    for name, said in (
        ("custom", "has no address"),
        ("openai_codex", "providers.openai_codex.baseUrl is no address"),
        ("github_copilot", "providers.github_copilot.baseUrl is no address"),
    ):
        with pytest.raises(ConfigError, match=said):
            make_provider(Choice(provider=name, model="m", model_given="m", reason="-"), wrong)


@pytest.mark.req("SEC-03", "PROV-03")
@pytest.mark.parametrize("name", ["openai_codex", "github_copilot"])
def test_the_token_of_a_login_is_never_sent_without_encryption_to_another_machine(name: str) -> None:
    choice = Choice(provider=name, model="m", model_given="m", reason="-")
    for url in (
        "http://10.0.0.7:8080/v1",
        "http://example.org",
        "http://localhost.example.org",
        "http://127.0.0.1@e.org",
    ):
        with pytest.raises(ConfigError, match=f"providers.{name}.baseUrl is no address that tokens may go to"):
            make_provider(choice, settings(urls={name: url}))
    for url in ("https://example.org/v1", "http://127.0.0.1:8080", "http://localhost:1"):
        assert make_provider(choice, settings(urls={name: url})).name == name
