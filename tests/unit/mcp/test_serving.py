"""The server over a socket, with tools in memory: what becomes of calls, whatever the client does."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from bubbles.bus import Origin
from bubbles.controller.approvals.broker import ApprovalBroker
from bubbles.controller.approvals.contract import ApprovalCard
from bubbles.mcp.contract import ServerAnswer
from bubbles.mcp.serving.calls import AT_ONCE, MAX_OPEN, Calls
from bubbles.mcp.serving.contract import OfferedTool
from bubbles.mcp.serving.rounds import MAX_PARKED
from bubbles.mcp.serving.server import serve
from bubbles.mcp.serving.wire import Wire
from bubbles.providers.contract import ToolCall, ToolSpec

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {"form": {}}},
    "clientInfo": {"name": "tester", "version": "1"},
}
MODERN = "io.modelcontextprotocol"


@dataclass(slots=True, kw_only=True)
class Desk:
    """``Offered``. ``hold`` waits for ``go``, ``ask`` is a card, anything else says what it got."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    broker: ApprovalBroker | None = None
    origins: list[Origin] = field(default_factory=list)
    stopped: int = 0
    running: int = 0
    most: int = field(default=0, init=False)
    changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    tools = (
        OfferedTool(
            spec=ToolSpec(name="hold", description="Waits.", parameters={"type": "object"}),
            read_only=True,
            destructive=False,
            idempotent=True,
            open_world=False,
        ),
    )
    instructions = "Words."

    def wake(self) -> None:
        return None

    async def runs(self, count: int) -> None:
        """Wait until so many calls do."""
        while self.running != count:
            self.changed.clear()
            await self.changed.wait()

    async def run(self, call: ToolCall, origin: Origin) -> ServerAnswer:
        self.origins.append(origin)
        self.running += 1
        self.most = max(self.most, self.running)
        self.changed.set()
        try:
            return await self._done(call, origin)
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        finally:
            self.running -= 1
            self.changed.set()

    async def _done(self, call: ToolCall, origin: Origin) -> ServerAnswer:
        if call.name == "hold":
            await self.go.wait()
        elif call.name == "ask":
            assert self.broker is not None
            card = ApprovalCard(
                id=self.broker.new_id(),
                command=call.arguments,
                segment="",
                reason="Because.",
                directory="/work",
                sandbox="fake",
                network="none",
            )
            answer = await self.broker.ask(card, origin)
            return ServerAnswer(text=answer.told, is_error=not answer.approved)
        return ServerAnswer(text=f"{call.name} {call.arguments}")


