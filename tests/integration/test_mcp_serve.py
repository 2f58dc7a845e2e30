"""``bubbles mcp serve`` with the SDK's own client, in both ways of the protocol."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.mcp_served import ASKED_ABOUT, YES, Ground, Person, client, make_ground, refused, told
from tests.needs import need
from tests.places import HARD

NO: dict[str, str | int | float | list[str] | None] = {"decision": "do not run"}
MODES = ("legacy", "auto")
"""By handshake, and as the protocol of 2026-07-28 has it."""
TOOLS = ["exec", "read_file", "write_file", "edit_file", "list_dir"]


@pytest.fixture(params=HARD)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    if request.param == "docker":
        request.getfixturevalue("sandbox_image")
    return make_ground(tmp_path, request.param)


@pytest.fixture
def bubblewrap(tmp_path: Path) -> Ground:
    need("bubblewrap")
    return make_ground(tmp_path, "bubblewrap")


@pytest.mark.req("TOOL-01", "TOOL-02")
@pytest.mark.parametrize("mode", MODES)
async def test_another_agent_works_in_the_project_and_nowhere_else(ground: Ground, mode: str) -> None:
    person = Person(content=YES)
    async with client(ground, person.asked, mode=mode) as agent:
        assert await told(agent, "read_file", path="notes.txt") == "first\nsecond\n"
        await told(agent, "write_file", path="made/new.txt", content="one\n")
        await told(agent, "edit_file", path="made/new.txt", old="one", new="two")
        assert "notes.txt  13" in await told(agent, "list_dir")
        assert (await told(agent, "exec", script="cat made/new.txt")).endswith("two\n")
        assert "outside the session's directories" in await refused(agent, "read_file", path="/etc/passwd")
        assert "outside" in await refused(agent, "exec", script="ls", cwd="/")
        offline = "python3 -c \"import socket; socket.create_connection(('1.1.1.1', 53), 3)\""
        assert re.search("unreachable|Errno", await told(agent, "exec", script=f"{offline} 2>&1"))
        environment = await told(agent, "exec", script="cat /proc/self/environ | tr '\\0' '\\n'")
        assert "BUBBLES_XID" in environment
        assert "sk-canary" not in environment
    assert (ground.project / "made" / "new.txt").read_text() == "two\n"


@pytest.mark.parametrize("mode", MODES)
async def test_five_tools_are_offered_with_what_a_client_must_know(bubblewrap: Ground, mode: str) -> None:
    async with client(bubblewrap, mode=mode) as agent:
        offered = {tool.name: tool for tool in (await agent.list_tools()).tools}
        instructions = agent.instructions or ""
    assert list(offered) == TOOLS
    assert list(offered["exec"].input_schema["properties"]) == ["script", "timeout_s", "cwd"]
    assert "background" not in (offered["exec"].description or "")
    hints = {name: tool.annotations for name, tool in offered.items()}
    assert {name for name, hint in hints.items() if hint and hint.read_only_hint} == {"read_file", "list_dir"}
    assert not any(hint.open_world_hint for hint in hints.values() if hint)
    assert str(bubblewrap.project) in instructions
    assert "bubblewrap, network: none" in instructions


@pytest.mark.req("DEC-01")
@pytest.mark.parametrize("mode", MODES)
async def test_what_is_forbidden_is_declined_and_nobody_is_asked(bubblewrap: Ground, mode: str) -> None:
    person = Person(content=YES)
    async with client(bubblewrap, person.asked, mode=mode) as agent:
        assert "This is never run" in await refused(agent, "exec", script="rm -rf /")
    assert person.forms == []
    (event,) = bubblewrap.events
    assert (event["event"], event["channel"]) == ("approval_auto_declined", "mcp")
    assert event["sender"] == "mcp #1"


@pytest.mark.req("APPR-01")
@pytest.mark.parametrize("mode", MODES)
async def test_a_person_sees_the_card_and_what_they_accept_runs(ground: Ground, mode: str) -> None:
    person = Person(content=YES)
    async with client(ground, person.asked, mode=mode) as agent:
        assert "42\n" in await told(agent, "exec", script=ASKED_ABOUT)
    (form,) = person.forms
    message = re.sub(r"\n +⟨…⟩", "", form.message)
    for seen in (ASKED_ABOUT, str(ground.project), f"{ground.backend}, network: none", "300 seconds means no"):
        assert seen in message
    assert [event["event"] for event in ground.events][:2] == ["approval_requested", "approval_resolved"]
    assert ground.events[1]["outcome"] == "approved"


LIES: list[tuple[str, Any, str]] = [
    ("accept", {"decision": "do not run"}, "A person declined it."),
    ("decline", None, "A person declined it."),
    ("decline", YES, "A person declined it."),
    ("cancel", YES, "closed without an answer"),
    ("accept", None, "was something else"),
    ("accept", {}, "was something else"),
    ("accept", {"decision": "RUN"}, "was something else"),
    ("accept", {"decision": True}, "was something else"),
    ("accept", {"decision": ["run"]}, "was something else"),
    ("accept", {"decision": "run", "more": "x"}, "was something else"),
]


@pytest.mark.req("APPR-02")
@pytest.mark.parametrize("mode", MODES)
async def test_anything_but_a_clear_yes_is_a_no(bubblewrap: Ground, mode: str) -> None:
    person = Person()
    async with client(bubblewrap, person.asked, mode=mode) as agent:
        for person.action, person.content, why in LIES:
            assert why in await refused(agent, "exec", script="touch made-by-a-lie")
    assert len(person.forms) == len(LIES)
    assert not (bubblewrap.project / "made-by-a-lie").exists()


async def test_an_answer_that_is_none_is_a_no(bubblewrap: Ground) -> None:
    person = Person(action="yes", content=YES)
    async with client(bubblewrap, person.asked) as agent:
        assert "did not bring back a person's answer" in await refused(agent, "exec", script=ASKED_ABOUT)


async def test_a_client_that_fails_to_ask_has_no_answer(bubblewrap: Ground) -> None:
    async def broken(context: Any, params: Any) -> types.ErrorData:
        return types.ErrorData(code=-32603, message="no window")

    async with client(bubblewrap, broken) as agent:
        assert "did not bring back a person's answer" in await refused(agent, "exec", script=ASKED_ABOUT)


@pytest.mark.req("APPR-02")
async def test_nobody_answers_in_time_and_the_question_is_taken_back(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, "bubblewrap", BUBBLES_TOOLS__APPROVALS__TIMEOUT_S="0.3")
    taken_back = asyncio.Event()

    async def silent(context: Any, params: Any) -> types.ElicitResult:
        try:
            await asyncio.sleep(60)
        finally:
            taken_back.set()
        raise AssertionError

    async with client(ground, silent) as agent:
        assert "nobody answered within 0.3 seconds" in await refused(agent, "exec", script=ASKED_ABOUT)
        await asyncio.wait_for(taken_back.wait(), 5)


@pytest.mark.req("APPR-02")
async def test_an_answer_that_comes_too_late_is_none_without_a_handshake(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, "bubblewrap", BUBBLES_TOOLS__APPROVALS__TIMEOUT_S="0.2")

    async def slow(context: Any, params: Any) -> types.ElicitResult:
        await asyncio.sleep(0.6)
        return types.ElicitResult(action="accept", content=YES)

    async with client(ground, slow, mode="auto") as agent:
        assert "nobody answered within 0.2 seconds" in await refused(agent, "exec", script=ASKED_ABOUT)


@pytest.mark.req("APPR-02", "DEC-04")
@pytest.mark.parametrize("mode", MODES)
async def test_where_nobody_can_be_asked_only_a_rule_lets_it_run(bubblewrap: Ground, mode: str) -> None:
    async with client(bubblewrap, mode=mode) as agent:
        said = await refused(agent, "exec", script="id -un")
        assert f"by a rule in {bubblewrap.data_dir / 'rules'}" in said
        assert "declined at once" in said
        never = await refused(agent, "exec", script="sudo -n id")
        assert "what rules may allow, the owner can let run" in never
        assert "whatever the rules say" in never
        bubblewrap.rule('prefix_rule(pattern=["id"])\n')
        assert "agent\n" in await told(agent, "exec", script="id -un")


@pytest.mark.req("APPR-03")
@pytest.mark.parametrize("mode", MODES)
async def test_each_of_many_calls_has_a_question_of_its_own(bubblewrap: Ground, mode: str) -> None:
    """More than may run at a time: one that waits for a person holds no place."""
    count, all_asked = 15, asyncio.Event()
    forms: list[str] = []

    async def asked(context: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        forms.append(params.message)
        if len(forms) == count:
            all_asked.set()
        await all_asked.wait()
        number = re.search(r"print\((\d+)\)", params.message)
        assert number is not None
        even = int(number[1]) % 2 == 0
        return types.ElicitResult(action="accept", content=YES if even else NO)

    async with client(bubblewrap, asked, mode=mode) as agent:
        assert "notes.txt" in await told(agent, "exec", script="ls")  # what is to be known of the sandbox is said once
        calls = [agent.call_tool("exec", {"script": f"python3 -c 'print({number})'"}) for number in range(count)]
        results = await asyncio.gather(*calls)
    for number, result in enumerate(results):
        (block,) = result.content
        assert isinstance(block, types.TextContent)
        assert block.text == f"{number}\n" if number % 2 == 0 else "A person declined it." in block.text
        assert result.is_error is (number % 2 == 1)


async def test_of_too_many_questions_the_rest_is_declined_unseen(bubblewrap: Ground) -> None:
    enough = asyncio.Event()

    async def asked(context: Any, params: Any) -> types.ElicitResult:
        await enough.wait()
        return types.ElicitResult(action="decline")

    async with client(bubblewrap, asked) as agent:
        calls = [asyncio.create_task(agent.call_tool("exec", {"script": ASKED_ABOUT})) for _ in range(25)]
        done: set[Any] = set()
        while len(done) < 5:
            done |= (await asyncio.wait(set(calls) - done, return_when="FIRST_COMPLETED"))[0]
        assert len(done) == 5
        assert all("20 questions wait" in json.dumps(task.result().model_dump(mode="json")) for task in done)
        enough.set()
        await asyncio.gather(*calls)


@pytest.mark.req("CORE-07")
async def test_a_long_result_is_whole_in_a_file_that_the_client_can_read(ground: Ground) -> None:
    ground.rule('prefix_rule(pattern=["seq"])\n')
    async with client(ground) as agent:
        short = await told(agent, "exec", script="seq 100000")
        assert len(short) < 60_000
        found = re.search(r"all of it is in (\S+)", short)
        assert found is not None
        assert "\n50000\n" in await told(agent, "read_file", path=found[1], first_line=49_990, lines=20)


async def test_pictures_come_as_pictures(bubblewrap: Ground) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(200)
    (bubblewrap.project / "dot.png").write_bytes(picture)
    async with client(bubblewrap) as agent:
        result = await agent.call_tool("read_file", {"path": "dot.png"})
    assert [block.type for block in result.content] == ["text", "image"]


@pytest.mark.req("SBX-03", "SESS-02")
async def test_the_same_directory_has_the_same_home_again(ground: Ground) -> None:
    person = Person(content=YES)
    async with client(ground, person.asked) as agent:
        await told(agent, "exec", script="echo kept > ~/mine.txt")
    link = ground.base / "link"
    link.symlink_to(ground.project)
    async with client(ground, person.asked, "--root", str(link)) as agent:
        assert (await told(agent, "exec", script="cat ~/mine.txt")).endswith("kept\n")
    (home,) = (ground.data_dir / "session_homes").iterdir()
    assert re.fullmatch(r"mcp-project-[0-9a-f]{10}", home.name)


async def test_two_roots_and_relative_paths_begin_in_the_first(bubblewrap: Ground) -> None:
    other = bubblewrap.base / "other"
    other.mkdir()
    (other / "far.txt").write_text("far\n")
    async with client(bubblewrap, None, "--root", str(bubblewrap.project), "--root", str(other)) as agent:
        assert await told(agent, "read_file", path="notes.txt") == "first\nsecond\n"
        assert await told(agent, "read_file", path=str(other / "far.txt")) == "far\n"
        assert str(other) in (agent.instructions or "")


async def test_arguments_that_are_wrong_are_explained(bubblewrap: Ground) -> None:
    async with client(bubblewrap) as agent:
        assert "background is no argument of it" in await refused(agent, "exec", script="ls", background=True)
        assert "path is missing" in await refused(agent, "read_file")
        assert "There is no tool 'process'" in await refused(agent, "process", id="p1")
