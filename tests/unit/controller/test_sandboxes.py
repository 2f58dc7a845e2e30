"""The pool: which sandbox a session gets, when it is closed, and what the model is told of a new one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bubbles.controller.sandboxes import Sandboxes
from sandbox_backends.contract import ExecRequest, Outcome, Root, SandboxSession, SandboxSpec
from sandbox_backends.errors import BackendUnavailableError, SandboxError, SandboxLostError
from sandbox_backends.fake import FakeBackend

TRUE = ExecRequest(argv=("true",), timeout_s=5)


@dataclass(slots=True, kw_only=True)
class GatedBackend(FakeBackend):
    """Opens and closes only once it may."""

    may_open: asyncio.Event = field(default_factory=asyncio.Event)
    may_close: asyncio.Event = field(default_factory=asyncio.Event)
    opening: int = 0
    cancelled: int = 0
    close_error: Exception | None = None

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[SandboxSession]:
        self.opening += 1
        try:
            await self.may_open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        async with FakeBackend.open(self, spec) as session:
            yield session
        await self.may_close.wait()
        if self.close_error is not None:
            raise self.close_error


def open_gates(**more: Exception | None) -> GatedBackend:
    backend = GatedBackend(**more)  # type: ignore[arg-type]
    backend.may_open.set()
    backend.may_close.set()
    return backend


def spec(session: str = "s", **env: str) -> SandboxSpec:
    return SandboxSpec(session=session, roots=(Root(path=Path("/work/project")),), env=env)


def pool(backend: FakeBackend, idle_s: float = 60.0) -> Sandboxes:
    return Sandboxes(lambda name: backend, idle_s=idle_s)


async def until(condition: Callable[[], object]) -> None:
    """Wait for what must come, however busy the machine is."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # what is waited for tells no event of itself
            await asyncio.sleep(0.002)


async def turns() -> None:
    """Let go on what can: for what must not come, which on a busy machine could only be overlooked."""
    await asyncio.sleep(0.03)


async def test_session_keeps_its_sandbox_from_one_use_to_the_next() -> None:
    backend = FakeBackend()
    async with pool(backend) as sandboxes:
        async with sandboxes.use("fake", spec()) as first:
            await first.session.write_file("kept", b"x")
        async with sandboxes.use("fake", spec()) as second:
            assert second.session is first.session
            assert await second.session.read_file("kept") == b"x"
        async with sandboxes.use("fake", spec("another")) as other:
            assert other.session is not first.session
        assert (first.reset, second.reset, other.reset) == (None, None, None)
    assert all(session.lost for session in backend.sessions)


async def test_many_first_uses_at_once_open_one_sandbox() -> None:
    backend = GatedBackend()
    backend.may_close.set()

    async def use() -> SandboxSession:
        async with sandboxes.use("fake", spec()) as lease:
            return lease.session

    async with pool(backend) as sandboxes:
        tasks = [asyncio.create_task(use()) for _ in range(20)]
        await until(lambda: backend.opening == 1)
        backend.may_open.set()
        assert len(set(await asyncio.gather(*tasks))) == 1
    assert backend.opening == 1


async def test_idle_sandbox_is_closed_and_the_next_use_is_told_why_once() -> None:
    backend = FakeBackend()
    async with pool(backend, idle_s=0.05) as sandboxes:
        async with sandboxes.use("fake", spec()) as lease:
            await asyncio.sleep(0.1)
            assert lease.session.lost is None  # in use, so not idle
        async with sandboxes.use("fake", spec()) as lease:
            assert lease.reset is None
        await until(lambda: backend.sessions[0].lost)
        resets = []
        for _ in range(2):
            async with sandboxes.use("fake", spec()) as lease:
                resets.append(lease.reset)
                assert lease.session.lost is None
        assert resets == ["it was idle and has been closed", None]
    assert len(backend.sessions) == 2


async def test_use_of_one_keeps_it_from_being_idle_for_the_other() -> None:
    backend = FakeBackend()
    async with pool(backend, idle_s=0.05) as sandboxes, sandboxes.use("fake", spec()) as lease:
        async with sandboxes.use("fake", spec()):
            pass
        await asyncio.sleep(0.1)
        assert lease.session.lost is None


