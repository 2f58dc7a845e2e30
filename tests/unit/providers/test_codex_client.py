"""The client for a ChatGPT subscription, over real sockets, against a server that refuses what the vendor refuses."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bubbles.providers.contract import (
    AssistantMessage,
    Category,
    Message,
    ModelReply,
    ModelRequest,
    ProviderError,
    Stop,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from bubbles.providers.logins.contract import Access, LoginBusyError, LoginError
from bubbles.providers.responses.codex import CodexProvider
from bubbles.providers.retry import Retrying
from tests.own_login import OwnLogin
from tests.playback import Answer, Ending, Playback, json_answer, playing, refusal, stream
from tests.responses_wire import Event, Output, ended, faults_of

TOKEN = "eyJ-invented-token-0123456789"
ACCOUNT = "account-0123456789"
ACCESS = Access(token=TOKEN, account=ACCOUNT)
RENEWED = Access(token="eyJ-renewed-token-0123456789", account=ACCOUNT)
TOOL = ToolSpec(name="list_dir", description="Lists.", parameters={"type": "object", "properties": {}})
HELLO = UserMessage(text="Hello")
EXPIRED = json_answer({"detail": f"Provided authentication token is expired: {TOKEN}"}, 401)


def reply(*events: Event, ending: Ending = Ending.KEEP) -> Answer:
    return stream(*events, done=False, ending=ending)


YES = reply(*Output().text("Yes."), ended())


def request(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(**{"model": "m", "system": "Be brief.", "messages": messages, "tools": (TOOL,), **more})


@asynccontextmanager
async def talking(
    *answers: Answer, login: OwnLogin | None = None, **more: Any
) -> AsyncIterator[tuple[CodexProvider, Playback]]:
    async with playing(*answers) as server:
        source = login or OwnLogin(ACCESS)
        settings = {"base_url": f"{server.url}/backend-api/codex", "request_timeout_s": 15.0, **more}
        provider = CodexProvider(source, **settings)
        try:
            yield provider, server
        finally:
            await provider.aclose()
        assert [fault for sent in server.requests for fault in faults_of(sent.json)] == []


async def failure(*answers: Answer, **more: Any) -> ProviderError:
    async with talking(*answers, **more) as (provider, _):
        with pytest.raises(ProviderError) as caught:
            await provider.complete(request(HELLO))
    for secret in (TOKEN, RENEWED.token, ACCOUNT):
        assert secret not in f"{caught.value} {caught.value.mend}"
    return caught.value


@pytest.mark.req("PROV-03", "SEC-01")
async def test_a_request_goes_to_the_address_of_codex_with_what_it_demands() -> None:
    async with talking(YES, extra_headers={"X-Org": "mine", "originator": "me"}) as (provider, server):
        assert (await provider.complete(request(HELLO, temperature=0.5, max_output_tokens=9))).message.text == "Yes."
    [sent] = server.requests
    assert (sent.method, sent.target) == ("POST", "/backend-api/codex/responses")
    wanted = {
        "Authorization": f"Bearer {TOKEN}",
        "ChatGPT-Account-Id": ACCOUNT,
        "Accept": "text/event-stream",
        "OpenAI-Beta": "responses=experimental",
        "originator": "me",
        "X-Org": "mine",
        "session_id": sent.json["prompt_cache_key"],
    }
    assert {name: sent.header(name) for name in wanted} == wanted
    assert (sent.header("User-Agent") or "").startswith("bubbles/")
    assert sent.header("Cookie") is None


async def test_a_login_without_an_account_names_none() -> None:
    async with talking(YES, login=OwnLogin(Access(token=TOKEN))) as (provider, server):
        await provider.complete(request(HELLO))
    assert server.requests[0].header("ChatGPT-Account-Id") is None


async def test_a_conversation_keeps_its_name_and_others_have_others() -> None:
    first, other = UserMessage(text="Hello"), UserMessage(text="Good day")
    said = AssistantMessage(text="Yes.", provider="openai_codex")
    async with talking(YES) as (provider, server):
        for messages in ((first,), (first, said, other), (other,), ()):
            await provider.complete(request(*messages or (UserMessage(text=""),)))
    names = [sent.json["prompt_cache_key"] for sent in server.requests]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert all(re.fullmatch(r"[0-9a-f-]{36}", name) for name in names)


@pytest.mark.req("PROV-10")
async def test_reasoning_lasts_over_the_calls_of_a_turn() -> None:
    one, two = Output(), Output()
    first = [*one.reasoning("c2VhbGVk"), *one.text("I look.", phase="commentary"), *one.call("c1", "list_dir", "{}")]
    second = [*two.reasoning("bGF0ZXI="), *two.call("c2", "list_dir", "{}")]
    async with talking(reply(*first, ended()), reply(*second, ended()), YES) as (provider, server):
        history: list[Message] = [HELLO]
        for _ in range(3):
            answer = await provider.complete(request(*history))
            history.append(answer.message)
            history += [ToolMessage(call_id=call.id, name=call.name, text="a.md") for call in answer.message.tool_calls]
    assert answer.message.text == "Yes."
    found = [
        item.get("encrypted_content") or item.get("output") or item.get("call_id") or item["content"][0]["text"]
        for item in server.requests[2].json["input"]
    ]
    assert found == ["Hello", "c2VhbGVk", "I look.", "c1", "a.md", "bGF0ZXI=", "c2", "a.md"]


async def test_a_token_that_is_turned_down_is_renewed_once() -> None:
    login = OwnLogin(ACCESS, RENEWED)
    async with talking(EXPIRED, YES, login=login) as (provider, server):
        assert (await provider.complete(request(HELLO))).message.text == "Yes."
        await provider.complete(request(HELLO))
    tokens = [sent.header("Authorization") for sent in server.requests]
    assert tokens == [f"Bearer {token}" for token in (TOKEN, RENEWED.token, RENEWED.token)]
    assert login.refused == [ACCESS]


@pytest.mark.req("PROV-03", "PROV-05")
async def test_a_login_that_no_longer_counts_is_authentication_and_says_how_to_log_in() -> None:
    again = json_answer({"detail": f"Not {RENEWED.token} either"}, 401)
    error = await failure(EXPIRED, again, login=OwnLogin(ACCESS, RENEWED))
    assert (error.category, error.retryable, error.status) == (Category.AUTHENTICATION, False, 401)
    assert error.mend is not None
    assert error.mend.endswith("the server does not accept the login. Log in: bubbles provider login openai_codex")


async def test_a_token_that_cannot_be_renewed_is_not_sent_again() -> None:
    class Young(OwnLogin):
        async def access(self, *, refused: Access | None = None) -> Access:
            return ACCESS

    async with talking(EXPIRED, login=Young()) as (provider, server):
        with pytest.raises(ProviderError) as caught:
            await provider.complete(request(HELLO))
    assert (len(server.requests), caught.value.category) == (1, Category.AUTHENTICATION)
    assert "bubbles provider login" in (caught.value.mend or "")


@pytest.mark.req("PROV-03")
@pytest.mark.parametrize(
    ("login", "category", "said"),
    [
        (OwnLogin(), Category.AUTHENTICATION, "there is no login. Log in: bubbles provider login openai_codex"),
        (OwnLogin(LoginError("The disk is full.")), Category.AUTHENTICATION, "The disk is full."),
        (OwnLogin(LoginBusyError("Another one is at it.")), Category.UNAVAILABLE, "Another one is at it."),
    ],
)
async def test_without_a_login_nothing_is_sent_and_a_sentence_says_why(
    login: OwnLogin, category: Category, said: str
) -> None:
    async with talking(YES, login=login) as (provider, server):
        with pytest.raises(ProviderError) as caught:
            await provider.complete(request(HELLO))
    assert server.connections == 0
    assert (caught.value.category, caught.value.retryable) == (category, category is Category.UNAVAILABLE)
    assert said in (caught.value.mend or "")


def limit(seconds: int, **more: object) -> Answer:
    moment = int((datetime.now(UTC) + timedelta(seconds=seconds)).timestamp())
    error = {"type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus", **more}
    return json_answer({"error": {**error, "resets_at": moment, "resets_in_seconds": seconds}}, 429)


@pytest.mark.req("PROV-05")
async def test_a_subscription_that_is_used_up_for_hours_says_until_when_and_is_not_asked_again() -> None:
    async with talking(limit(3 * 3600)) as (provider, server):
        with pytest.raises(ProviderError) as caught:
            await Retrying(provider).complete(request(HELLO))
    error = caught.value
    assert (error.category, error.retryable, error.attempts) == (Category.RATE_LIMIT, False, 1)
    assert (error.resets or "").endswith("UTC, in about 3 hours")
    assert len(server.requests) == 1


@pytest.mark.req("PROV-05")
async def test_a_subscription_that_comes_back_at_once_is_waited_for() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with talking(limit(50), YES) as (provider, _):
        retrying = Retrying(provider, sleep=sleep, jitter=lambda: 0.0)
        assert (await retrying.complete(request(HELLO))).message.text == "Yes."
    assert 40 < waits[0] <= 50


@pytest.mark.parametrize(
    ("answer", "category"),
    [
        (json_answer({"error": {"type": "usage_not_included", "plan_type": "free"}}, 429), Category.RATE_LIMIT),
        (json_answer({"detail": "The 'x' model is not supported when using Codex"}, 400), Category.REJECTED),
        (json_answer({"detail": [{"msg": "field required", "loc": ["input"]}]}, 422), Category.REJECTED),
        (Answer(status=403, headers={"Content-Type": "text/html"}, chunks=(b"<html>",)), Category.AUTHENTICATION),
        (Answer(headers={"Content-Type": "text/html"}, chunks=(b"<html>",)), Category.REJECTED),
        (refusal(400, "too long", code="context_length_exceeded"), Category.CONTEXT_TOO_LONG),
    ],
)
async def test_what_does_not_pass_is_not_asked_again(answer: Answer, category: Category) -> None:
    error = await failure(answer)
    assert (error.category, error.retryable) == (category, False)


@pytest.mark.req("SEC-01", "SEC-03")
async def test_a_redirect_is_not_followed_and_the_token_goes_nowhere_else() -> None:
    async with playing(YES) as other:
        error = await failure(Answer(status=307, headers={"Location": f"{other.url}/{TOKEN}"}))
        assert error.category is Category.REJECTED
    assert other.connections == 0


async def test_a_stream_that_breaks_is_withdrawn_and_asked_for_again() -> None:
    shown: list[str] = []

    class Screen:
        def text(self, piece: str) -> None:
            shown.append(piece)

        def withdrawn(self) -> None:
            shown.append("-")

    async def at_once(_: float) -> None:
        return

    half = Output().text("Once upon")[:-1]
    async with talking(reply(*half, ending=Ending.CLOSE), reply(*half), YES) as (provider, _):
        retrying = Retrying(provider, sleep=at_once)
        await retrying.complete(request(HELLO), on_text=Screen())
    assert shown == ["Once upon", "-", "Once upon", "-", "Yes."]


@pytest.mark.parametrize("ending", [Ending.STALL, Ending.RESET, Ending.CLOSE])
async def test_a_reply_that_is_whole_needs_no_end_of_the_connection(ending: Ending) -> None:
    answer = reply(*Output().text("Yes."), ended(), ending=ending)
    async with talking(answer, request_timeout_s=1.0) as (provider, _):
        assert (await provider.complete(request(HELLO))).message.text == "Yes."


async def test_reasoning_that_the_vendor_cannot_open_is_left_out_and_the_session_goes_on() -> None:
    """Met by many with Codex itself (openai/codex#8138 and others): a session was lost by it."""
    unsealed = refusal(
        400, "The encrypted content gAAA could not be verified.", code="invalid_encrypted_content", type="invalid"
    )
    out = Output()
    thought = reply(*out.reasoning("c2VhbGVk"), *out.text("Yes."), ended())
    async with talking(thought, unsealed, YES, YES) as (provider, server):
        said = (await provider.complete(request(HELLO))).message
        for _ in range(2):
            await provider.complete(request(HELLO, said, UserMessage(text="Why?")))
    kept = ["c2VhbGVk" in sent.body.decode() for sent in server.requests]
    assert kept == [False, True, False, False]
    error = await failure(unsealed)
    assert error.category is Category.REJECTED


@pytest.mark.parametrize(("reason", "stop"), [("max_output_tokens", Stop.LENGTH), ("content_filter", "content_filter")])
async def test_why_a_reply_ended_early(reason: str, stop: str) -> None:
    answer = reply(*Output().text("I")[:-1], ended("incomplete", incomplete_details={"reason": reason}))
    async with talking(answer) as (provider, _):
        assert (await provider.complete(request(HELLO))).stop == stop


async def test_a_proxy_is_used_if_it_is_given() -> None:
    async with playing(YES) as proxy:
        provider = CodexProvider(OwnLogin(ACCESS), base_url="http://vendor.test/backend-api/codex", proxy=proxy.url)
        await provider.complete(request(HELLO))
        await provider.aclose()
    assert proxy.requests[0].target == "http://vendor.test/backend-api/codex/responses"


@pytest.mark.parametrize("end", ["", "/", "/responses"])
async def test_an_address_may_be_written_as_people_write_it(end: str) -> None:
    async with playing(YES) as server:
        provider = CodexProvider(OwnLogin(ACCESS), base_url=f"{server.url}/codex{end}")
        await provider.complete(request(HELLO))
        await provider.aclose()
    assert server.requests[0].target == "/codex/responses"


def long_history(turns: int) -> Sequence[Message]:
    made: list[Message] = []
    for number in range(turns):
        call = ToolCall(id=f"c{number}", name="list_dir", arguments='{"path": "."}')
        outline = [{"type": "reasoning", "summary": [], "encrypted_content": "x" * 500}, {"type": "function_call"}]
        vendor = {"responses_output": outline}
        made += [
            UserMessage(text=f"question {number} " * 20),
            AssistantMessage(text="", tool_calls=(call,), vendor=vendor, provider="openai_codex"),
            ToolMessage(call_id=call.id, name="list_dir", text="line\n" * 100),
            AssistantMessage(text="It is so. " * 20, provider="openai_codex"),
        ]
    return made


async def test_a_long_history_arrives_whole_every_time() -> None:
    history = long_history(1_250)
    async with talking(YES) as (provider, server):
        for _ in range(2):
            await provider.complete(request(*history))
    assert len(server.requests[1].json["input"]) == 5_000 + 1_250
    assert server.requests[0].body == server.requests[1].body


async def test_many_requests_at_once_renew_and_do_not_mix() -> None:
    answer = EXPIRED, *[YES] * 20
    async with talking(*answer, login=OwnLogin(ACCESS, RENEWED)) as (provider, server):
        replies: list[ModelReply] = await asyncio.gather(
            *(provider.complete(request(UserMessage(text=f"question {number}"))) for number in range(10))
        )
    assert {found.message.text for found in replies} == {"Yes."}
    assert len({json.dumps(sent.json["input"]) for sent in server.requests}) == 10
