"""The client for a Copilot subscription, over real sockets: both of its wires, and what is odd about them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bubbles.providers.contract import (
    AssistantMessage,
    Category,
    Image,
    Message,
    ModelRequest,
    ProviderError,
    Stop,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from bubbles.providers.copilot_client import CopilotProvider
from bubbles.providers.logins.contract import Access
from bubbles.providers.retry import Retrying
from tests.model_server import faults_of
from tests.own_login import OwnLogin
from tests.playback import Answer, Ending, Playback, json_answer, piece, playing, refusal, said, stream, usage
from tests.responses_wire import COPILOT_FIELDS, Output, ended
from tests.responses_wire import faults_of as faults_of_responses

TOKEN = "tid=invented-0123456789;exp=1;proxy-ep=proxy.test"
HELLO = UserMessage(text="Hello")
PICTURE = Image(media_type="image/png", data=b"\x89PNG")
CALLED = AssistantMessage(text="", tool_calls=(ToolCall(id="c1", name="f", arguments="{}"),))
RESULT = ToolMessage(call_id="c1", name="f", text="42")
YES = said("Yes.")
NEWER_YES = stream(*Output().text("Yes."), ended(), done=False)
WRONG_API = refusal(
    400, "model gpt-x is not accessible via the /chat/completions endpoint", code="unsupported_api_for_model"
)


def request(*messages: Message, model: str = "claude-sonnet-5.5", **more: Any) -> ModelRequest:
    return ModelRequest(model=model, system="Be brief.", messages=messages, **more)


@asynccontextmanager
async def talking(*answers: Answer, **more: Any) -> AsyncIterator[tuple[CopilotProvider, Playback]]:
    async with playing(*answers) as server:
        login = OwnLogin(Access(token=TOKEN, more={"api": server.url}), provider="github_copilot")
        settings: dict[str, Any] = {"usual": "http://unused.test", "request_timeout_s": 15.0, **more}
        provider = CopilotProvider(settings.pop("login", login), **settings)
        try:
            yield provider, server
        finally:
            await provider.aclose()
        for sent in server.requests:
            if sent.target.endswith("/responses"):
                assert faults_of_responses(sent.json, COPILOT_FIELDS) == []
            else:
                assert faults_of(sent.json["messages"]) == []


async def failure(*answers: Answer, **more: Any) -> ProviderError:
    async with talking(*answers, **more) as (provider, _):
        with pytest.raises(ProviderError) as caught:
            await Retrying(provider, retries=0).complete(request(HELLO))
    assert TOKEN not in f"{caught.value} {caught.value.mend}"
    return caught.value


@pytest.mark.req("PROV-03")
async def test_a_request_says_who_asks() -> None:
    async with talking(YES, extra_headers={"X-Org": "mine"}) as (provider, server):
        await provider.complete(request(HELLO))
        await provider.complete(request(HELLO, CALLED, RESULT))
        await provider.complete(request(HELLO, CALLED, RESULT, UserMessage(text="And this?", images=(PICTURE,))))
    person, agent, vision = server.requests
    assert person.target == "/chat/completions"
    wanted = {
        "Authorization": f"Bearer {TOKEN}",
        "Copilot-Integration-Id": "vscode-chat",
        "Openai-Intent": "conversation-edits",
        "X-Org": "mine",
    }
    assert {name: person.header(name) for name in wanted} == wanted
    for name in ("User-Agent", "Editor-Version", "Editor-Plugin-Version"):
        assert (person.header(name) or "").startswith("bubbles/")
    assert [sent.header("X-Initiator") for sent in server.requests] == ["user", "agent", "user"]
    assert [sent.header("Copilot-Vision-Request") for sent in server.requests] == [None, None, "true"]
    assert vision.json["messages"][-1]["content"][1]["type"] == "image_url"
    assert agent.json["messages"][-1]["role"] == "tool"


async def test_the_address_is_the_persons_own_or_that_of_the_login_or_the_usual_one() -> None:
    async with playing(YES) as own, playing(YES) as of_login, playing(YES) as usual:
        for base_url, more in ((own.url, {"api": of_login.url}), (None, {"api": of_login.url}), (None, {})):
            login = OwnLogin(Access(token=TOKEN, more=more))
            provider = CopilotProvider(login, base_url=base_url, usual=usual.url)
            await provider.complete(request(HELLO))
            await provider.aclose()
    assert [len(server.requests) for server in (own, of_login, usual)] == [1, 1, 1]


async def test_the_proxy_is_that_of_the_address() -> None:
    asked: list[str] = []

    async with playing(YES) as proxy:

        def proxy_for(address: str) -> str:
            asked.append(address)
            return proxy.url

        login = OwnLogin(Access(token=TOKEN, more={"api": "http://api.business.test"}))
        provider = CopilotProvider(login, usual="http://unused.test", proxy_for=proxy_for)
        await provider.complete(request(HELLO))
        await provider.aclose()
    assert proxy.requests[0].target == "http://api.business.test/chat/completions"
    assert asked == ["http://api.business.test"]


async def test_an_address_of_the_login_that_is_none_is_a_failure() -> None:
    error = await failure(YES, login=OwnLogin(Access(token=TOKEN, more={"api": "http://h:x"})))
    assert error.category is Category.REJECTED


@pytest.mark.req("PROV-10")
@pytest.mark.parametrize("whole", [False, True])
async def test_a_reply_of_claude_that_is_split_over_two_choices_is_one(whole: bool) -> None:
    """Otherwise the calls are lost, and the model says for ever that it is about to begin (HKUDS/nanobot#1481)."""
    made = {"index": 0, "id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    text, call = {"content": "I look.", "reasoning_opaque": "b3BhcXVl"}, {"tool_calls": [made]}
    for index in (0, 1):
        if whole:
            choices = [
                {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", **text}},
                {"index": index, "finish_reason": "tool_calls", "message": {"role": "assistant", **call}},
            ]
            answer = json_answer({"choices": choices, "usage": {"prompt_tokens": 9}})
        else:
            second = {"choices": [{"index": index, "delta": call, "finish_reason": "tool_calls"}]}
            answer = stream(piece(finish="tool_calls", **text), second, usage(9, 2))
        async with talking(answer, YES) as (provider, server):
            reply = await provider.complete(request(HELLO))
            await provider.complete(request(HELLO, reply.message, ToolMessage(call_id="toolu_1", name="f", text="42")))
        assert (reply.message.text, reply.stop, reply.usage.input_tokens) == ("I look.", Stop.TOOL_CALLS, 9)
        assert [(call.id, call.arguments) for call in reply.message.tool_calls] == [("toolu_1", '{"a":1}')]
        assert server.requests[1].json["messages"][2]["reasoning_opaque"] == "b3BhcXVl"


async def test_a_reply_that_breaks_off_before_the_choice_with_its_calls_is_no_reply() -> None:
    first = stream(piece("I look.", finish="tool_calls"), done=False, ending=Ending.CLOSE)
    error = await failure(first)
    assert (error.category, error.retryable) == (Category.UNAVAILABLE, True)


@pytest.mark.parametrize(
    ("model", "endpoint"),
    [
        ("claude-sonnet-5.5", "/chat/completions"),
        ("gemini-3.8-flash", "/chat/completions"),
        ("gpt-4.1", "/chat/completions"),
        ("gpt-5-mini", "/chat/completions"),
        ("gpt-5.4-mini", "/responses"),
        ("gpt-5.3-codex", "/responses"),
        ("gpt-6.1-sol", "/responses"),
        ("gpt-10", "/responses"),
    ],
)
async def test_each_model_is_asked_by_its_api(model: str, endpoint: str) -> None:
    async with talking(NEWER_YES if endpoint == "/responses" else YES) as (provider, server):
        assert (await provider.complete(request(HELLO, model=model))).message.text == "Yes."
    assert [sent.target for sent in server.requests] == [endpoint]


async def test_a_model_that_answers_by_the_other_api_only_is_found_out_once() -> None:
    async with talking(WRONG_API, NEWER_YES) as (provider, server):
        for _ in range(2):
            assert (await provider.complete(request(HELLO, model="mai-code-1.1"))).message.text == "Yes."
    assert [sent.target for sent in server.requests] == ["/chat/completions", "/responses", "/responses"]
    async with talking(WRONG_API, YES) as (provider, server):
        await provider.complete(request(HELLO, model="gpt-5.4"))
    assert [sent.target for sent in server.requests] == ["/responses", "/chat/completions"]


async def test_a_model_that_answers_by_neither_api_is_refused() -> None:
    assert (await failure(WRONG_API)).category is Category.REJECTED


async def test_limits_have_the_names_that_the_model_knows() -> None:
    names = []
    for model in ("claude-sonnet-5.5", "gpt-5-mini", "gpt-6.1-sol"):
        async with talking(NEWER_YES if model == "gpt-6.1-sol" else YES) as (provider, server):
            await provider.complete(request(HELLO, model=model, temperature=0.5, max_output_tokens=99))
        names.append([name for name, value in server.requests[0].json.items() if value in (0.5, 99)])
    assert names == [
        ["temperature", "max_tokens"],
        ["temperature", "max_completion_tokens"],
        ["temperature", "max_output_tokens"],
    ]


async def test_a_model_can_be_changed_for_one_of_the_other_api_in_the_middle() -> None:
    out = Output()
    newer = stream(*out.reasoning("c2VhbGVk"), *out.text("I look.", phase="commentary"), ended(), done=False)
    older = stream(piece(content="So.", reasoning_text="Hm.", reasoning_opaque="b3BhcXVl"), piece(finish="stop"))
    async with talking(newer, older, NEWER_YES) as (provider, server):
        history: list[Message] = [HELLO]
        for model in ("gpt-6.1-sol", "claude-sonnet-5.5", "gpt-6.1-sol"):
            history.append((await provider.complete(request(*history, model=model))).message)
            history.append(UserMessage(text="Go on."))
    _, chat, responses = server.requests
    assert chat.json["messages"][2] == {"role": "assistant", "content": "I look."}
    assert [item["type"] for item in responses.json["input"]] == ["message", "reasoning", *["message"] * 4]
    assert "b3BhcXVl" not in responses.body.decode()


@pytest.mark.req("PROV-05")
@pytest.mark.parametrize(
    ("answer", "category", "resets"),
    [
        (refusal(402, "You have no quota", code="quota_exceeded"), Category.RATE_LIMIT, None),
        (
            Answer(status=429, headers={"Retry-After": "1209600"}, chunks=(b"quota exceeded",)),
            Category.RATE_LIMIT,
            "in about 14 days",
        ),
        (refusal(400, "The requested model is not supported.", code="model_not_supported"), Category.REJECTED, None),
        (refusal(403, "Access to this endpoint is forbidden."), Category.AUTHENTICATION, None),
        (
            refusal(400, "prompt token count of 130000 exceeds the limit of 128000", code="model_max_prompt"),
            Category.CONTEXT_TOO_LONG,
            None,
        ),
    ],
)
async def test_what_does_not_pass_is_not_asked_again(answer: Answer, category: Category, resets: str | None) -> None:
    error = await failure(answer)
    assert (error.category, error.retryable) == (category, False)
    assert (error.resets or "").endswith(resets or "")


@pytest.mark.req("PROV-03")
async def test_a_token_that_is_turned_down_is_renewed_once_and_then_it_is_authentication() -> None:
    expired = Answer(status=401, chunks=(b"unauthorized: token expired\n",))
    async with playing(expired, YES) as server:
        first, second = (Access(token=token, more={"api": server.url}) for token in (TOKEN, "tid=another-one"))
        provider = CopilotProvider(OwnLogin(first, second), usual="http://unused.test")
        assert (await provider.complete(request(HELLO))).message.text == "Yes."
        await provider.aclose()
    assert [sent.header("Authorization") for sent in server.requests] == [f"Bearer {TOKEN}", "Bearer tid=another-one"]
    error = await failure(expired)
    assert error.category is Category.AUTHENTICATION
    assert "bubbles provider login github_copilot" in (error.mend or "")
