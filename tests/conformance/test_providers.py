"""What every path to a provider does, against a real server that plays a vendor: replies, and the table of failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

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
    UserMessage,
)
from bubbles.providers.copilot_client import CopilotProvider
from bubbles.providers.custom_client import CustomProvider
from bubbles.providers.logins.contract import Access
from bubbles.providers.registry import REGISTRY
from bubbles.providers.responses.codex import CodexProvider
from bubbles.providers.retry import Retrying
from tests import responses_wire
from tests.model_server import faults_of
from tests.own_login import OwnLogin
from tests.playback import (
    SILENCE,
    Answer,
    Ending,
    Playback,
    free_port,
    json_answer,
    piece,
    playing,
    refusal,
    said,
    stream,
    usage,
)

KEY = "sk-invented-0123456789abcdef"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request, whatever wire it took."""

    system: str
    tools: list[str]
    kinds: list[str]
    """Of the messages: ``user``, ``assistant``, ``call``, ``tool``."""
    ids: list[str]
    """Of calls and results, in their order."""
    last: object


def seen_in_chat(body: Any) -> Seen:
    first, *messages = body["messages"]
    assert first["role"] == "system"
    kinds, ids = [], []
    for message in messages:
        kinds.append(message["role"])
        calls = [call["id"] for call in message.get("tool_calls") or ()]
        kinds += ["call"] * len(calls)
        ids += calls + ([message["tool_call_id"]] if message["role"] == "tool" else [])
    return Seen(
        system=first["content"],
        tools=[tool["function"]["name"] for tool in body["tools"]],
        kinds=kinds,
        ids=ids,
        last=messages[-1]["content"],
    )


def seen_in_responses(body: Any) -> Seen:
    names = {"function_call": "call", "function_call_output": "tool"}
    last = body["input"][-1]
    return Seen(
        system=body["instructions"],
        tools=[tool["name"] for tool in body["tools"]],
        kinds=[names.get(item["type"]) or item["role"] for item in body["input"]],
        ids=[item["call_id"] for item in body["input"] if "call_id" in item],
        last=last["content"][0].get("text") if last["type"] == "message" else last,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """How a provider is reached: ``make`` takes the server's address without ``/v1``, and seconds of silence."""

    make: Callable[[str, float], Provider]
    model: str = "test-model"
    endpoint: str = "/chat/completions"
    answer: Callable[[Answer], Answer] = lambda answer: answer
    seen: Callable[[Any], Seen] = seen_in_chat
    faults: Callable[[Any], list[str]] = lambda body: faults_of(body["messages"])
    limits: bool = True
    """Whether the vendor takes a temperature and a limit of the output."""
    slow: bool = False


def through_litellm(name: str) -> Callable[[str, float], Provider]:
    return lambda url, timeout_s: LitellmProvider(
        REGISTRY[name], base_url=url, api_key=KEY, request_timeout_s=timeout_s
    )


def codex(url: str, timeout_s: float) -> Provider:
    login = OwnLogin(Access(token=KEY, account="account-1"))
    return CodexProvider(login, base_url=f"{url}/backend-api/codex", request_timeout_s=timeout_s)


def copilot(url: str, timeout_s: float) -> Provider:
    login = OwnLogin(Access(token=KEY, more={"api": url}))
    return CopilotProvider(login, usual="https://unused.test", request_timeout_s=timeout_s)


PATHS: dict[str, Path] = {
    "custom": Path(make=lambda url, timeout_s: CustomProvider(base_url=url, api_key=KEY, request_timeout_s=timeout_s)),
    "litellm": Path(make=through_litellm("openai")),
    "litellm by its own client": Path(make=through_litellm("vllm"), slow=True),
    "openai_codex": Path(
        make=codex,
        endpoint="/backend-api/codex/responses",
        answer=responses_wire.translated,
        seen=seen_in_responses,
        faults=responses_wire.faults_of,
        limits=False,
    ),
    "github_copilot": Path(make=copilot),
    "github_copilot by its other API": Path(
        make=copilot,
        model="gpt-6-test-model",
        endpoint="/responses",
        answer=responses_wire.translated,
        seen=seen_in_responses,
        faults=lambda body: responses_wire.faults_of(body, responses_wire.COPILOT_FIELDS),
    ),
}

TOOL = ToolSpec(
    name="read_file",
    description="Reads.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
HELLO: tuple[Message, ...] = (UserMessage(text="Hello"),)


@dataclass(slots=True)
class Screen:
    """What a person sees of a reply while it comes."""

    shown: str = ""
    withdrawals: int = 0
    first: asyncio.Event = field(default_factory=asyncio.Event)

    def text(self, piece: str) -> None:
        self.shown += piece
        self.first.set()

    def withdrawn(self) -> None:
        self.shown = ""
        self.withdrawals += 1


@dataclass(slots=True)
class Talk:
    """A provider with its retries, whose waits take no time, and what came of asking it."""

    provider: Provider
    path: Path
    server: Playback | None = None
    waits: list[float] = field(default_factory=list)
    screen: Screen = field(default_factory=Screen)
    retries: int = 2

    async def ask(self, messages: tuple[Message, ...] = HELLO, **more: Any) -> ModelReply:
        request = ModelRequest(model=self.path.model, system="Be brief.", messages=messages, tools=(TOOL,), **more)

        async def sleep(seconds: float) -> None:
            self.waits.append(seconds)

        retrying = Retrying(self.provider, retries=self.retries, sleep=sleep, jitter=lambda: 0.0)
        return await retrying.complete(request, on_text=self.screen)

    async def failure(self) -> ProviderError:
        with pytest.raises(ProviderError) as caught:
            await self.ask()
        assert KEY not in f"{caught.value} {caught.value.resets}"
        return caught.value

    @property
    def sent(self) -> list[Any]:
        assert self.server is not None
        return [request.json for request in self.server.requests]

    @property
    def seen(self) -> list[Seen]:
        return [self.path.seen(body) for body in self.sent]


Start = Callable[..., Any]


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] * path.slow) for name, path in PATHS.items()])
def talk(request: pytest.FixtureRequest) -> Start:
    """Opens a talk with a server that plays these answers."""
    path = PATHS[request.param]

    @asynccontextmanager
    async def start(*answers: Answer, timeout_s: float = 15.0, retries: int = 2, url: str = "") -> AsyncIterator[Talk]:
        async with playing(*map(path.answer, answers)) as server:
            provider = path.make(url or server.url, timeout_s)
            try:
                yield Talk(provider, path, server, retries=retries)
            finally:
                await provider.aclose()
        assert [fault for sent in server.requests for fault in path.faults(sent.json)] == []

    return start


