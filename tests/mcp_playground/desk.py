"""Tools of MCP servers in memory, with the real gate before them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbles.bus import Origin
from bubbles.config.schema import McpServerSettings
from bubbles.controller.approvals.broker import ApprovalBroker
from bubbles.controller.calls import CallGate
from bubbles.controller.consent import Consent
from bubbles.controller.contract import Workplace
from bubbles.controller.policy.contract import Mode
from bubbles.controller.redaction import Redactor
from bubbles.controller.timeline.writing import Timeline
from bubbles.mcp.contract import ServerTool
from bubbles.mcp.fake import FakeServers
from bubbles.providers.contract import ToolCall
from bubbles.tools.contract import ToolResult
from bubbles.tools.mcp import McpTools
from bubbles.tools.mcp_offer import Budget
from bubbles.tools.registry import Toolbox
from sandbox_backends.contract import Enforces, Root, SandboxSpec
from tests.tool_desk import HERE, Nodder


@dataclass(slots=True)
class Shelf:
    kept: dict[str, str] = field(default_factory=dict)

    async def keep(self, call_id: str, text: str, origin: Origin) -> str | None:
        self.kept[call_id] = text
        return f"/desk/data/{call_id}.txt"


@dataclass(slots=True)
class Desk:
    """Servers with the real gate before them and the real box around them."""

    servers: FakeServers
    tools: McpTools
    person: Nodder
    data_dir: Path
    warnings: list[str]
    shelf: Shelf = field(default_factory=Shelf)

    async def run(self, name: str, arguments: Any = "{}", origin: Origin = HERE) -> ToolResult:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        box = Toolbox([], result_tokens=8_000, spill=self.shelf, sources=[self.tools])
        return (await box.run(ToolCall(id="call_1", name=name, arguments=text), origin)).result

    def names(self, origin: Origin = HERE) -> list[str]:
        return [spec.name for spec in self.tools.specs(origin)]

    def hint(self, name: str, arguments: str = "{}") -> str:
        box = Toolbox([], result_tokens=8_000, spill=self.shelf, sources=[self.tools])
        return box.hint(ToolCall(id="call_1", name=name, arguments=arguments))

    def events(self) -> list[dict[str, Any]]:
        files = sorted((self.data_dir / "timeline").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def place(enforces: Enforces = ~Enforces.NOTHING) -> Workplace:
    spec = SandboxSpec(session="s1", roots=(Root(path=Path("/desk")),))
    return Workplace(backend="bubblewrap", spec=spec, enforces=enforces, home="/home/agent", person_home="/home/me")


def desk(
    tmp_path: Path,
    *tools: ServerTool,
    servers: FakeServers | None = None,
    settings: Mapping[str, dict[str, Any]] | None = None,
    mode: Mode = Mode.ASK,
    says: bool = True,
    budget: Budget | None = None,
    at: Callable[[], Workplace] = place,
) -> Desk:
    servers = servers or FakeServers(has=tools)
    person, warnings = Nodder(says=says), list[str]()
    timeline = Timeline(tmp_path, Redactor(()), owner="me")
    gate = CallGate(Consent(ApprovalBroker(lambda _: person), timeline), timeline, mode)
    known = {tool.server for tool in (*servers.has, *servers.arriving)} | set(servers.states)
    written = {name: {"command": "server"} for name in known} | dict(settings or {})
    source = McpTools(
        servers,
        gate,
        {name: McpServerSettings.model_validate(its) for name, its in written.items()},
        place_of=lambda _: at(),
        budget_of=lambda _: budget or Budget(),
        on_warning=warnings.append,
    )
    return Desk(servers, source, person, tmp_path, warnings)
