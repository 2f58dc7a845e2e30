"""The server: what is offered, in the words of MCP. Both ways of the protocol are spoken, by handshake and without.

Sources: modelcontextprotocol.io/specification/2025-11-25 and 2026-07-28.
"""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import suppress
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ElicitResult,
    ImageContent,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from bubbles import __version__
from bubbles.controller.approvals.contract import ApprovalCard
from bubbles.mcp.contract import ServerAnswer
from bubbles.mcp.serving.calls import Calls
from bubbles.mcp.serving.contract import Offered, OfferedTool
from bubbles.mcp.serving.questions import Ask, can_ask, form
from bubbles.mcp.serving.rounds import Question, Round, Rounds
from bubbles.mcp.serving.wire import GRACE_S, Wire

LONG = 100_000
"""Bytes of a request from which on its arguments are turned into text in a thread."""
PROGRESS_S = 10.0
"""How often a client that wants to know is told that a call still runs."""

FIRST = asyncio.FIRST_COMPLETED

Context = ServerRequestContext[Any]


async def serve(offered: Offered, calls: Calls, wire: Wire, progress_s: float = PROGRESS_S) -> None:
    """Until the client has said its last, or reads no more. Every call has ended then."""
    async with asyncio.TaskGroup() as tasks:
        answers = Answers(offered, calls, wire, tasks, progress_s)
        server = Server[Any](
            "bubbles",
            version=__version__,
            title="Bubbles",
            instructions=offered.instructions,
            on_list_tools=answers.list_tools,
            on_call_tool=answers.call_tool,
        )
        server.middleware[:] = [answers.woken]
        try:
            await server.run(wire.incoming, wire.outgoing, server.create_initialization_options())
        finally:
            answers.stop()
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_S):
            await wire.out.idle()


class Answers:
    """What the client's requests are answered."""

    def __init__(self, offered: Offered, calls: Calls, wire: Wire, tasks: asyncio.TaskGroup, progress_s: float) -> None:
        self._offered = offered
        self._calls = calls
        self._wire = wire
        self._tasks = tasks
        self._progress_s = progress_s
        self._running: set[asyncio.Task[ServerAnswer]] = set()
        self._rounds = Rounds()

    async def woken(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Around every message."""
        if ctx.method in ("initialize", "server/discover"):
            self._offered.wake()
        return await call_next(ctx)

    async def list_tools(self, context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        del context, params
        return ListToolsResult(tools=[_described(tool) for tool in self._offered.tools])

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        if modern and params.request_state is not None:
            going_on = self._rounds.resumed(params)
        else:
            going_on = await self._begun(context, params, modern=modern)
        try:
            asked = await self._waited(context, going_on)
        except asyncio.CancelledError:
            going_on.task.cancel()
            raise
        if asked:
            return self._rounds.park(going_on)
        if going_on.task.cancelled():
            raise MCPError(INTERNAL_ERROR, "The call was ended: too many others wait for answers.")
        return _result(going_on.task.result())

    def stop(self) -> None:
        for task in self._running:
            task.cancel()

    async def _begun(self, context: Context, params: CallToolRequestParams, *, modern: bool) -> Round:
        long = isinstance(context.request, int) and context.request > LONG
        arguments = params.arguments or {}
        text = await asyncio.to_thread(json.dumps, arguments) if long else json.dumps(arguments)
        question = Question()
        ask: Ask | None = None
        if can_ask(context.session.client_capabilities):
            ask = question.ask if modern else _asking(context)
        about = context.session.client_params
        opened = self._calls.opened("" if about is None else about.client_info.name, params.name, text, ask)
        task = self._tasks.create_task(self._calls.run(opened, self._offered, self._wire.out))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return Round(task, question, params)

    async def _waited(self, context: Context, going_on: Round) -> bool:
        """Whether it has a question; else it has ended."""
        asked = asyncio.create_task(going_on.question.asked.wait())
        waited_s = 0.0
        try:
            while not (await asyncio.wait({going_on.task, asked}, timeout=self._progress_s, return_when=FIRST))[0]:
                waited_s += self._progress_s
                await context.session.report_progress(waited_s, message=f"It still runs, after {waited_s:g} s.")
        finally:
            asked.cancel()
        return not going_on.task.done()


def _asking(context: Context) -> Ask:
    """By a request of our own, while the client's is open."""

    async def ask(card: ApprovalCard) -> ElicitResult:
        shown = form(card)
        return await context.session.elicit_form(shown.message, shown.requested_schema, context.request_id)

    return ask


def _described(tool: OfferedTool) -> Tool:
    return Tool(
        name=tool.spec.name,
        description=tool.spec.description,
        input_schema=dict(tool.spec.parameters),
        annotations=ToolAnnotations(
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=tool.open_world,
        ),
    )


def _result(answer: ServerAnswer) -> CallToolResult:
    content: list[Any] = [TextContent(type="text", text=answer.text)]
    content += [
        ImageContent(type="image", data=base64.b64encode(image.data).decode(), mime_type=image.media_type)
        for image in answer.images
    ]
    return CallToolResult(content=content, is_error=answer.is_error)
