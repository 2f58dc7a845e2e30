"""What keeps a channel at work, in a time of the test's own."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from bubbles.channels.contract import Channel, ChannelError, FatalChannelError, Incoming, Link, Piece, Roster, Traits
from bubbles.channels.fake import FakeChannel
from bubbles.channels.supervisor import Phase, Supervisor

Run = Callable[[Link], Awaitable[None]]


@dataclass(slots=True)
class Time:
    """Stands still but when it is told to go on."""

    now_s: float = 0.0
    waiting: list[tuple[float, int, asyncio.Future[None]]] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count, init=False)

    async def sleep(self, seconds: float) -> None:
        awake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self.waiting, (self.now_s + seconds, next(self.numbers), awake))
        await awake

    async def go_on(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        await settled()
        while self.waiting and self.waiting[0][0] <= until_s:
            self.now_s, _, awake = heapq.heappop(self.waiting)
            if not awake.done():
                awake.set_result(None)
                await settled()
        self.now_s = until_s


async def settled() -> None:
    """Whatever can go on has gone on."""
    for _ in range(20):
        await asyncio.sleep(0)


@dataclass(slots=True, kw_only=True)
class PlayedChannel:
    """Each ``run`` does as the test says."""

    play: Run
    name: str = "played"
    stall_s: float = 1e9
    traits: Traits = field(default_factory=lambda: Traits(max_text=100))

    async def run(self, link: Link) -> None:
        await self.play(link)

    async def send(self, piece: Piece) -> str | None:
        raise NotImplementedError

    async def edit(self, message_id: str, piece: Piece) -> None:
        raise NotImplementedError

    async def typing(self, chat_id: str) -> None:
        raise NotImplementedError

    async def members(self, chat_id: str) -> Roster | None:
        raise NotImplementedError


@dataclass(slots=True)
class Scene:
    time: Time
    supervisor: Supervisor
    work: asyncio.Task[None]
    restarts: list[float]

    def phase(self) -> Phase:
        return self.supervisor.state.phase


async def taken(_: Incoming) -> None:
    return


@asynccontextmanager
async def let_go_at_last(let_go: asyncio.Event) -> AsyncIterator[None]:
    """A test that fails must not hang on what it plays."""
    try:
        yield
    finally:
        let_go.set()


@asynccontextmanager
async def supervised(
    channel: Channel, *, take: Callable[[Incoming], Awaitable[None]] = taken, jitter: float = 0.0
) -> AsyncIterator[Scene]:
    time, restarts = Time(), list[float]()
    supervisor = Supervisor(
        channel,
        take,
        clock=lambda: time.now_s,
        sleep=time.sleep,
        random=lambda: jitter,
        on_phase=lambda phase: restarts.append(time.now_s) if phase is Phase.STARTING else None,
    )
    async with asyncio.TaskGroup() as group:
        work = group.create_task(supervisor.run())
        await settled()
        yield Scene(time, supervisor, work, restarts)
        work.cancel()
        await time.go_on(10)


async def lose(_: Link) -> None:
    raise ChannelError("nobody answers")


@pytest.mark.req("CHAN-07")
@pytest.mark.parametrize(("jitter", "longer"), [(0.0, 1.0), (1.0, 1.25)])
async def test_a_lost_channel_is_started_again_after_longer_and_longer_pauses(jitter: float, longer: float) -> None:
    async with supervised(PlayedChannel(play=lose), jitter=jitter) as scene:
        await scene.time.go_on(400)
        begun = [0.0, *scene.restarts]
    pauses = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert pauses[:8] == [longer * pause_s for pause_s in (1, 2, 4, 8, 16, 32, 60, 60)]


@pytest.mark.req("CHAN-07")
@pytest.mark.parametrize(("healthy_s", "pause_s"), [(59.0, 8.0), (60.0, 1.0)])
async def test_after_a_minute_of_health_the_pauses_begin_anew(healthy_s: float, pause_s: float) -> None:
    channel = FakeChannel()
    channel.down()
    async with supervised(channel) as scene:
        await scene.time.go_on(5)
        channel.up()
        await scene.time.go_on(2)
        assert scene.restarts == [1.0, 3.0, 7.0]
        assert scene.phase() is Phase.UP
        await scene.time.go_on(healthy_s)
        await channel.say("I am here")
        channel.down()
        await scene.time.go_on(0)
        assert scene.phase() is Phase.WAITING
        channel.up()
        await scene.time.go_on(100)
        assert scene.restarts[3] == 7.0 + healthy_s + pause_s


@pytest.mark.req("CHAN-07")
async def test_a_channel_that_only_returns_is_lost_too() -> None:
    async def leave(link: Link) -> None:
        link.connected("me")

    async with supervised(PlayedChannel(play=leave)) as scene:
        assert (scene.phase(), scene.supervisor.state.why) == (Phase.WAITING, "the connection ended")
        await scene.time.go_on(3)
        assert scene.restarts == [1.0, 3.0]


@pytest.mark.req("CHAN-07")
@pytest.mark.parametrize("grouped", [False, True])
async def test_what_only_a_person_can_mend_stays_off_and_says_why(grouped: bool) -> None:
    error = FatalChannelError("the token is wrong:\nmake another one")
    channel = FakeChannel()
    channel.fail(ExceptionGroup("tasks", [ChannelError("other"), error]) if grouped else error)
    async with supervised(channel) as scene:
        await scene.time.go_on(1_000)
        assert scene.work.done()
        state = scene.supervisor.state
        assert (state.phase, state.why) == (Phase.OFF, "the token is wrong: make another one")
        assert (channel.runs, state.restarts, scene.restarts) == (1, 0, [])


async def test_what_nobody_foresaw_is_in_the_log_with_its_place_once_and_shows_nothing_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stumble(_: Link) -> None:
        raise LookupError("secret-of-the-url")

    async with supervised(PlayedChannel(play=stumble)) as scene:
        await scene.time.go_on(3)
        assert scene.supervisor.state.why == ("it failed in a way that nobody foresaw (LookupError); the log says more")
        assert len(scene.restarts) == 2
    traced = [record for record in caplog.records if record.exc_info]
    assert len(caplog.records) == 3
    assert len(traced) == 1
    assert "in stumble" in str(logging.Formatter().formatException(traced[0].exc_info))  # type: ignore[arg-type]


async def test_what_was_foreseen_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with supervised(PlayedChannel(play=lose)):
        pass
    assert [(record.getMessage(), record.exc_info) for record in caplog.records] == [
        ("channel played was lost: nobody answers", None)
    ]


async def test_cancelling_ends_the_channel_and_nothing_else_happens() -> None:
    channel = FakeChannel()
    async with supervised(channel) as scene:
        assert channel.running
        scene.work.cancel()
        await settled()
        assert scene.work.cancelled()
        assert not channel.running
        assert scene.phase() is Phase.OFF


@pytest.mark.req("CHAN-07")
async def test_a_channel_that_says_nothing_is_started_anew() -> None:
    channel = FakeChannel(stall_s=30.0)
    async with supervised(channel) as scene:
        await scene.time.go_on(29)
        await channel.say("still here")
        await scene.time.go_on(29)
        assert channel.runs == 1
        await scene.time.go_on(2)
        assert channel.runs == 2
        assert scene.restarts == [60.0]
        assert scene.phase() is Phase.UP


@pytest.mark.req("CHAN-07")
async def test_one_that_never_connects_is_started_anew_and_says_why() -> None:
    async def hang(_: Link) -> None:
        await asyncio.Event().wait()

    async with supervised(PlayedChannel(play=hang, stall_s=30.0)) as scene:
        assert scene.phase() is Phase.STARTING
        await scene.time.go_on(30)
        assert scene.supervisor.state.why == "the platform said nothing for 30 s"
        await scene.time.go_on(100)
        assert scene.restarts == [31.0, 63.0, 97.0]


async def test_a_platform_that_we_let_wait_is_not_taken_for_dead() -> None:
    room = asyncio.Event()

    async def take(_: Incoming) -> None:
        await room.wait()

    channel = FakeChannel(stall_s=30.0)
    async with supervised(channel, take=take) as scene, asyncio.TaskGroup() as group:
        saying = group.create_task(channel.say("a message too many"))
        await scene.time.go_on(500)
        assert channel.runs == 1
        room.set()
        await saying
        await scene.time.go_on(29)
        assert channel.runs == 1
        await scene.time.go_on(3)
        assert channel.runs == 2


@pytest.mark.req("CHAN-07")
async def test_a_message_that_could_not_be_kept_is_offered_again() -> None:
    kept: list[str] = []
    disk = iter([OSError(28, "No space left on device"), None])

    async def take(message: Incoming) -> None:
        if (error := next(disk)) is not None:
            raise error
        kept.append(message.text)

    channel = FakeChannel()
    async with supervised(channel, take=take) as scene, asyncio.TaskGroup() as group:
        saying = group.create_task(channel.say("do not lose me"))
        await settled()
        assert (kept, scene.phase()) == ([], Phase.WAITING)
        await scene.time.go_on(1)
        await saying
        assert (kept, channel.runs) == (["do not lose me"], 2)


async def test_a_channel_that_does_not_end_is_reported_never_run_twice_and_holds_nobody_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    let_go, runs = asyncio.Event(), list[str]()

    async def cling(link: Link) -> None:
        runs.append("begun")
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                link.connected("me")  # too late to count

    other = FakeChannel()
    async with supervised(PlayedChannel(play=cling, stall_s=30.0)) as scene, supervised(other), let_go_at_last(let_go):
        await scene.time.go_on(31)
        assert not caplog.records[1:]
        await scene.time.go_on(1_000)
        assert caplog.records[-1].getMessage() == "channel played does not end within 2 s of being told to"
        assert scene.phase() is Phase.WAITING
        assert runs == ["begun"]
        await other.say("I am served")
        scene.work.cancel()
        await scene.time.go_on(1)
        assert not scene.work.done()
        await scene.time.go_on(1)
        assert scene.work.cancelled()


async def test_one_that_let_go_in_the_end_is_started_again() -> None:
    let_go, runs = asyncio.Event(), list[str]()

    async def cling(link: Link) -> None:
        runs.append("begun")
        if len(runs) > 1:
            link.connected("me")
            await asyncio.Event().wait()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                pass

    async with supervised(PlayedChannel(play=cling, stall_s=30.0)) as scene, let_go_at_last(let_go):
        await scene.time.go_on(60)
        assert runs == ["begun"]
        let_go.set()
        await scene.time.go_on(1)
        assert (scene.restarts, scene.phase()) == ([61.0], Phase.UP)


async def test_one_that_is_cancelled_from_within_is_lost_like_any_other() -> None:
    async def give_in(_: Link) -> None:
        raise asyncio.CancelledError

    async with supervised(PlayedChannel(play=give_in)) as scene:
        await scene.time.go_on(1)
        assert scene.restarts == [1.0]


@pytest.mark.req("CHAN-07")
async def test_the_state_says_who_it_is_why_it_was_lost_and_how_often() -> None:
    channel = FakeChannel(who="bubbles_bot")
    channel.down()
    async with supervised(channel) as scene:
        state = scene.supervisor.state
        assert (state.phase, state.who, state.why) == (Phase.WAITING, "", "the fake is not reached")
        assert (state.restarts, state.last_alive) == (0, None)
        channel.up()
        await scene.time.go_on(1)
        after = scene.supervisor.state
        assert (after.phase, after.who, after.why, after.restarts) == (Phase.UP, "bubbles_bot", "", 1)
        assert after.last_alive is not None
        assert state.since <= after.since <= after.last_alive


async def test_while_it_is_started_again_it_says_why_it_must_be() -> None:
    first = iter([True])

    async def lose_then_hang(_: Link) -> None:
        if next(first, False):
            raise ChannelError("nobody answers")
        await asyncio.Event().wait()

    async with supervised(PlayedChannel(play=lose_then_hang)) as scene:
        await scene.time.go_on(1)
        state = scene.supervisor.state
        assert (state.phase, state.why) == (Phase.STARTING, "nobody answers")