@pytest.mark.req("SBX-05")
async def test_lost_sandbox_is_replaced_and_the_loss_told_once() -> None:
    """B028: no dead sandbox is used for ever, and no loop replaces it again and again."""
    backend = FakeBackend()
    async with pool(backend) as sandboxes:
        async with sandboxes.use("fake", spec()) as lease:
            running = asyncio.create_task(lease.session.exec(ExecRequest(argv=("sleep", "60"), timeout_s=60)))
            await until(lambda: backend.sessions[0].requests)
            backend.sessions[0].lose("the engine was restarted")
            assert (await running).outcome is Outcome.LOST
        resets = []
        for _ in range(3):
            async with sandboxes.use("fake", spec()) as lease:
                resets.append(lease.reset)
                assert (await lease.session.exec(TRUE)).ok
    assert resets == ["the engine was restarted", None, None]
    assert len(backend.sessions) == 2


async def test_changed_demand_gets_another_sandbox() -> None:
    backend = FakeBackend()
    async with pool(backend) as sandboxes:
        async with sandboxes.use("fake", spec()) as old:
            pass
        async with sandboxes.use("fake", spec(A="1")) as new:
            assert new.session.env["A"] == "1"
            assert new.reset == "its settings have changed"
            assert old.session.lost
        async with sandboxes.use("other", spec(A="1")) as lease:
            assert lease.reset == "its settings have changed"
    assert len(backend.sessions) == 3


async def test_error_of_opening_reaches_every_caller_and_is_not_kept() -> None:
    backend = open_gates(open_error=BackendUnavailableError("there is no bwrap.", "apt-get install bubblewrap"))
    backend.may_open.clear()

    async def use() -> None:
        async with sandboxes.use("fake", spec()):
            raise AssertionError

    async with pool(backend, idle_s=0.01) as sandboxes:
        tasks = [asyncio.create_task(use()) for _ in range(3)]
        await until(lambda: backend.opening == 1)
        backend.may_open.set()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in errors] == [BackendUnavailableError] * 3
        assert backend.opening == 1
        await asyncio.sleep(0.05)
        backend.open_error = None
        async with sandboxes.use("fake", spec()) as lease:
            assert lease.reset is None  # nothing was there that could be gone
            assert (await lease.session.exec(TRUE)).ok


async def test_what_the_machine_has_no_more_of_is_said_and_not_called_an_internal_fault() -> None:
    backend = FakeBackend(open_error=OSError(28, "No space left on device", "/data/run/.new-s"))
    told: list[SandboxError] = []
    async with pool(backend) as sandboxes:
        sandboxes.open_ahead("fake", spec(), told.append)
        await until(lambda: told)
        with pytest.raises(BackendUnavailableError, match=r"new-s: No space left on device\. Free disk"):
            async with sandboxes.use("fake", spec()):
                raise AssertionError
    assert "No space left" in str(told[0])


async def test_told_loss_is_not_forgotten_when_the_next_opening_fails() -> None:
    backend = FakeBackend()
    async with pool(backend) as sandboxes:
        async with sandboxes.use("fake", spec()):
            backend.sessions[0].lose("gone")
        backend.open_error = BackendUnavailableError("not now")
        with pytest.raises(BackendUnavailableError):
            async with sandboxes.use("fake", spec()):
                raise AssertionError
        backend.open_error = None
        async with sandboxes.use("fake", spec()) as lease:
            assert lease.reset == "gone"


@pytest.mark.req("SBX-12")
async def test_opening_ahead_saves_the_wait_and_keeps_what_is_to_be_told() -> None:
    backend = FakeBackend()
    async with pool(backend) as sandboxes:
        sandboxes.open_ahead("fake", spec())
        await until(lambda: len(backend.sessions) == 1)
        async with sandboxes.use("fake", spec()) as lease:
            backend.sessions[0].lose("gone")
            assert lease.reset is None
        sandboxes.open_ahead("fake", spec())
        await until(lambda: len(backend.sessions) == 2)
        async with sandboxes.use("fake", spec()) as lease:
            assert lease.reset == "gone"


