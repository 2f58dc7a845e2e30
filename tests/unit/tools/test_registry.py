"""Calls reach tools, and whatever becomes of one is a result that the model can read."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from bubbles.bus import Address, Origin, Trigger
from bubbles.controller.contract import DeclinedError, GateError
from bubbles.controller.places import FileError, SandboxError, SandboxLostError
from bubbles.controller.policy.contract import Decision, Policy, Stage, Verdict
from bubbles.providers.contract import ToolCall
from bubbles.sessions.tokens import estimate
from bubbles.tools.contract import Args, ToolError, ToolResult
from bubbles.tools.registry import MAX_HINT, Finished, Toolbox
from bubbles.tools.schema import MAX_ARGUMENTS, parameters
from sandbox_backends.fake import FakeBackend
from tests.tool_desk import open_fake_desk

HERE = Origin(session_key="s1", address=Address(channel="cli", chat_id="terminal"), sender="me")
JOB = Origin(session_key="s1", address=HERE.address, sender="job", trigger=Trigger.CRON)
CAP = 400


class Step(BaseModel):
    title: str
    kind: Literal["a", "b"] = "a"


class GreetArgs(Args):
    name: Annotated[str, Field(max_length=20)]
    """Whom
    to greet."""
    times: Annotated[int, Field(ge=1)] | None = None
    steps: tuple[Step, ...] = ()


@dataclass(slots=True, kw_only=True)
class Greet:
    name: str = "greet"
    description: str = "Greets."
    args: type[GreetArgs] = GreetArgs
    does: Callable[[GreetArgs], ToolResult] = lambda args: ToolResult(text=f"Hello {args.name}")
    for_people: bool = False

    def offered(self, origin: Origin) -> bool:
        return not self.for_people or origin.trigger is Trigger.USER

    def hint(self, args: GreetArgs) -> str:
        return f"greet({args.name})"

    async def run(self, args: GreetArgs, origin: Origin) -> ToolResult:
        return self.does(args)


@dataclass(slots=True, kw_only=True)
class Shelf:
    """Keeps what was too long, or does not."""

    works: bool = True
    kept: dict[str, str] = field(default_factory=dict)

    async def keep(self, call_id: str, text: str, origin: Origin) -> str | None:
        if not self.works:
            return None
        self.kept[call_id] = text
        return f"/desk/data/{call_id}.txt"


def box(does: Callable[[GreetArgs], ToolResult] | None = None, shelf: Shelf | None = None) -> Toolbox:
    tool = Greet() if does is None else Greet(does=does)
    return Toolbox((tool, Greet(name="greet_people", for_people=True)), result_tokens=CAP, spill=shelf or Shelf())


def call(arguments: Any, name: str = "greet") -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(id="call_1", name=name, arguments=text)


async def run(tools: Toolbox, arguments: Any = '{"name": "you"}', name: str = "greet") -> ToolResult:
    return (await tools.run(call(arguments, name), HERE)).result


def raising(error: Exception) -> Callable[[GreetArgs], ToolResult]:
    def does(args: GreetArgs) -> ToolResult:
        raise error

    return does


async def test_a_call_reaches_its_tool() -> None:
    assert await run(box()) == ToolResult(text="Hello you")
    assert (await run(box(), {"name": "you", "times": "3"})).text == "Hello you"
    assert (await run(box(), {"name": "you", "times": None})).text == "Hello you"


def test_the_same_tools_are_the_same_object_so_that_a_client_can_keep_what_it_made_of_them() -> None:
    tools = box()
    assert tools.specs(HERE) is tools.specs(HERE)
    assert [spec.name for spec in tools.specs(HERE)] == ["greet", "greet_people"]
    assert [spec.name for spec in tools.specs(JOB)] == ["greet"]
    assert tools.specs(JOB) is tools.specs(JOB)


def test_a_schema_is_small_and_in_one_piece() -> None:
    assert parameters(GreetArgs) == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Whom to greet."},
            "times": {"type": "integer"},
            "steps": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"title": {"type": "string"}, "kind": {"type": "string", "enum": ["a", "b"]}},
                    "required": ["title"],
                },
            },
        },
        "required": ["name"],
    }


@pytest.mark.req("TOOL-01", "TOOL-02", "TOOL-07")
async def test_the_tools_of_the_specification_are_there_and_every_argument_is_explained(tmp_path: Path) -> None:
    async with open_fake_desk(tmp_path, FakeBackend()) as desk:
        specs = desk.tools.specs(HERE)
    assert [spec.name for spec in specs] == "read_file write_file edit_file list_dir exec process todo".split()
    for spec in specs:
        assert spec.description
        assert all(part.get("description") for part in spec.parameters["properties"].values()), spec.name
    assert len(json.dumps([[spec.description, dict(spec.parameters)] for spec in specs])) < 5_000


@pytest.mark.req("PROV-10")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "name is missing"),
        ("  ", "name is missing"),
        ("{", "no valid JSON object"),
        ('{"name": "x', "no valid JSON object"),
        ("[]", "object"),
        ('"text"', "object"),
        ("null", "object"),
        ("{}", "name is missing"),
        ('{"name": 3}', "name: Input should be a valid string, not 3"),
        ('{"name": ["../secret"]}', "name: Input should be a valid string"),
        ('{"name": "x", "nmae": 1}', "nmae is no argument of it"),
        ('{"name": "x", "times": 0}', "times: Input should be greater than or equal to 1, not 0"),
        ('{"name": "x", "steps": [{"title": 1}]}', "steps.0.title"),
        ('{"name": "' + "x" * 3000 + '"}', "at most 20 characters, not 'xxxxx"),
        ('{"name": "\\ud800"}', "Expected"),
        ('{"name": "\ud800"}', "Expected"),
        ('{"name": NaN}', "Expected"),
        ("[" * 100_000, "no valid JSON object"),
        ('{"name": ' + '{"a":' * 5000, "no valid JSON object"),
        ("{" + ",".join(f'"k{number}": 1' for number in range(100)) + "}", "and 96 more"),
        ("x" * (MAX_ARGUMENTS + 1), "in several steps"),
    ],
)
async def test_wrong_arguments_are_told_with_what_is_expected(arguments: str, said: str) -> None:
    result = await run(box(), arguments)
    assert result.is_error
    assert said in result.text
    assert len(result.text) < 1500
    if len(arguments) <= MAX_ARGUMENTS:
        assert 'Expected: {"name": string, "times"?: integer, "steps"?: [{"title": string, "kind": "a" | "b"}, …]}' in (
            result.text
        )


@pytest.mark.parametrize(
    ("name", "said"), [("gret", "Did you mean greet?"), ("x" * 500, "no tool"), ("\x1b]0", "⟨\\x1b⟩")]
)
async def test_an_unknown_tool_is_told_with_those_there_are(name: str, said: str) -> None:
    result = await run(box(), {}, name)
    assert result.is_error
    assert said in result.text
    assert "There are: greet, greet_people." in result.text
    assert len(result.text) < 300


async def test_a_tool_that_is_not_offered_is_unknown() -> None:
    result = (await box().run(call({"name": "x"}, "greet_people"), JOB)).result
    assert result.is_error
    assert result.text.endswith("There are: greet.")


DECLINED = DeclinedError(
    "A person declined it.",
    Decision(verdict=Verdict.ASK, stage=Stage.DEFAULT, policy=Policy.NO_RULE, reason="No rule."),
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ToolError("Do it so."), "Do it so."),
        (DECLINED, "A person declined it."),
        (GateError("It does not read."), "It does not read."),
        (FileError("not_found", "a.txt: no such file"), "a.txt: no such file"),
        (SandboxError("no sandbox here"), "no sandbox here"),
        (SandboxLostError("the container is gone"), "The sandbox went away, so whether this was done is not known"),
    ],
)
async def test_what_a_tool_refuses_is_told(error: Exception, said: str) -> None:
    result = await run(box(raising(error)))
    assert result.is_error
    assert said in result.text


@pytest.mark.req("ERR-01")
async def test_what_breaks_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        result = await run(box(raising(RuntimeError("/root/secret/path"))))
    assert result == ToolResult(text="greet failed for an internal reason, which is in the log.", is_error=True)
    assert "RuntimeError: /root/secret/path" in caplog.text
    assert "Traceback" in caplog.text


async def test_what_breaks_while_a_result_is_kept_is_no_more_than_an_error() -> None:
    class Broken(Shelf):
        async def keep(self, call_id: str, text: str, origin: Origin) -> str | None:
            raise RuntimeError

    assert (await run(box(lambda _: ToolResult(text="x" * 10_000), Broken()))).is_error


async def test_stopping_a_turn_stops_its_call() -> None:
    with pytest.raises(asyncio.CancelledError):
        await run(box(raising(asyncio.CancelledError())))  # type: ignore[arg-type]


@pytest.mark.req("CORE-07")
@pytest.mark.parametrize(
    "text", ["".join(f"line {n}\n" for n in range(9000)), "é" * 50_000, "漢字\n" * 9000, "x" * 300_000]
)
async def test_a_long_result_is_cut_in_the_middle_and_all_of_it_is_kept(text: str) -> None:  # B009
    shelf = Shelf()
    tools = box(lambda _: ToolResult(text=text, is_error=True), shelf)
    finished = await tools.run(call({"name": "you"}), HERE)
    assert finished.full_text == "/desk/data/call_1.txt"
    assert shelf.kept == {"call_1": text}
    shown = finished.result.text
    assert finished.result.is_error
    assert estimate(shown) <= CAP
    assert estimate(shown) > CAP // 2
    head, tail = shown.split("[… ")[0].rstrip("\n"), shown.split(" …]\n")[1]
    assert head
    assert text.startswith(head)
    assert tail
    assert text.endswith(tail)
    assert f"{len(text) - len(shown.split('[… ')[0].rstrip()) - len(tail):,}"[:2] in shown
    assert "all of it is in /desk/data/call_1.txt" in shown


@pytest.mark.req("CORE-07")
async def test_a_long_result_that_cannot_be_kept_is_only_said_to_be_cut() -> None:
    finished = await box(lambda _: ToolResult(text="x\n" * 10_000), Shelf(works=False)).run(call({"name": "you"}), HERE)
    assert finished.full_text is None
    assert "are left out here …]" in finished.result.text
    assert not finished.result.is_error


async def test_half_a_character_is_made_visible_so_that_it_can_be_sent() -> None:
    assert (await run(box(lambda _: ToolResult(text="a\udcffb")))).text == "a\\udcffb"


async def test_calls_at_the_same_time_do_not_meet() -> None:
    tools = box()
    done: list[Finished] = await asyncio.gather(*(tools.run(call({"name": str(n)}), HERE) for n in range(50)))
    assert [one.result.text for one in done] == [f"Hello {n}" for n in range(50)]


@pytest.mark.req("CORE-04")
@pytest.mark.parametrize(
    ("name", "arguments", "hint"),
    [
        ("greet", {"name": "you"}, "greet(you)"),
        ("greet", '{"name": ', 'greet({"name": )'),
        ("greet", {"name": "a\nb\x1b[2J\u202e"}, "greet(a⟨\\n⟩b⟨\\x1b⟩[2J⟨\\u202e⟩)"),
        ("nothing", '{"a":\n1}', 'nothing({"a":⟨\\n⟩1})'),
        ("n\x07" * 90, "", None),
        ("greet", "\x1b" * 1000, None),
        ("greet", "x" * 1_000_000, None),
    ],
)
def test_a_hint_is_one_short_line_that_hides_nothing(name: str, arguments: Any, hint: str | None) -> None:
    shown = box().hint(call(arguments, name))
    assert len(shown) <= MAX_HINT
    assert shown.isprintable()
    if hint is not None:
        assert shown == hint