@pytest.mark.req("PROV-10")
async def test_a_streamed_reply_is_shown_while_it_comes_and_returned_whole(talk: Start) -> None:
    async with talk(stream("Hel", "lo ", "wörld", piece(finish="stop"), usage(11, 5, 4))) as on:
        reply = await on.ask()
    assert (reply.message.text, reply.stop, on.screen.shown) == ("Hello wörld", Stop.END, "Hello wörld")
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (11, 5, 4)
    [request] = on.server.requests
    assert (request.method, request.target.endswith(on.path.endpoint)) == ("POST", True)
    assert request.header("Authorization") == f"Bearer {KEY}"
    assert request.json["model"].endswith("test-model")
    assert (on.seen[0].system, on.seen[0].tools, on.seen[0].last) == ("Be brief.", ["read_file"], "Hello")
    assert request.json["stream"] is True


@pytest.mark.req("PROV-10")
async def test_streamed_tool_calls_are_put_together(talk: Start) -> None:
    def part(index: int, arguments: str, **more: object) -> dict[str, object]:
        function = {"arguments": arguments, **({"name": more.pop("name")} if "name" in more else {})}
        return piece(tool_calls=[{"index": index, "function": function, **more}])

    answer = stream(
        "I look.",
        part(0, "", id="call_a", type="function", name="read_file"),
        part(0, '{"path": '),
        part(0, '"a.md"}'),
        part(1, "", id="call_b", type="function", name="read_file"),
        part(1, '{"path": "b'),
        part(1, '.md"}'),
        piece(finish="tool_calls"),
    )
    async with talk(answer) as on:
        reply = await on.ask()
    assert reply.stop is Stop.TOOL_CALLS
    assert reply.message.text == "I look."
    assert [(call.id, call.name, json.loads(call.arguments)) for call in reply.message.tool_calls] == [
        ("call_a", "read_file", {"path": "a.md"}),
        ("call_b", "read_file", {"path": "b.md"}),
    ]


@pytest.mark.req("PROV-10")
async def test_arguments_that_are_no_json_are_handed_on_as_they_are(talk: Start) -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a'}}
    async with talk(stream(piece(tool_calls=[call]), piece(finish="tool_calls"))) as on:
        reply = await on.ask()
    assert reply.message.tool_calls[0].arguments == '{"path": "a'


async def test_b062_a_reply_cut_by_the_output_limit_says_so(talk: Start) -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"pa'}}
    async with talk(stream(piece(tool_calls=[call]), piece(finish="length"))) as on:
        reply = await on.ask()
    assert reply.stop is Stop.LENGTH
    assert len(on.sent) == 1


