"""When a request is sent again, with a clock that takes no time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from bubbles.providers.contract import Category, ModelReply, ModelRequest, ProviderError, TextSink, UserMessage
from bubbles.providers.retry import LONGEST_BACK_OFF_S, Retrying
from bubbles.providers.scripted import ScriptedProvider, Step

REQUEST = ModelRequest(model="m", system="", messages=(UserMessage(text="Hello"),))


def failing(category: Category = Category.UNAVAILABLE, after: float | None = None) -> ProviderError:
    return ProviderError(category, "it failed", retry_after_s=after)


@dataclass(slots=True)
class Clock:
    waits: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


@dataclass(slots=True)
class Log:
    """What happened to a reply's text, in order."""

    lines: list[str] = field(default_factory=list)

    def text(self, piece: str) -> None:
        self.lines.append(piece)

    def withdrawn(self) -> None:
        self.lines.append("<withdrawn>")


async def ask(
    *script: Step, retries: int = 2, jitter: float = 0.0
) -> tuple[ModelReply | ProviderError, list[float], ScriptedProvider]:
    clock, provider = Clock(), ScriptedProvider(script)
    retrying = Retrying(provider, retries=retries, sleep=clock.sleep, jitter=lambda: jitter)
    try:
        return await retrying.complete(REQUEST), clock.waits, provider
    except ProviderError as error:
        return error, clock.waits, provider


@pytest.mark.req("PROV-05")
async def test_waits_double_and_the_last_error_tells_the_tries() -> None:
    outcome, waits, provider = await ask(*[failing() for _ in range(9)], retries=4)
    assert isinstance(outcome, ProviderError)
    assert (outcome.attempts, len(provider.requests), waits) == (5, 5, [1.0, 2.0, 4.0, 8.0])


async def test_waits_have_an_end_and_are_spread() -> None:
    _, waits, _ = await ask(*[failing() for _ in range(30)], retries=20, jitter=1.0)
    assert waits[:2] == [1.25, 2.5]
    assert waits[-1] == LONGEST_BACK_OFF_S * 1.25


async def test_what_the_server_asks_for_is_obeyed_and_never_undercut() -> None:
    _, waits, _ = await ask(failing(Category.RATE_LIMIT, 17.0), failing(Category.UNAVAILABLE, 0.0), "Yes.", jitter=1.0)
    assert waits == [17.5, 0.5]


@pytest.mark.req("PROV-06")
@pytest.mark.parametrize("category", [Category.AUTHENTICATION, Category.REJECTED, Category.CONTEXT_TOO_LONG])
async def test_what_does_not_pass_is_not_sent_again(category: Category) -> None:
    outcome, waits, provider = await ask(failing(category), "Never.")
    assert isinstance(outcome, ProviderError)
    assert (outcome.attempts, len(provider.requests), waits) == (1, 1, [])


async def test_b088_a_quota_that_is_used_up_is_not_waited_for() -> None:
    _, waits, provider = await ask(ProviderError(Category.RATE_LIMIT, "used up", retryable=False), "Never.")
    assert (len(provider.requests), waits) == (1, [])


async def test_no_retries_means_one_request() -> None:
    _, _, provider = await ask(failing(), "Never.", retries=0)
    assert len(provider.requests) == 1


@dataclass(slots=True)
class Breaking:
    """Says a word, then breaks off, a number of times; then replies."""

    times: int
    name: str = "breaking"
    asked: int = 0

    async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None) -> ModelReply:
        self.asked += 1
        if self.asked > self.times:
            return await ScriptedProvider(["Whole."]).complete(request, on_text=on_text)
        if on_text is not None and self.asked != 2:
            on_text.text(f"word {self.asked}")
        raise failing()

    async def aclose(self) -> None:
        return


async def test_b091_what_came_of_a_reply_that_broke_off_is_withdrawn_before_it_is_asked_for_again() -> None:
    log, clock = Log(), Clock()
    await Retrying(Breaking(2), sleep=clock.sleep).complete(REQUEST, on_text=log)
    assert log.lines == ["word 1", "<withdrawn>", "Whole."]  # the second try said nothing


async def test_b091_what_came_of_a_reply_that_is_given_up_is_withdrawn() -> None:
    log, clock = Log(), Clock()
    with pytest.raises(ProviderError):
        await Retrying(Breaking(9), sleep=clock.sleep).complete(REQUEST, on_text=log)
    assert log.lines == ["word 1", "<withdrawn>", "word 3", "<withdrawn>"]


async def test_cancelling_while_it_waits_ends_it_at_once() -> None:
    waiting = asyncio.Event()

    async def sleep(_: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    provider = ScriptedProvider([failing(), "Never."])
    asking = asyncio.create_task(Retrying(provider, sleep=sleep).complete(REQUEST))
    await waiting.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(provider.requests) == 1


async def test_a_fault_of_ours_is_not_hidden() -> None:
    def broken(_: ModelRequest) -> Step:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Retrying(ScriptedProvider([broken])).complete(REQUEST)


def test_it_has_the_name_of_what_it_asks() -> None:
    assert Retrying(ScriptedProvider()).name == "scripted"