@pytest.mark.req("SBX-12")
async def test_opening_ahead_that_fails_is_told_and_one_that_is_not_used_becomes_idle() -> None:
    backend = open_gates(open_error=BackendUnavailableError("no"))
    told: list[str] = []
    async with pool(backend, idle_s=0.05) as sandboxes:
        sandboxes.open_ahead("fake", spec(), lambda error: told.append(str(error)))
        await until(lambda: told)
        assert told == ["no"]
        backend.open_error = None
        sandboxes.open_ahead("fake", spec())
        await until(lambda: backend.sessions and backend.sessions[0].lost)
    assert (backend.opening, len(backend.sessions)) == (2, 1)


async def test_closing_one_under_its_user_is_a_loss_to_that_user_only() -> None:
    backend = FakeBackend()
    async with pool(backend) as sandboxes:
        async with sandboxes.use("fake", spec("other")) as other, sandboxes.use("fake", spec()) as lease:
            await sandboxes.close("s")
            with pytest.raises(SandboxLostError):
                await lease.session.exec(TRUE)
            assert (await other.session.exec(TRUE)).ok
            async with sandboxes.use("fake", spec()) as new:
                assert (await new.session.exec(TRUE)).ok
                assert new.reset is None  # who closed it knows
        await sandboxes.close("s")
        await sandboxes.close("s")
        await sandboxes.close("never opened")


async def test_closing_while_it_opens_cancels_the_opening_and_tells_who_waits() -> None:
    backend = GatedBackend()

    async def use() -> None:
        async with sandboxes.use("fake", spec()):
            raise AssertionError

    async with pool(backend) as sandboxes:
        task = asyncio.create_task(use())
        await until(lambda: backend.opening == 1)
        await sandboxes.close("s")
        with pytest.raises(SandboxLostError, match="before it had opened"):
            await task
        assert (backend.opening, backend.cancelled, len(backend.sessions)) == (1, 1, 0)


async def test_cancelled_caller_leaves_the_opening_to_the_others() -> None:
    backend = GatedBackend()
    backend.may_close.set()

    async def use() -> SandboxSession:
        async with sandboxes.use("fake", spec()) as lease:
            assert lease.session.lost is None
            return lease.session

    async with pool(backend, idle_s=0.05) as sandboxes:
        first, second = asyncio.create_task(use()), asyncio.create_task(use())
        await until(lambda: backend.opening == 1)
        first.cancel()
        await asyncio.wait({first})
        assert first.cancelled()
        backend.may_open.set()
        session = await second
        assert backend.opening == 1
        await until(lambda: session.lost)  # and idle as ever


async def test_opening_that_nobody_waits_for_any_more_becomes_idle() -> None:
    backend = open_gates()
    backend.may_open.clear()

    async def use() -> None:
        async with sandboxes.use("fake", spec()):
            raise AssertionError

    async with pool(backend, idle_s=0.02) as sandboxes:
        task = asyncio.create_task(use())
        await until(lambda: backend.opening == 1)
        task.cancel()
        await asyncio.wait({task})
        backend.may_open.set()
        await until(lambda: backend.sessions and backend.sessions[0].lost)
    assert len(backend.sessions) == 1


async def test_reason_survives_a_caller_that_is_cancelled_while_the_old_one_closes() -> None:
    backend = open_gates()
    async with pool(backend) as sandboxes:
        async with sandboxes.use("fake", spec()):
            backend.sessions[0].lose("the container was removed")
        backend.may_close.clear()

        async def use() -> str | None:
            async with sandboxes.use("fake", spec()) as lease:
                return lease.reset

        impatient = asyncio.create_task(use())
        await turns()
        impatient.cancel()
        await asyncio.wait({impatient})
        backend.may_close.set()
        assert await use() == "the container was removed"
        assert await use() is None


async def test_new_one_opens_only_when_the_old_one_is_closed() -> None:
    """They may share a HOME."""
    backend = open_gates()
    async with pool(backend) as sandboxes:
        async with sandboxes.use("fake", spec()):
            backend.sessions[0].lose("gone")
        backend.may_close.clear()

        async def use() -> None:
            async with sandboxes.use("fake", spec()):
                pass

        task = asyncio.create_task(use())
        await turns()
        assert backend.opening == 1
        backend.may_close.set()
        await task
        assert backend.opening == 2