async def test_a_reply_that_a_filter_ended_says_so(talk: Start) -> None:
    async with talk(stream("I", piece(finish="content_filter"))) as on:
        assert (await on.ask()).stop is Stop.CONTENT_FILTER


@pytest.mark.req("CTX-03")
async def test_history_is_sent_in_the_order_that_vendors_demand(talk: Start) -> None:
    calls = (
        ToolCall(id="c1", name="read_file", arguments='{"path": "a.png"}'),
        ToolCall(id="c2", name="read_file", arguments='{"path": "b"}'),
    )
    picture = Image(media_type="image/png", data=b"\x89PNG")
    history = (
        UserMessage(text="What is in it?"),
        AssistantMessage(text="", tool_calls=calls),
        ToolMessage(call_id="c1", name="read_file", text="a picture", images=(picture,)),
        ToolMessage(call_id="c2", name="read_file", text="nothing", is_error=True),
        UserMessage(text="And this?", images=(picture,)),
    )
    async with talk(said("A cat.")) as on:
        await on.ask(history)
    [seen] = on.seen
    assert [kind for kind in seen.kinds if kind != "assistant"][:5] == ["user", "call", "call", "tool", "tool"]
    assert seen.ids == ["c1", "c2", "c1", "c2"]
    assert json.dumps(on.sent).count("data:image/png;base64,iVBORw==") == 2


async def test_limits_and_temperature_are_sent_only_if_there_are_any(talk: Start) -> None:
    async with talk(said("Yes.")) as on:
        await on.ask()
        await on.ask(temperature=0.5, max_output_tokens=99)
    plain, limited = on.sent
    names = ("temperature", "max_tokens", "max_completion_tokens", "max_output_tokens")
    assert not plain.keys() & set(names)
    assert [limited[name] for name in names if name in limited] == ([0.5, 99] if on.path.limits else [])


MINUTE_QUOTA = json_answer(
    {
        "error": {
            "code": 429,
            "status": "RESOURCE_EXHAUSTED",
            "message": "You exceeded your current quota, please check your plan and billing details.",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                    "violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}],
                },
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3s"},
            ],
        }
    },
    429,
)
DAY_QUOTA = json_answer(json.loads(MINUTE_QUOTA.chunks[0].replace(b"PerMinute", b"PerDay")), 429)
HALF = ("Once upon",)


@pytest.mark.req("PROV-05")
@pytest.mark.parametrize(
    ("answers", "waits"),
    [
        pytest.param((refusal(429, "Slow down."),) * 2, [1.0, 2.0], id="rate limit"),
        pytest.param((refusal(429, "Slow down.", headers={"Retry-After": "7"}),), [7.0], id="rate limit with a time"),
        pytest.param((MINUTE_QUOTA,), [3.0], id="B089 a quota for a minute, with a time"),
        pytest.param((refusal(500, "Oh."), refusal(503, "Oh.")), [1.0, 2.0], id="server faults"),
        pytest.param((refusal(529, "Overloaded", type="overloaded_error"),), [1.0], id="overloaded"),
        pytest.param((refusal(503, "Later.", headers={"Retry-After": "2"}),), [2.0], id="server fault with a time"),
        pytest.param((Answer(status=502, chunks=(b"<html>Bad gateway</html>",)),), [1.0], id="a gateway's page"),
        pytest.param((stream(*HALF, done=False, ending=Ending.CLOSE),), [1.0], id="half a stream, then closed"),
        pytest.param((stream(*HALF, done=False, ending=Ending.RESET),), [1.0], id="half a stream, then reset"),
        pytest.param((stream(*HALF, b"data: {nonsense\n\n"),), [1.0], id="half a stream, then bad JSON"),
        pytest.param(
            (stream(*HALF, {"error": {"message": "Oh.", "type": "server_error"}}, done=False),),
            [1.0],
            id="B091 half a stream, then an error",
        ),
    ],
)
async def test_what_fails_for_a_passing_reason_is_sent_again(
    talk: Start, answers: tuple[Answer, ...], waits: list[float]
) -> None:
    async with talk(*answers, said("Once upon", " a time")) as on:
        reply = await on.ask()
    assert (reply.message.text, on.screen.shown) == ("Once upon a time",) * 2
    assert on.waits == waits
    assert len(on.sent) == len(answers) + 1
    assert on.sent[0] == on.sent[-1]
    assert on.screen.withdrawals <= len(answers)


