"""A session's desk with the real tools on it, over a real sandbox and the real gate."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bubbles.app.gate import gate
from bubbles.app.workshop import workshop
from bubbles.bus import Address, Origin
from bubbles.config.schema import Settings
from bubbles.controller.approvals.broker import ApprovalBroker, decided
from bubbles.controller.approvals.contract import Answer, ApprovalCard
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
from bubbles.tools.registry import Finished, Toolbox
from sandbox_backends.contract import Root, SandboxSpec
from sandbox_backends.fake import FakeBackend

HERE = Origin(session_key="s1", address=Address(channel="cli", chat_id="terminal"), sender="me")


@dataclass(slots=True, kw_only=True)
class Nodder:
    """A person who answers every card alike."""

    says: bool = True
    cards: list[ApprovalCard] = field(default_factory=list)

    async def show(self, card: ApprovalCard, origin: Origin) -> Answer | None:
        self.cards.append(card)
        return decided(approved=self.says, by=origin.sender)

    async def close(self, card: ApprovalCard, answer: Answer) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDesk:
    tools: Toolbox
    controller: Controller
    place: Workplace
    folders: Folders
    person: Nodder
    data_dir: Path

    @property
    def desk(self) -> Path:
        return self.folders.desk

    async def call(self, tool: str, /, origin: Origin = HERE, call_id: str = "call_1", **arguments: Any) -> Finished:
        return await self.tools.run(ToolCall(id=call_id, name=tool, arguments=json.dumps(arguments)), origin)

    async def ok(self, tool: str, /, **arguments: Any) -> str:
        result = (await self.call(tool, **arguments)).result
        assert not result.is_error, result.text
        return result.text

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        result: ToolResult = (await self.call(tool, **arguments)).result
        assert result.is_error, result.text
        return result.text

    @property
    def events(self) -> list[dict[str, Any]]:
        files = sorted((self.data_dir / "timeline").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def _settings(base: Path, tools: dict[str, Any]) -> Settings:
    image = os.environ.get("BUBBLES_TEST_IMAGE", "bubbles-sandbox:latest")
    person_home = base / "person"
    return Settings.model_validate(
        {
            "data_dir": base / "data",
            "person_home": person_home,
            "host_env": {**os.environ, "HOME": str(person_home), "ANTHROPIC_API_KEY": "sk-canary-key"},
            "tools": {**tools, "sandbox": {"docker": {"image": image}}},
        }
    )


def _folders(base: Path) -> Folders:
    folders = Folders(key="s1", desk=base / "data" / "sessions" / "s1", state=base / "data" / "session_state" / "s1")
    for directory in (folders.data, folders.state, base / "person"):
        directory.mkdir(parents=True)
    return folders


@asynccontextmanager
async def open_desk(base: Path, backend: str, **tools: Any) -> AsyncIterator[ToolDesk]:
    """On the sandbox of this name, as the program puts things together. ``tools``: settings of that section."""
    folders, settings, person = _folders(base), _settings(base, tools), Nodder()
    with workshop(settings) as shop:
        spec = shop.spec(session="s1", roots=(folders.desk,))
        place = shop.workplace(replace(spec, roots=(Root(path=folders.desk, label="desk"),)), backend)
        async with gate(shop, lambda _: person) as controller:
            yield ToolDesk(
                tools=make_tools(controller, lambda _: place, lambda _: folders, settings),
                controller=controller,
                place=place,
                folders=folders,
                person=person,
                data_dir=settings.data_dir,
            )


@asynccontextmanager
async def open_fake_desk(base: Path, backend: FakeBackend, **tools: Any) -> AsyncIterator[ToolDesk]:
    """On a sandbox in memory, in which sessions of any key share one desk."""
    folders, settings, person = _folders(base), _settings(base, tools), Nodder()
    place = Workplace(
        backend="fake",
        spec=SandboxSpec(session="s1", roots=(Root(path=folders.desk, label="desk"),)),
        enforces=backend.enforces,
        home="/home/agent",
        person_home=str(settings.person_home),
    )
    async with Sandboxes(lambda _: backend) as sandboxes:
        controller = Controller(
            sandboxes=sandboxes,
            rulebook=lambda _: Rulebook(),
            broker=ApprovalBroker(lambda _: person),
            timeline=Timeline(settings.data_dir, Redactor(()), owner="me"),
        )
        yield ToolDesk(
            tools=make_tools(controller, lambda _: place, lambda _: folders, settings),
            controller=controller,
            place=place,
            folders=folders,
            person=person,
            data_dir=settings.data_dir,
        )
