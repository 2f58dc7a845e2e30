"""The rows of ``cases/escapes.jsonl`` for changing, listing and running, by the tools themselves."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbles.bus import Address, Origin
from bubbles.config.schema import FileSettings
from bubbles.controller.approvals.broker import ApprovalBroker
from bubbles.controller.contract import Workplace
from bubbles.controller.controller import Controller
from bubbles.controller.policy.rules import Rulebook
from bubbles.controller.redaction import Redactor
from bubbles.controller.sandboxes import Sandboxes
from bubbles.controller.timeline.writing import Timeline
from bubbles.providers.contract import ToolCall
from bubbles.sessions.contract import Folders
from bubbles.tools.all import make_tools
from bubbles.tools.contract import ToolResult
from bubbles.tools.registry import Toolbox
from sandbox_backends.contract import Enforces, Probe, Root, SandboxSession, SandboxSpec
from tests.security.escape_grounds import CANARY, Grounds, in_the_loop_of_its_session, link, text
from tests.security.test_escapes import ROWS, SETUP
from tests.tool_desk import Nodder

pytestmark = pytest.mark.req("DEC-13", "TOOL-01", "TOOL-02")

HERE = Origin(session_key="escapes", address=Address(channel="cli", chat_id="terminal"), sender="me")
OURS = {row["id"]: row for row in ROWS.values() if row["tool"] in ("edit", "list", "working_dir")}


class OpenAlready:
    """A backend whose one session is open."""

    name = "open"
    enforces = Enforces.NOTHING

    def __init__(self, session: SandboxSession) -> None:
        self._session = session

    async def probe(self) -> Probe:
        return Probe(usable=True)

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[SandboxSession]:
        yield self._session


@asynccontextmanager
async def tools_on(grounds: Grounds, tmp_path: Path) -> AsyncIterator[Toolbox]:
    place = Workplace(
        backend="open",
        spec=SandboxSpec(session="escapes", roots=(Root(path=grounds.root),)),
        enforces=Enforces.NOTHING,
        home="/home/agent",
        person_home=str(tmp_path),
    )
    folders = Folders(key="escapes", desk=grounds.root, state=tmp_path)
    async with Sandboxes(lambda _: OpenAlready(grounds.session)) as sandboxes:
        controller = Controller(
            sandboxes=sandboxes,
            rulebook=lambda _: Rulebook(),
            broker=ApprovalBroker(lambda _: Nodder()),
            timeline=Timeline(tmp_path, Redactor(()), owner="me"),
        )
        yield make_tools(controller, lambda _: place, lambda _: folders, FileSettings())


async def call(tools: Toolbox, tool: str, **arguments: Any) -> ToolResult:
    async with asyncio.timeout(10):
        made = ToolCall(id="call_1", name=tool, arguments=json.dumps(arguments))
        return (await tools.run(made, HERE)).result


async def change(tools: Toolbox, path: str) -> ToolResult:
    """Change it, whether a canary or our own text lies there."""
    for old in ("canary", "inside", "root"):
        result = await call(tools, "edit_file", path=path, old=old, new="changed", all=True)
        if not result.is_error:
            return result
    return result


async def act(tools: Toolbox, row: dict[str, Any]) -> ToolResult:
    path = row["path"].removesuffix(" (recursive)")
    match row["tool"]:
        case "edit":
            return await change(tools, path)
        case "list":
            return await call(tools, "list_dir", path=path)
    return await call(tools, "exec", script="pwd -P; cat secret target *", cwd=path)


@in_the_loop_of_its_session
@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in OURS.values()])
async def test_tool_gives_the_rows_verdict_and_nothing_outside_changes_or_is_seen(
    grounds: Grounds, tmp_path: Path, row: dict[str, Any]
) -> None:
    for make in SETUP.get(row["id"], ()):
        make(grounds.root, grounds.outside)
    before = grounds.around(), await grounds.around_inside()
    async with tools_on(grounds, tmp_path) as tools:
        result = await act(tools, row)
    assert result.is_error == (row["expect"] != "allow"), result.text
    assert CANARY.decode().strip() not in result.text
    if row["expect"] == "refuse" and row["id"] != "F115":  # which is a name like any other, of nothing
        assert str(grounds.root) in result.text  # where it may go instead
    assert (grounds.around(), await grounds.around_inside()) == before
    assert not list(grounds.root.rglob(".bubbles-*"))
    assert grounds.session.lost is None


@in_the_loop_of_its_session
@pytest.mark.usefixtures("tidy")
async def test_a_link_that_leads_out_serves_no_tool(grounds: Grounds, tmp_path: Path) -> None:  # B129, B122
    link("dots", "../../etc/hostname")(grounds.root, "")
    link("f", "@OUT@/secret")(grounds.root, grounds.outside)
    link("d", "@OUT@")(grounds.root, grounds.outside)
    before = grounds.around(), await grounds.around_inside()
    async with tools_on(grounds, tmp_path) as tools:
        for path in ("dots", "f", "d/secret", "d/new"):
            for tool, more in (
                ("read_file", {}),
                ("write_file", {"content": "x"}),
                ("edit_file", {"old": "canary", "new": "x"}),
            ):
                result = await call(tools, tool, path=path, **more)
                assert result.is_error, result.text
                assert "outside the session's directories" in result.text
        listed = await call(tools, "list_dir")
        assert listed.text == "d  (link)\ndots  (link)\nf  (link)"
    assert (grounds.around(), await grounds.around_inside()) == before


@in_the_loop_of_its_session
@pytest.mark.usefixtures("tidy")
async def test_a_hard_link_is_a_file_and_writing_leaves_the_other_name_as_it_was(  # B128, documented in SPEC 4.5
    grounds: Grounds, tmp_path: Path
) -> None:
    os.link(grounds.out / "target", grounds.root / "h")
    async with tools_on(grounds, tmp_path) as tools:
        assert not (await call(tools, "edit_file", path="h", old="canary", new="changed")).is_error
    assert (grounds.root / "h").read_text().startswith("changed")
    assert (grounds.out / "target").read_bytes() == CANARY


@in_the_loop_of_its_session
@pytest.mark.usefixtures("tidy")
async def test_a_link_that_is_turned_outwards_between_two_steps_of_a_tool_leads_nowhere(  # B127
    grounds: Grounds, tmp_path: Path
) -> None:
    before = grounds.around()
    text("real/f", b"inside\n" * 40)(grounds.root, "")
    link("d", "real")(grounds.root, "")
    stop = asyncio.Event()

    def swap() -> None:
        while not stop.is_set():
            for target in (grounds.outside, "real"):
                (grounds.root / "next").symlink_to(target)
                os.replace(grounds.root / "next", grounds.root / "d")

    async with tools_on(grounds, tmp_path) as tools:
        swapping = asyncio.create_task(asyncio.to_thread(swap))
        try:
            for number in range(60):
                await call(tools, "write_file", path="d/f", content=f"inside {number}\n")
                await call(tools, "edit_file", path="d/f", old="inside", new="changed")
                seen = await call(tools, "read_file", path="d/f")
                assert CANARY.decode().strip() not in seen.text
        finally:
            stop.set()
            await swapping
    assert grounds.around() == before