@pytest.mark.req("PROV-06")
@pytest.mark.parametrize(
    ("answer", "category"),
    [
        pytest.param(DAY_QUOTA, Category.RATE_LIMIT, id="B088 the day's quota is used up"),
        pytest.param(
            refusal(429, "You exceeded your current quota.", type="insufficient_quota", code="insufficient_quota"),
            Category.RATE_LIMIT,
            id="no money left",
        ),
        pytest.param(
            refusal(400, "This model's maximum context length is 8192 tokens.", code="context_length_exceeded"),
            Category.CONTEXT_TOO_LONG,
            id="context overflow",
        ),
        pytest.param(
            refusal(400, "the request exceeds the available context size"),
            Category.CONTEXT_TOO_LONG,
            id="B094 context overflow in other words",
        ),
        pytest.param(refusal(401, f"Incorrect API key provided: {KEY}"), Category.AUTHENTICATION, id="wrong key"),
        pytest.param(refusal(403, "Not allowed."), Category.AUTHENTICATION, id="not allowed"),
        pytest.param(
            refusal(400, "Your request was rejected.", code="content_policy_violation"),
            Category.REJECTED,
            id="content policy",
        ),
        pytest.param(refusal(400, "Invalid value: 'x'."), Category.REJECTED, id="invalid request"),
        pytest.param(
            refusal(404, "The model does not exist.", code="model_not_found"), Category.REJECTED, id="no model"
        ),
    ],
)
async def test_what_does_not_pass_is_sent_once(talk: Start, answer: Answer, category: Category) -> None:
    async with talk(answer, said("Never asked for.")) as on:
        error = await on.failure()
    assert (error.category, error.attempts, error.retryable) == (category, 1, False)
    assert (len(on.sent), on.waits, on.screen.shown) == (1, [], "")


async def test_b088_a_quota_that_comes_back_later_says_when(talk: Start) -> None:
    async with talk(refusal(429, "Used up.", headers={"Retry-After": "18000"})) as on:
        error = await on.failure()
    assert (error.category, error.attempts) == (Category.RATE_LIMIT, 1)
    assert error.resets is not None
    assert error.resets.endswith("UTC, in about 5 hours")


@pytest.mark.req("PROV-08")
async def test_the_last_failure_says_how_often_it_was_tried(talk: Start) -> None:
    async with talk(stream(*HALF, done=False, ending=Ending.CLOSE)) as on:
        error = await on.failure()
    assert (error.category, error.attempts, len(on.sent)) == (Category.UNAVAILABLE, 3, 3)
    assert (on.screen.shown, on.screen.withdrawals) == ("", 3)


async def test_silence_before_the_headers_is_a_failure(talk: Start) -> None:
    async with talk(SILENCE, timeout_s=0.1, retries=1) as on:
        error = await on.failure()
    assert (error.category, error.attempts) == (Category.UNAVAILABLE, 2)


async def test_half_a_stream_and_then_silence_is_a_failure_and_withdrawn(talk: Start) -> None:
    async with talk(stream(*HALF, done=False, ending=Ending.STALL), timeout_s=1.0, retries=0) as on:
        error = await on.failure()
    assert error.category is Category.UNAVAILABLE
    assert (on.screen.shown, on.screen.withdrawals) == ("", 1)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_server_that_cannot_be_reached_is_unavailable(talk: Start, scheme: str) -> None:
    async with talk(said("Never."), url=f"{scheme}://127.0.0.1:{free_port()}") as on:
        error = await on.failure()
    assert (error.category, error.attempts) == (Category.UNAVAILABLE, 3)


async def test_encryption_with_a_server_that_knows_none_is_a_failure(talk: Start) -> None:
    async with playing() as plain, talk(said("Never."), url=plain.url.replace("http:", "https:")) as on:
        error = await on.failure()
    assert plain.connections
    assert plain.requests == []
    assert error.category is Category.UNAVAILABLE


async def test_cancelling_ends_the_request_at_once(talk: Start) -> None:
    async with talk(stream(*HALF, done=False, ending=Ending.STALL)) as on:
        asking = asyncio.create_task(on.ask())
        await on.screen.first.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(10):
            await on.server.hung_up.wait()


async def test_a_provider_can_be_used_again_after_it_was_closed(talk: Start) -> None:
    async with talk(said("Yes.")) as on:
        await on.ask()
        await on.provider.aclose()
        assert (await on.ask()).message.text == "Yes."


async def test_many_requests_at_once_do_not_mix(talk: Start) -> None:
    async with talk(said("Same.")) as on, asyncio.TaskGroup() as group:
        tasks = [group.create_task(on.ask((UserMessage(text=f"question {number}"),))) for number in range(20)]
    assert {task.result().message.text for task in tasks} == {"Same."}
    assert {seen.last for seen in on.seen} == {f"question {number}" for number in range(20)}
