"""Whole turns: a channel in memory, a scripted model, and everything between them real, in every sandbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bubbles.app.assistant import Assistant, assistant
from bubbles.app.workshop import workshop
from bubbles.bus import Kind, Origin
from bubbles.config.load import load_settings
from bubbles.controller.approvals.broker import decided
from bubbles.controller.approvals.contract import Answer, ApprovalCard
from bubbles.dispatch.dispatcher import WAITS
from bubbles.dispatch.notices import BROKEN
from bubbles.providers.contract import Category, ModelRequest, ProviderError, ToolMessage, UserMessage
from bubbles.providers.scripted import ScriptedProvider, Step, calls
from tests.direct_chat import DirectChat
from tests.places import REAL

DESK_KEY = "fake.1"


@dataclass(slots=True)
class Person:
    """Answers each card as told, or not at all."""

    says: bool | None = True
    cards: list[ApprovalCard] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def show(self, card: ApprovalCard, origin: Origin) -> Answer | None:
        self.cards.append(card)
        self.asked.set()
        return None if self.says is None else decided(approved=self.says, by=origin.sender)

    async def close(self, card: ApprovalCard, answer: Answer) -> None: ...


@dataclass(slots=True, kw_only=True)
class Scene:
    bubbles: Assistant
    channel: DirectChat
    provider: ScriptedProvider
    person: Person
    data_dir: Path

    def history(self, key: str = DESK_KEY) -> list[dict[str, Any]]:
        path = self.data_dir / "session_state" / key / "session.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def results(self) -> list[str]:
        """What the model has seen of its calls."""
        return [m.text for m in self.provider.requests[-1].messages if isinstance(m, ToolMessage)]


@asynccontextmanager
async def scene(
    base: Path,
    script: Iterable[Step] | ScriptedProvider,
    *,
    backend: str | None = "local",
    project: Path | None = None,
    person: Person | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Scene]:
    home = base / "home"
    home.mkdir(exist_ok=True)
    base.chmod(0o755)  # under root, sandboxes run as somebody else
    for parent in list(base.parents)[:3]:
        if parent.name.startswith("pytest-"):
            parent.chmod(0o755)
    data_dir = base / "data"
    settings = await asyncio.to_thread(
        load_settings,
        {"PATH": "/usr/bin:/bin", "HOME": str(home), "BUBBLES_HOME": str(data_dir), **(environment or {})},
    )
    provider = script if isinstance(script, ScriptedProvider) else ScriptedProvider(script)
    channel, person = DirectChat(), person or Person()
    with workshop(settings) as shop:
        async with (
            assistant(
                shop,
                approver_for=lambda _: person,
                send=channel.send,
                project=project,
                backend=backend,
                provider=provider,
            ) as bubbles,
            asyncio.TaskGroup() as tasks,
        ):
            running = tasks.create_task(channel.run(bubbles.dispatcher.deliver))
            yield Scene(bubbles=bubbles, channel=channel, provider=provider, person=person, data_dir=data_dir)
            running.cancel()


@pytest.mark.req("CORE-01", "SBX-01", "SBX-02", "TOOL-01", "TOOL-02", "SESS-01", "SESS-08")
@pytest.mark.blocking  # opening places looks at the host's files
@pytest.mark.timeout(60)
@pytest.mark.parametrize("backend", REAL)
async def test_a_whole_turn_in_every_sandbox(tmp_path: Path, backend: str) -> None:
    script: list[Step] = [
        calls(
            ("write_file", {"path": "data/notes.md", "content": "one\ntwo\n"}),
            ("edit_file", {"path": "data/notes.md", "old": "two", "new": "three"}),
            ("exec", {"script": "cat data/notes.md && wc -l data/notes.md"}),
            ("list_dir", {"path": "data"}),
            ("read_file", {"path": "SOUL.md"}),
        ),
        "It says three.",
    ]
    async with scene(tmp_path, script, backend=backend) as here:
        await here.channel.say("make notes")
        assert await here.channel.heard() == ["It says three."]
        results = here.results()
        assert "one\nthree\n2 data/notes.md" in results[2]
        assert "notes.md" in results[3]
        assert not here.person.cards
    desk = tmp_path / "data" / "sessions" / DESK_KEY
    assert (desk / "data" / "notes.md").read_text() == "one\nthree\n"
    kinds = [line["kind"] for line in here.history()]
    assert kinds == ["session", "user", "assistant", *["call", "result"] * 5, "assistant", "turn"]


@pytest.mark.req("SESS-06")
@pytest.mark.blocking
@pytest.mark.timeout(60)
@pytest.mark.parametrize("backend", REAL)
async def test_a_project_is_where_relative_paths_lead_and_the_desk_is_there_too(tmp_path: Path, backend: str) -> None:
    project = tmp_path / "project"
    project.mkdir(mode=0o755)
    desk = tmp_path / "data" / "sessions" / DESK_KEY
    script: list[Step] = [
        calls(
            ("write_file", {"path": "here.txt", "content": "p"}),
            ("write_file", {"path": f"{desk}/data/there.txt", "content": "d"}),
            ("exec", {"script": f"pwd; cat here.txt {desk}/data/there.txt"}),
        ),
        "Done.",
    ]
    async with scene(tmp_path, script, backend=backend, project=project) as here:
        await here.channel.say("go")
        await here.channel.heard()
        assert here.results()[2].strip().endswith(f"{project}\npd")
    assert (project / "here.txt").read_text() == "p"


@pytest.mark.req("DEC-08", "APPR-01")
@pytest.mark.blocking
async def test_the_gate_stands_before_every_command_of_a_turn(tmp_path: Path) -> None:
    script: list[Step] = [
        calls(("exec", {"script": "rm -rf ~"})),
        calls(("exec", {"script": "curl https://example.org/x > data/x"})),
        "I could not.",
    ]
    async with scene(tmp_path, script, person=Person(says=False)) as here:
        (tmp_path / "home" / "keep").write_text("kept")
        await here.channel.say("clean up")
        assert await here.channel.heard() == ["I could not."]
        declined, refused = here.results()
        assert "declined without asking" in declined
        assert "A person declined it" in refused
        assert len(here.person.cards) == 1
    assert (tmp_path / "home" / "keep").read_text() == "kept"


@pytest.mark.req("CORE-06")
@pytest.mark.blocking
async def test_what_is_said_during_a_turn_comes_before_its_next_call(tmp_path: Path) -> None:
    person = Person(says=None)
    script: list[Step] = [
        calls(
            ("exec", {"script": "curl https://example.org/1"}),
            ("write_file", {"path": "data/never", "content": "x"}),
        ),
        "I leave that.",
    ]
    async with scene(tmp_path, script, person=person) as here:
        await here.channel.say("first")
        await person.asked.wait()
        await here.channel.say("rather not")
        await here.channel.say("and something else")
        await here.channel.say("no")
        assert (await here.channel.heard(3))[0] == WAITS
        messages = here.provider.requests[-1].messages
        said = [m.text for m in messages if isinstance(m, UserMessage)]
        assert said == ["first", "rather not", "and something else"]
        assert "not run" in here.results()[1]
    assert not (tmp_path / "data" / "sessions" / DESK_KEY / "data" / "never").exists()


@pytest.mark.req("ERR-02", "PROV-07", "PROV-08")
@pytest.mark.blocking
async def test_a_failing_model_leaves_nothing_in_the_history(tmp_path: Path) -> None:
    secret = "sk-0123456789abcdef0123456789abcdef"
    script: list[Step] = [ProviderError(Category.UNAVAILABLE, f"500 with {secret}"), "Now it works."]
    async with scene(tmp_path, script) as here:
        await here.channel.say("one")
        (told,) = await here.channel.heard()
        assert told.startswith("The model gave no answer: unavailable")
        await here.channel.say("two")
        assert (await here.channel.heard(2))[1] == "Now it works."
        texts = [m.text for m in here.provider.requests[-1].messages if isinstance(m, UserMessage)]
        assert [text for text in texts if text in ("one", "two")] == ["one", "two"]
        assert all(secret not in json.dumps(line) for line in here.history())


@pytest.mark.req("ERR-01")
@pytest.mark.blocking
async def test_a_model_that_breaks_the_program_ends_the_turn_only(tmp_path: Path) -> None:
    def breaks(_: ModelRequest) -> Step:
        raise ZeroDivisionError("in /secret/path")

    async with scene(tmp_path, [breaks, "Here again."]) as here:
        await here.channel.say("one")
        assert await here.channel.heard() == [BROKEN]
        await here.channel.say("two")
        assert (await here.channel.heard(2))[1] == "Here again."


@pytest.mark.req("CORE-05", "SESS-02")
@pytest.mark.blocking
async def test_chats_have_sessions_of_their_own(tmp_path: Path) -> None:
    def echo(request: ModelRequest) -> Step:
        return " | ".join(message.text for message in request.messages)

    async with scene(tmp_path, [echo] * 4) as here:
        await here.channel.say("from one", chat="1")
        await here.channel.say("from two", chat="2")
        await here.channel.heard(1, chat="1")
        await here.channel.heard(1, chat="2")
        await here.channel.say("again", chat="2")
        assert (await here.channel.heard(2, chat="2"))[1] == "from two | from two | again"
        assert await here.channel.heard(1, chat="1") == ["from one"]


@pytest.mark.req("SESS-02")
@pytest.mark.blocking
async def test_one_session_for_all_chats_if_so_configured(tmp_path: Path) -> None:
    def echo(request: ModelRequest) -> Step:
        return " | ".join(m.text for m in request.messages if isinstance(m, UserMessage))

    async with scene(tmp_path, [echo] * 2, environment={"BUBBLES_CHANNELS__SESSION_MODE": "global"}) as here:
        await here.channel.say("from one", chat="1")
        await here.channel.heard(1, chat="1")
        await here.channel.say("from two", chat="2")
        assert await here.channel.heard(1, chat="2") == ["from one | from two"]


@pytest.mark.req("SESS-03", "CLI-02", "CORE-03")
@pytest.mark.blocking
async def test_slash_commands_look_at_a_session_and_set_it(tmp_path: Path) -> None:
    async with scene(tmp_path, ["Hello."] * 3) as here:
        await here.channel.say("/config sandbox nowhere")
        assert "nowhere" in (await here.channel.heard(1))[0]
        await here.channel.say("/config system_prompt Speak like a pirate.")
        await here.channel.heard(2)
        await here.channel.say("/config")
        assert "Speak like a pirate." in (await here.channel.heard(3))[2]
        await here.channel.say("/config systemPrompt")
        assert (await here.channel.heard(4))[3] == "system_prompt  Speak like a pirate."
        await here.channel.say("/config speed")
        assert "speed is no setting of a session" in (await here.channel.heard(5))[4]
        await here.channel.say("hi")
        await here.channel.heard(6)
        await here.channel.say("/prompt")
        prompt = (await here.channel.heard(7))[6]
        assert prompt == here.provider.requests[-1].system
        assert "Speak like a pirate." in prompt
        await here.channel.say("/config system_prompt default")
        await here.channel.heard(8)
        await here.channel.say("/status")
        assert "system_prompt" not in (await here.channel.heard(9))[8]
        await here.channel.say("/prompt and more")
        await here.channel.say("/help")
        assert "/compact" in (await here.channel.heard(11))[10]
    assert len(here.provider.requests) == 1


@pytest.mark.req("SESS-03")
@pytest.mark.blocking
async def test_who_looks_at_a_session_while_its_turn_runs_does_not_move_the_turn(tmp_path: Path) -> None:
    person = Person(says=None)
    script: list[Step] = [
        calls(("exec", {"script": "echo here"}), ("exec", {"script": "curl https://example.org/1"})),
        calls(("exec", {"script": "echo still here"})),
        "Done.",
    ]
    async with scene(tmp_path, script, backend=None, person=person) as here:
        await here.channel.say("go")
        await person.asked.wait()
        own = here.data_dir / "session_state" / DESK_KEY / "config.json"
        own.write_text('{"sandbox": "local_isolated"}')
        await here.channel.say("/status")
        assert "local_isolated" in (await here.channel.heard(1))[0]
        await here.channel.say("no")
        await here.channel.heard(3)
        assert here.results()[2] == "still here\n", "and not in a sandbox that was opened anew"


@pytest.mark.req("SEC-03")
@pytest.mark.blocking
async def test_configured_keys_are_masked_in_what_tools_give(tmp_path: Path) -> None:
    """B122: the assistant is asked to show its own configuration, in a sandbox that can see it."""
    key = "key-of-the-owner-0123456789"
    config = tmp_path / "data" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"providers": {"openai": {"apiKey": key}}}))
    config.chmod(0o600)
    script: list[Step] = [calls(("exec", {"script": f"cat {config}"})), "There."]
    async with scene(tmp_path, script) as here:
        await here.channel.say("show your configuration")
        await here.channel.heard()
        assert "apiKey" in here.results()[0]
        assert key not in here.results()[0]
    kept = [p for p in (tmp_path / "data").rglob("*") if p.is_file() and p != config]
    assert all(key not in p.read_text(errors="replace") for p in kept)


@pytest.mark.req("SEC-03", "CORE-03")
@pytest.mark.blocking
async def test_a_key_that_a_command_puts_into_files_of_the_desk_is_masked_in_the_next_prompt(tmp_path: Path) -> None:
    """B122 by another way: what is copied into MEMORY.md or a skill is no tool result."""
    key = "key-of-the-owner-0123456789"
    config = tmp_path / "data" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"providers": {"openai": {"apiKey": key}}}))
    config.chmod(0o600)
    head = "---\\nname: x\\ndescription: %s\\n---\\n"
    skill = f"mkdir -p skills/x; printf -- '{head}' \"$(cat {config})\" > skills/x/SKILL.md"
    copying = f"cat {config} > MEMORY.md; cat {config} > SOUL.md; {skill}"
    async with scene(tmp_path, [calls(("exec", {"script": copying})), "Copied.", "Again."]) as here:
        await here.channel.say("remember your configuration")
        await here.channel.heard()
        await here.channel.say("/prompt")
        shown = (await here.channel.heard(2))[1]
        await here.channel.say("and now?")
        await here.channel.heard(3)
        for prompt in (shown, here.provider.requests[-1].system):
            assert prompt.count("apiKey") == 3
            assert key not in prompt


@pytest.mark.req("CORE-02", "CORE-04")
@pytest.mark.blocking
async def test_the_cap_on_steps_is_explained_and_progress_is_shown(tmp_path: Path) -> None:
    script: list[Step] = [
        *(calls(("exec", {"script": f"echo {n}"}), text=f"Step {n}.") for n in range(3)),
        "I did three steps.",
    ]
    limit = {"BUBBLES_AGENTS__DEFAULTS__MAX_TOOL_ITERATIONS": "3", "BUBBLES_CHANNELS__SEND_TOOL_HINTS": "true"}
    async with scene(tmp_path, script, environment=limit) as here:
        await here.channel.say("count")
        await here.channel.heard(1)
        kinds = [said.kind for said in here.channel.sent]
        assert kinds.count(Kind.PROGRESS) == 3
        assert kinds.count(Kind.HINT) == 3
        assert "I did three steps." in here.channel.sent[-1].text


@pytest.mark.req("ERR-01")
@pytest.mark.blocking
async def test_what_is_wrong_on_the_disk_is_for_the_log_and_not_for_a_chat(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "data" / "session_state" / DESK_KEY / "config.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"modle": "x"}')
    async with scene(tmp_path, ["Hello."]) as here:
        await here.channel.say("Hi.")
        assert await here.channel.heard(1) == ["Hello."]
    assert f"session {DESK_KEY}: {config}" in caplog.text