class Line:
    """The client's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._number = 0

    def send(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        self._number += 1
        self.write({"id": self._number, "method": method, "params": params or {}})
        return self._number

    def write(self, message: Mapping[str, Any]) -> None:
        self.writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def call(self, name: str, token: int | None = None, /, **arguments: Any) -> int:
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        return self.send("tools/call", {"name": name, "arguments": arguments, **meta})

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(5):
            found: dict[str, Any] = json.loads(await self._reader.readline())
        return found

    async def answer(self, ident: int) -> dict[str, Any]:
        while (found := await self.next()).get("id") != ident or "method" in found:
            pass
        return found

    async def text(self, ident: int) -> str:
        return str((await self.answer(ident))["result"]["content"][0]["text"])

    async def hello(self, **more: Any) -> None:
        await self.answer(self.send("initialize", {**HELLO, **more}))
        self.write({"method": "notifications/initialized"})


@asynccontextmanager
async def connected(desk: Desk, progress_s: float = 60.0, timeout_s: float = 60.0) -> AsyncIterator[Line]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    calls = Calls("mcp-test", "nobody is there")
    desk.broker = ApprovalBroker(calls.approver_for, timeout_s=timeout_s, away=calls.away)
    with ours, Wire(ours.fileno(), ours.fileno()) as wire:
        async with asyncio.timeout(15), asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(serve(desk, calls, wire, progress_s))
            reader, writer = await asyncio.open_connection(sock=theirs, limit=1 << 22)
            yield Line(reader, writer)
            writer.close()
            await serving


async def test_a_client_that_wants_to_know_is_told_that_its_call_still_runs() -> None:
    desk = Desk()
    async with connected(desk, progress_s=0.02) as line:
        await line.hello()
        ident = line.call("hold", 7)
        told = [await line.next() for _ in range(3)]
        assert [one["params"]["progressToken"] for one in told] == [7, 7, 7]
        amounts = [one["params"]["progress"] for one in told]
        assert amounts == sorted(set(amounts))
        desk.go.set()
        assert await line.text(ident) == "hold {}"


async def test_a_client_that_does_not_is_told_nothing() -> None:
    desk = Desk()
    async with connected(desk, progress_s=0.01) as line:
        await line.hello()
        ident = line.call("hold")
        asyncio.get_running_loop().call_later(0.1, desk.go.set)
        assert (await line.next())["id"] == ident


async def test_only_so_many_calls_run_at_a_time_and_all_have_their_turn() -> None:
    desk = Desk()
    async with connected(desk) as line:
        await line.hello()
        idents = {line.call("hold", n=n) for n in range(100)}
        await desk.runs(AT_ONCE)
        desk.go.set()
        assert {(await line.next())["id"] for _ in idents} == idents
    assert desk.most == AT_ONCE


async def test_more_calls_than_can_wait_are_refused_at_once() -> None:
    desk = Desk()
    async with connected(desk) as line:
        await line.hello()
        for _ in range(MAX_OPEN):
            line.call("hold")
        refused = line.call("hold")
        assert "Too much is asked for at once" in await line.text(refused)
        desk.go.set()


async def test_a_cancelled_call_is_stopped_once_and_never_answered() -> None:
    desk = Desk()
    async with connected(desk) as line:
        await line.hello()
        ident = line.call("hold")
        await desk.runs(1)
        line.write({"method": "notifications/cancelled", "params": {"requestId": ident}})
        assert await line.text(line.call("other")) == "other {}"
        await desk.runs(0)
        assert desk.stopped == 1


async def test_what_runs_is_stopped_when_the_client_is_gone() -> None:
    desk = Desk()
    async with connected(desk) as line:
        await line.hello()
        for _ in range(3):
            line.call("hold")
        await desk.runs(3)
    assert (desk.stopped, desk.running) == (3, 0)


@pytest.mark.parametrize(
    ("name", "sender"),
    [
        ("codex", "codex #1"),
        ("", "client #1"),
        ("x" * 10_000, f"{'x' * 60} #1"),
        ("a\n\x1b[31mred\u202e", "a⟨\\n⟩⟨\\x1b⟩[31mred⟨\\u202e⟩ #1"),
    ],
)
async def test_a_clients_name_is_kept_as_far_as_it_can_be_shown(name: str, sender: str) -> None:
    desk = Desk()
    async with connected(desk) as line:
        await line.hello(clientInfo={"name": name, "version": "1"})
        await line.text(line.call("any"))
    assert desk.origins[0].sender == sender
    assert (desk.origins[0].address.channel, desk.origins[0].session_key) == ("mcp", "mcp-test")


@pytest.mark.req("APPR-01")
async def test_a_client_that_only_opens_addresses_is_not_asked() -> None:
    async with connected(Desk()) as line:
        await line.hello(capabilities={"elicitation": {"url": {}}})
        assert "nobody is there" in await line.text(line.call("ask"))


def modern(name: str, arguments: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    meta = {
        f"{MODERN}/protocolVersion": "2026-07-28",
        f"{MODERN}/clientInfo": HELLO["clientInfo"],
        f"{MODERN}/clientCapabilities": {"elicitation": {"form": {}}},
    }
    return {"name": name, "arguments": arguments, "_meta": meta, **more}


def yes(asked: Mapping[str, Any]) -> dict[str, Any]:
    (key,) = asked["inputRequests"]
    answer = {"action": "accept", "content": {"decision": "run"}}
    return {"requestState": asked["requestState"], "inputResponses": {key: answer}}


async def _asked(line: Line, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = (await line.answer(line.send("tools/call", modern("ask", arguments))))["result"]
    assert result["resultType"] == "input_required"
    return result


@pytest.mark.req("APPR-01", "DEC-12")
async def test_an_answer_counts_once_and_for_the_call_that_was_asked_about() -> None:
    async with connected(Desk()) as line:
        asked = await _asked(line, n=1)
        other = await line.answer(line.send("tools/call", modern("ask", {"n": 2}, **yes(asked))))
        assert other["error"]["code"] == -32602
        assert (
            await line.text(line.send("tools/call", modern("ask", {"n": 1}, **yes(asked)))) == "A person approved it."
        )
        again = await line.answer(line.send("tools/call", modern("ask", {"n": 1}, **yes(asked))))
        assert again["error"]["code"] == -32602


@pytest.mark.parametrize(
    "responses",
    [None, {}, {"other": {"action": "accept", "content": {"decision": "run"}}}],
    ids=["none", "empty", "of another question"],
)
async def test_who_comes_back_without_an_answer_is_asked_again(responses: Any) -> None:
    async with connected(Desk()) as line:
        asked = await _asked(line)
        empty = {"requestState": asked["requestState"], "inputResponses": responses}
        more = {key: value for key, value in empty.items() if value is not None}
        again = (await line.answer(line.send("tools/call", modern("ask", {}, **more))))["result"]
        assert again["resultType"] == "input_required"
        assert again["requestState"] != asked["requestState"]
        assert await line.text(line.send("tools/call", modern("ask", {}, **yes(again)))) == "A person approved it."


async def test_a_state_that_was_made_up_is_refused() -> None:
    async with connected(Desk()) as line:
        asked = await _asked(line)
        made_up = {**yes(asked), "requestState": "x"}
        assert (await line.answer(line.send("tools/call", modern("ask", {}, **made_up))))["error"]["code"] == -32602


@pytest.mark.req("APPR-02")
async def test_who_never_comes_back_keeps_nothing_for_ever() -> None:
    desk = Desk()
    async with connected(desk, timeout_s=0.01) as line:
        first = await _asked(line)
        for number in range(MAX_PARKED):
            asked = await _asked(line, n=number)
            await desk.runs(0)
        late = await line.text(line.send("tools/call", modern("ask", {"n": MAX_PARKED - 1}, **yes(asked))))
        assert "nobody answered within 0.01 seconds" in late
        gone = await line.answer(line.send("tools/call", modern("ask", {}, **yes(first))))
        assert gone["error"]["code"] == -32602