async def test_leaving_the_pool_closes_all_and_opens_no_more() -> None:
    backend = open_gates()
    late: list[BaseException] = []
    async with pool(backend, idle_s=1000) as sandboxes:
        for number in range(5):
            async with sandboxes.use("fake", spec(f"s{number}")):
                pass
        backend.may_close.clear()

        async def use_late() -> None:
            await asyncio.sleep(0.02)
            sandboxes.open_ahead("fake", spec("ahead"))
            try:
                async with sandboxes.use("fake", spec("late")):
                    pass
            except SandboxLostError as error:
                late.append(error)
            backend.may_close.set()

        task = asyncio.create_task(use_late())
    await task
    assert len(late) == 1
    assert [bool(session.lost) for session in backend.sessions] == [True] * 5


async def test_leaving_while_one_opens_does_not_wait_for_it() -> None:
    backend = GatedBackend()
    async with asyncio.timeout(5):
        async with pool(backend) as sandboxes:
            sandboxes.open_ahead("fake", spec())
            await until(lambda: backend.opening == 1)
    assert backend.cancelled == 1


async def test_error_in_the_body_comes_out_as_it_is_and_all_are_closed() -> None:
    backend = open_gates()

    async def work() -> None:
        async with pool(backend) as sandboxes, sandboxes.use("fake", spec()):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert backend.sessions[0].lost


async def test_cancelled_body_closes_all() -> None:
    backend = open_gates()

    async def work() -> None:
        async with pool(backend) as sandboxes, sandboxes.use("fake", spec()):
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await until(lambda: backend.sessions)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert backend.sessions[0].lost


async def test_error_of_closing_is_logged_and_costs_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    backend = open_gates(close_error=ZeroDivisionError())
    with caplog.at_level(logging.WARNING):
        async with (
            pool(backend) as sandboxes,
            sandboxes.use("fake", spec()),
            sandboxes.use("fake", spec("other")) as other,
        ):
            await sandboxes.close("s")
            assert (await other.session.exec(TRUE)).ok
    assert "session s did not close as it should" in caplog.text


async def test_pool_remembers_nothing_of_sessions_that_are_gone() -> None:
    backend = FakeBackend()
    async with pool(backend) as sandboxes:
        for number in range(50):
            async with sandboxes.use("fake", spec(f"s{number}")):
                pass
            await sandboxes.close(f"s{number}")
        assert (len(sandboxes._kept), len(sandboxes._locks), len(sandboxes._resets)) == (0, 0, 0)


# -- what earlier controllers left --


@pytest.mark.req("SBX-05")
async def test_leftovers_are_reaped_once_when_the_pool_begins_and_nothing_waits_for_it() -> None:
    may_end, reaped = asyncio.Event(), []

    async def reap() -> None:
        reaped.append("begun")
        await may_end.wait()
        reaped.append("done")

    backend = FakeBackend()
    async with Sandboxes(lambda name: backend, reap=reap) as sandboxes:
        for session in ("s", "t"):
            async with sandboxes.use("fake", spec(session)) as lease:
                assert (await lease.session.exec(TRUE)).ok
        assert reaped == ["begun"]
        may_end.set()
        await turns()
        assert reaped == ["begun", "done"]


async def test_reaping_that_fails_is_logged_and_costs_no_sandbox(caplog: pytest.LogCaptureFixture) -> None:
    async def reap() -> None:
        raise ZeroDivisionError

    backend = FakeBackend()
    with caplog.at_level(logging.WARNING):
        async with Sandboxes(lambda name: backend, reap=reap) as sandboxes:
            await turns()
            async with sandboxes.use("fake", spec()) as lease:
                assert (await lease.session.exec(TRUE)).ok
    assert "could not all be removed" in caplog.text


async def test_leaving_the_pool_does_not_wait_for_an_engine_that_hangs() -> None:
    async def reap() -> None:
        await asyncio.sleep(3600)

    async with asyncio.timeout(5):
        async with Sandboxes(lambda name: FakeBackend(), reap=reap):
            await turns()
