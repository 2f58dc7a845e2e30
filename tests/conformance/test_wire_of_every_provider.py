"""One request on the wire for every provider, as that vendor wants it, and a reply with a tool call of every family."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bubbles.providers.by_litellm.client import LitellmProvider
from bubbles.providers.contract import (
    AssistantMessage,
    Category,
    Image,
    Message,
    ModelReply,
    ModelRequest,
    Provider,
    ProviderError,
    Stop,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from bubbles.providers.copilot_client import CopilotProvider
from bubbles.providers.custom_client import CustomProvider
from bubbles.providers.logins.contract import Access
from bubbles.providers.registry import REGISTRY, Entry, Kind, Wire
from bubbles.providers.responses.codex import CodexProvider
from tests.own_login import OwnLogin
from tests.playback import Answer, Ending, Playback, playing, stream
from tests.providers_wire import ANTHROPIC, GEMINI, OPENAI, RESPONSES, replies

ROOT = Path(__file__).parents[2]
KEY = "sk-invented-0123456789abcdef"
TOOL = ToolSpec(name="f", description="Does.", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
HELLO: tuple[Message, ...] = (UserMessage(text="Hello, canary-of-the-prompt"),)
COMPLETIONS = "/chat/completions"
WIRES: dict[str, tuple[str, str, str]] = {
    "anthropic": ("https://api.anthropic.com", "/v1/messages", "some-model"),
    "openai": ("https://api.openai.com", "/v1/chat/completions", "some-model"),
    "gemini": (
        "https://generativelanguage.googleapis.com",
        "/v1beta/models/some-model:streamGenerateContent?alt=sse",
        "",
    ),
    "deepseek": ("https://api.deepseek.com", "/chat/completions", "some-model"),
    "groq": ("https://api.groq.com", "/openai/v1/chat/completions", "some-model"),
    "moonshot": ("https://api.moonshot.ai", "/v1/chat/completions", "some-model"),
    "minimax": ("https://api.minimax.io", "/v1/chat/completions", "some-model"),
    "zhipu": ("https://open.bigmodel.cn", "/api/paas/v4/chat/completions", "some-model"),
    "dashscope": ("https://dashscope.aliyuncs.com", "/compatible-mode/v1/chat/completions", "some-model"),
    "openrouter": ("https://openrouter.ai", "/api/v1/chat/completions", "some-model"),
    "aihubmix": ("https://aihubmix.com", "/v1/chat/completions", "some-model"),
    "siliconflow": ("https://api.siliconflow.cn", "/v1/chat/completions", "some-model"),
    "volcengine": ("https://ark.cn-beijing.volces.com", "/api/v3/chat/completions", "some-model"),
    "custom": ("", "/v1/chat/completions", "some-model"),
    "ollama": ("http://localhost:11434", "/v1/chat/completions", "some-model"),
    "vllm": ("http://localhost:8000", "/v1/chat/completions", "some-model"),
    "openai_codex": ("https://chatgpt.com", "/backend-api/codex/responses", "some-model"),
    "github_copilot": ("https://api.githubcopilot.com", "/chat/completions", "some-model"),
}
"""For each name: the server that it calls unless told otherwise, the target there, and ``model`` in the body."""
KEY_HEADERS = {Wire.ANTHROPIC: ("x-api-key", KEY), Wire.GEMINI: ("x-goog-api-key", KEY)}
ABOUT_US = ("x-stainless-", "http-referer", "x-title")


def made(entry: Entry, server: Playback, **more: Any) -> Provider:
    path = urlsplit(entry.base_url or "").path
    if entry.kind is Kind.LOGIN:
        more.pop("api_key", None)
        login = OwnLogin(Access(token=KEY))
        if entry.wire is Wire.RESPONSES:
            return CodexProvider(login, base_url=server.url + path, request_timeout_s=15.0, **more)
        return CopilotProvider(login, usual=server.url + path, request_timeout_s=15.0, **more)
    settings = {"base_url": server.url + path, "api_key": KEY, "request_timeout_s": 15.0, **more}
    return LitellmProvider(entry, **settings) if entry.litellm else CustomProvider(entry.name, **settings)


async def asked(provider: Provider, messages: tuple[Message, ...] = HELLO, **more: Any) -> ModelReply:
    request = {"model": "some-model", "system": "Be brief.", "tools": (TOOL,), "messages": messages, **more}
    try:
        return await provider.complete(ModelRequest(**request))
    finally:
        await provider.aclose()


@pytest.mark.req("PROV-01", "PROV-09", "SEC-01")
@pytest.mark.parametrize("name", REGISTRY)
async def test_a_request_is_what_the_vendor_wants_and_a_tool_call_comes_back(name: str) -> None:
    entry = REGISTRY[name]
    server_usual, target, model = WIRES[name]
    async with playing(replies(entry.wire)) as server:
        provider = made(entry, server, extra_headers={"X-Organisation": "ours"})
        reply = await asked(provider)
    [request] = server.requests
    assert (request.method, request.target) == ("POST", target)
    header, value = KEY_HEADERS.get(entry.wire, ("Authorization", f"Bearer {KEY}"))
    assert request.header(header) == value
    assert request.header("X-Organisation") == "ours"
    assert request.header(
        "User-Agent",
    ).startswith("bubbles/")  # type: ignore[union-attr]
    assert [key for key, _ in request.headers if key.lower().startswith(ABOUT_US)] == []
    assert f"{request.headers}".count(KEY) == 1
    assert request.json.get("model", "") == model
    assert "Be brief." in request.body.decode()
    if entry.name != "custom":
        usual = urlsplit((LitellmProvider(entry).base_url if entry.litellm else entry.base_url) or "")
        assert f"{usual.scheme}://{usual.netloc}" == server_usual
        assert target.startswith(usual.path)
    [call] = reply.message.tool_calls
    assert (call.name, json.loads(call.arguments), reply.stop) == ("f", {"a": 1}, Stop.TOOL_CALLS)
    assert (reply.message.text, reply.message.provider) == ("Hello", name)
    assert reply.usage == Usage(input_tokens=10, output_tokens=5, cached_tokens=4)


async def test_anthropic_gets_its_version_its_system_prompt_apart_and_its_thinking_back() -> None:
    async with playing(replies(Wire.ANTHROPIC)) as server:
        provider = made(REGISTRY["anthropic"], server)
        first = await asked(provider)
        [call] = first.message.tool_calls
        picture = Image(media_type="image/png", data=b"\x89PNG")
        result = ToolMessage(call_id=call.id, name="f", text="42", images=(picture,))
        await asked(provider, (*HELLO, first.message, result), tools=())
    one, two = server.requests
    assert one.header("anthropic-version") == "2023-06-01"
    assert [part["text"] for part in one.json["system"]] == ["Be brief."]
    assert one.json["tools"][0]["input_schema"] == TOOL.parameters
    assert one.json["max_tokens"] >= 8_000
    assert one.json["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert two.json["tools"]  # without any it refuses a history that has calls
    _, said, given = two.json["messages"]
    assert [part["type"] for part in said["content"]] == ["thinking", "text", "tool_use"]
    assert said["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    assert [part["type"] for part in given["content"]] == ["tool_result", "text", "image"]
    assert given["content"][0]["tool_use_id"] == call.id == "toolu_1"
    assert given["content"][2]["source"] == {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}


async def test_gemini_gets_its_signature_back_with_the_call() -> None:
    async with playing(replies(Wire.GEMINI)) as server:
        provider = made(REGISTRY["gemini"], server)
        first = await asked(provider, model="gemini-9-pro")
        [call] = first.message.tool_calls
        assert "U0lH" not in call.id
        result = ToolMessage(call_id=call.id, name="f", text="42")
        await asked(provider, (*HELLO, first.message, result), model="gemini-9-pro")
    sent = server.requests[1].json
    assert sent["system_instruction"]["parts"] == [{"text": "Be brief."}]
    parts = sent["contents"][1]["parts"]
    assert parts[0] == {"text": "Hello"}
    assert (parts[1]["function_call"]["args"], parts[1]["thoughtSignature"]) == ({"a": 1}, "U0lH")
    assert sent["contents"][2]["parts"][0]["function_response"]["response"] == {"content": "42"}


async def test_openais_newer_api_is_used_for_models_that_want_it_and_keeps_nothing() -> None:
    async with playing(stream(*RESPONSES, done=False)) as server:
        provider = made(REGISTRY["openai"], server)
        first = await asked(provider, model="gpt-5-codex")
        [call] = first.message.tool_calls
        await asked(
            provider, (*HELLO, first.message, ToolMessage(call_id=call.id, name="f", text="42")), model="o3-pro"
        )
    assert (first.message.text, first.stop, first.usage.cached_tokens) == ("Hello", Stop.TOOL_CALLS, 4)
    assert [request.target for request in server.requests] == ["/v1/responses"] * 2
    assert [request.json["store"] for request in server.requests] == [False, False]
    assert server.requests[0].header("Authorization") == f"Bearer {KEY}"
    kinds = [item["type"] for item in server.requests[1].json["input"]]
    assert kinds == ["message", "message", "message", "function_call", "function_call_output"]


async def test_reasoning_goes_back_to_the_provider_that_gave_it_and_to_no_other() -> None:
    thought = AssistantMessage(text="Yes.", vendor={"reasoning_content": "Because."}, provider="moonshot")
    async with playing(replies(Wire.OPENAI)) as server:
        for name in ("moonshot", "zhipu"):
            await asked(made(REGISTRY[name], server), (*HELLO, thought, UserMessage(text="Why?")))
    own, other = (request.json["messages"][2] for request in server.requests)
    assert own == {"role": "assistant", "content": "Yes.", "reasoning_content": "Because."}
    assert other == {"role": "assistant", "content": "Yes."}


async def test_what_a_model_invented_is_sent_back_in_a_form_that_every_vendor_takes() -> None:
    bad = AssistantMessage(text="", tool_calls=(ToolCall(id="c1", name="no such/tool!", arguments='{"a": '),))
    history = (*HELLO, bad, ToolMessage(call_id="c1", name="no such/tool!", text="No.", is_error=True))
    for wire in Wire:
        async with playing(replies(wire)) as server:
            await asked(made(next(entry for entry in REGISTRY.values() if entry.wire is wire), server), history)
        body = server.requests[0].body.decode()
        assert "no_such_tool_" in body
        assert "not_valid_json" in body


async def test_extra_headers_win_and_a_server_without_a_key_gets_none() -> None:
    async with playing(replies(Wire.OPENAI)) as server:
        await asked(made(REGISTRY["ollama"], server, api_key=None))
        await asked(made(REGISTRY["openai"], server, extra_headers={"Authorization": "Token x", "X-Title": "mine"}))
    none, own = server.requests
    assert none.header("Authorization") is None
    assert (own.header("Authorization"), own.header("X-Title")) == ("Token x", "mine")


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("ollama", "http://nas:11434", "http://nas:11434/v1"),
        ("vllm", "http://nas:8000/", "http://nas:8000/v1"),
        ("openai", "https://proxy.example/openai/v1/chat/completions", "https://proxy.example/openai/v1"),
        ("deepseek", "https://api.deepseek.com/", "https://api.deepseek.com"),
        ("gemini", "https://proxy.example", "https://proxy.example/v1beta"),
        ("anthropic", "https://proxy.example/a/", "https://proxy.example/a"),
    ],
)
def test_an_address_may_be_written_as_people_write_it(name: str, written: str, meant: str) -> None:
    assert LitellmProvider(REGISTRY[name], base_url=written).base_url == meant


@pytest.mark.parametrize("wire", Wire, ids=lambda wire: wire.value)
@pytest.mark.parametrize(("cut", "category"), [(True, Category.UNAVAILABLE), (False, Category.UNAVAILABLE)])
async def test_b091_half_a_reply_is_a_failure_however_politely_it_ends(
    wire: Wire, cut: bool, category: Category
) -> None:
    halves = {Wire.OPENAI: OPENAI[:1], Wire.ANTHROPIC: ANTHROPIC[:6], Wire.GEMINI: GEMINI[:2]}
    half = {**halves, Wire.RESPONSES: RESPONSES[:4]}[wire]
    ending = Ending.CLOSE if cut else Ending.KEEP
    entry = next(entry for entry in REGISTRY.values() if entry.wire is wire)
    async with playing(stream(*half, done=False, ending=ending)) as server:
        with pytest.raises(ProviderError) as caught:
            await asked(made(entry, server))
    assert (caught.value.category, caught.value.retryable, len(server.requests)) == (category, True, 1)


@pytest.mark.parametrize(
    ("name", "error", "category"),
    [
        ("anthropic", {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "unavailable"),
        (
            "anthropic",
            {
                "type": "error",
                "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"},
            },
            "context too long",
        ),
        ("gemini", {"error": {"code": 503, "message": "Overloaded.", "status": "UNAVAILABLE"}}, "unavailable"),
        ("gemini", {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID"}}, "authentication"),
        ("openai", {"error": {"message": "Too long", "code": "context_length_exceeded"}}, "context too long"),
    ],
)
async def test_an_error_within_a_stream_keeps_the_vendors_own_meaning(
    name: str, error: dict[str, Any], category: str
) -> None:
    begun = {"anthropic": ANTHROPIC[:6], "gemini": GEMINI[:2], "openai": OPENAI[:1]}[name]
    async with playing(stream(*begun, error, done=False)) as server:
        with pytest.raises(ProviderError) as caught:
            await asked(made(REGISTRY[name], server))
    assert caught.value.category == category


@pytest.mark.parametrize("name", ["anthropic", "gemini"])
@pytest.mark.parametrize(
    ("status", "headers", "body", "category", "retry_after_s"),
    [
        (429, {"Retry-After": "7"}, {"error": {"type": "rate_limit_error", "message": "Slow."}}, "rate limit", 7.0),
        (529, {}, {"error": {"type": "overloaded_error", "message": "Overloaded"}}, "unavailable", None),
        (401, {}, {"error": {"type": "authentication_error", "message": f"bad {KEY}"}}, "authentication", None),
        (400, {}, {"error": {"message": "prompt is too long: 300000 tokens"}}, "context too long", None),
        (301, {"Location": "http://elsewhere.example/"}, {}, "rejected", None),
    ],
)
async def test_b094_a_refusal_keeps_its_meaning_through_the_library(
    name: str, status: int, headers: dict[str, str], body: object, category: str, retry_after_s: float | None
) -> None:
    answer = Answer(status=status, headers=headers, chunks=(json.dumps(body).encode(),))
    async with playing(answer) as server:
        with pytest.raises(ProviderError) as caught:
            await asked(made(REGISTRY[name], server))
    assert (caught.value.category, caught.value.retry_after_s) == (category, retry_after_s)
    assert len(server.requests) == 1
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("name", ["openai", "deepseek", "anthropic"])
async def test_a_connection_is_used_again_after_a_whole_reply(name: str) -> None:
    async with playing(replies(REGISTRY[name].wire)) as server:
        provider = made(REGISTRY[name], server)
        request = ModelRequest(model="some-model", system="", messages=HELLO)
        for _ in range(3):
            await provider.complete(request)
        await provider.aclose()
    assert (len(server.requests), server.connections) == (3, 1)


@pytest.mark.parametrize("packed", [False, True], ids=["endless", "packed"])
async def test_a_reply_that_does_not_end_or_is_packed_is_cut(packed: bool) -> None:
    line = b'data: {"choices": [{"index": 0, "delta": {"content": "' + b"x" * 2**20 + b'"}}]}\n\n'
    headers = {"Content-Type": "text/event-stream", **({"Content-Encoding": "gzip"} if packed else {})}
    async with playing(Answer(headers=headers, chunks=(line,), repeat=not packed)) as server:
        with pytest.raises(ProviderError, match="packed" if packed else "longer than"):
            await asked(made(REGISTRY["vllm"], server))


@pytest.mark.req("SEC-03")
async def test_neither_key_nor_prompt_reaches_a_log(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    for answer in (replies(Wire.ANTHROPIC), Answer(status=400, chunks=(b"canary-of-the-answer",))):
        async with playing(answer) as server:
            try:
                await asked(made(REGISTRY["anthropic"], server))
            except ProviderError:
                pass
    written = caplog.text + "".join(capfd.readouterr())
    assert [word for word in (KEY, "canary", "Be brief") if word in written] == []


@pytest.mark.req("SEC-01", "PROV-04")
def test_nothing_but_the_providers_address_is_called_and_no_name_is_looked_up() -> None:
    """In a process of its own, which a proxy's variables and odd settings of the library do not lead astray."""
    script = ROOT / "tests" / "outbound.py"
    hostile = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "OPENAI_API_KEY": "sk-of-the-environment",
        "OPENAI_ORG_ID": "org-of-the-environment",
        "OPENAI_PROJECT_ID": "project-of-the-environment",
        "OPENAI_CUSTOM_HEADERS": "X-Own: header-of-the-environment",
        "ANTHROPIC_API_KEY": "sk-of-the-environment",
        "OPENAI_BASE_URL": "http://environment.example/v1",
        "DEEPSEEK_API_BASE": "http://environment.example/v1",
        "LITELLM_LOG": "DEBUG",
        "HTTP_PROXY": "http://proxy.example:3128",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-P", str(script)],
        cwd=ROOT,
        env={**hostile, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("ok\n", "", 0)
