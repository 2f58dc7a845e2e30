"""MCP servers that are programs, outside every sandbox: good ones, and every way in which one can be bad (TOOL-09)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from bubbles.config.schema import McpServerSettings
from bubbles.mcp.contract import McpError, ServerState
from tests.mcp_playground.scene import Scene, Tools, a_scene, hostile, origin, real
from tests.processes import comes_true

KEY = "a-key-of-the-owner-0123456789"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with a_scene(tmp_path) as scene:
        yield scene


# -- a good server --


@pytest.mark.req("TOOL-09")
async def test_a_server_made_with_the_sdk_gives_text_structures_pictures_and_errors(scene: Scene) -> None:
    async with scene.tools(real()) as tools:
        assert tools.info.state is ServerState.READY
        assert await tools.text("echo", text="hello ü") == "hello ü"
        assert json.loads(await tools.text("weather", city="Rome")) == {"city": "Rome", "degrees": 21.5}
        (picture,) = (await tools.answer("picture")).images
        assert (picture.media_type, picture.data[:4]) == ("image/png", b"\x89PNG")
        failed = await tools.answer("fail", text="luck")
        assert failed.is_error
        assert "no luck" in failed.text


async def test_a_call_that_is_cancelled_is_given_up_by_the_server_too(scene: Scene) -> None:
    async with scene.tools(real()) as tools:
        call = asyncio.create_task(tools.text("slow", name="first"))
        await tools.text("echo", text="meanwhile")
        call.cancel()
        await asyncio.wait({call})
        assert call.cancelled()
        assert await tools.text("given") == "first"


async def test_tools_that_come_later_are_offered_without_being_asked_for(scene: Scene) -> None:
    async with scene.tools(real()) as tools:
        before = tools.servers.tools(tools.origin)
        assert tools.servers.tools(tools.origin) is before
        await tools.text("grow")
        assert await comes_true(lambda: "grown" in tools.names)
        assert await tools.text("grown") == "grown"


async def test_nothing_waits_for_a_server_but_its_own_call(scene: Scene) -> None:
    async with scene.servers(one=hostile("hang")) as servers:
        began = time.monotonic()
        assert servers.tools(origin()) == ()
        assert servers.infos()[0].state is ServerState.STARTING
        await servers.settled(origin(), 0.01)
        assert time.monotonic() - began < 1


async def test_only_the_tools_that_the_owner_names_are_there(scene: Scene) -> None:
    async with scene.tools(hostile(tools=("e*", "cwd"))) as tools:
        assert tools.names == ["echo", "env", "cwd"]


async def test_a_server_that_is_switched_off_is_not_started(scene: Scene) -> None:
    async with scene.tools(hostile(enabled=False)) as tools:
        assert (tools.names, tools.info.state) == ([], ServerState.OFF)


async def test_a_newer_protocol_is_spoken_with_a_server_that_knows_no_older_one(scene: Scene) -> None:
    async with scene.tools(hostile("modern")) as tools:
        assert await tools.text("echo", text="new") == "new"


# -- where it runs --


@pytest.mark.req("SEC-03")
async def test_its_environment_is_a_written_few_names_and_its_own(scene: Scene) -> None:
    scene.bench.host_env = {
        "PATH": os.environ["PATH"],
        "OPENAI_API_KEY": KEY,
        "http_proxy": "http://u:p@h",
        "LANG": "C",
    }
    async with scene.tools(hostile(env={"OWN": "mine"})) as tools:
        seen = json.loads(await tools.text("env"))
    assert seen.pop("BUBBLES_XID")
    assert seen == {"PATH": os.environ["PATH"], "LANG": "C", "OWN": "mine"} | {
        name: value for name, value in seen.items() if name in ("LC_CTYPE", "PWD", "OLDPWD")
    }


async def test_it_starts_in_an_empty_directory_of_its_own_or_where_the_owner_says(scene: Scene, tmp_path: Path) -> None:
    async with scene.servers(one=hostile(), other=hostile(cwd=tmp_path)) as servers:
        one, other = (Tools(servers), Tools(servers))
        await one.settled()
        by_server = {tool.server: tool for tool in servers.tools(origin()) if tool.name == "cwd"}
        own = (await servers.call(by_server["one"], {}, one.origin)).text
        assert not await asyncio.to_thread(os.listdir, own)
        assert (await servers.call(by_server["other"], {}, other.origin)).text == str(tmp_path)
    assert not await asyncio.to_thread(os.path.exists, own)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (McpServerSettings(command="no-such-program-anywhere"), "the program was not found"),
        (McpServerSettings(command="/"), "the program could not be run"),
        (McpServerSettings(command="true", cwd=Path("/no/such/place")), "can't cd to /no/such/place"),
        (hostile("die"), "the program ended with status 3; it said: ModuleNotFoundError: No module named 'x'"),
        (hostile("strange-version"), "it speaks no version of the protocol"),
        (hostile("endless-line"), "it said more than 16 MiB without an end of line"),
        (hostile("garbage-flood"), "it says too much unasked"),
        (hostile("stderr-flood"), "it writes to standard error without end"),
        (hostile("hang", start_timeout_s=0.5), "it did not say within 0.5 s what tools it has"),
        (McpServerSettings(command="sleep", args=("1000",), start_timeout_s=0.5), "it did not say within 0.5 s"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
@pytest.mark.req("TOOL-09")
async def test_a_server_that_cannot_be_used_says_why_and_is_tried_again(
    scene: Scene, settings: McpServerSettings, said: str
) -> None:
    """B076 among others: ``sleep 1000``."""
    async with scene.tools(settings) as tools:
        assert tools.info.state is ServerState.WAITING
        assert said in tools.info.problem
        assert 0 < (tools.info.retry_in_s or 0) <= 1.25
        assert tools.names == []


async def test_a_server_that_failed_is_tried_again_by_itself(scene: Scene, tmp_path: Path) -> None:
    missing = tmp_path / "later"
    async with scene.tools(McpServerSettings(command=str(missing), args=("plain",))) as tools:
        assert tools.info.state is ServerState.WAITING

        def make() -> None:
            missing.write_text(f'#!/bin/sh\nexec {sys.executable} {hostile().args[0]} "$@"\n')
            missing.chmod(0o755)

        await asyncio.to_thread(make)
        assert await comes_true(lambda: tools.info.state is ServerState.READY)
        assert (tools.info.problem, "echo" in tools.names) == ("", True)


# -- in the middle of things --


async def test_a_server_that_dies_in_a_call_is_there_again_for_the_next(scene: Scene) -> None:
    async with scene.tools(hostile()) as tools:
        before = await tools.text("pid")
        with pytest.raises(McpError, match="went away before it answered: the program ended with status 3"):
            await tools.answer("die")
        assert "echo" in tools.names
        assert await tools.text("pid") != before


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("flood", "it says too much unasked"),
        ("questions", "it asks more than it waits to hear|it says too much unasked"),
        ("huge", "it said more than 16 MiB"),
        ("crowd", "it said a message of too many parts"),
    ],
)
async def test_a_server_that_says_too_much_is_disconnected(scene: Scene, tool: str, said: str) -> None:
    async with scene.tools(hostile()) as tools:
        with pytest.raises(McpError, match=said):
            await tools.answer(tool)
        assert await tools.text("echo", text="again") == "again"


async def test_a_call_without_an_answer_ends_in_time_and_the_server_is_told(scene: Scene) -> None:
    async with scene.tools(hostile(call_timeout_s=0.3)) as tools:
        with pytest.raises(McpError, match=r"did not answer within 0\.3 s, and the call was given up"):
            await tools.answer("silent")
        assert len(json.loads(await tools.text("given_up"))) == 1


async def test_what_the_server_asks_of_us_is_refused(scene: Scene) -> None:
    async with scene.tools(hostile()) as tools:
        await tools.text("ask")
        answers = json.loads(await tools.text("answers"))
    assert answers.pop("about ping") == "answered"
    assert len(answers) == 4
    assert "answered" not in answers.values()


@pytest.mark.req("CORE-07")
async def test_a_large_answer_comes_whole(scene: Scene) -> None:
    """B083: what of it the model sees is the tools' business."""
    async with scene.tools(hostile()) as tools:
        assert len(json.loads(await tools.text("large"))) == 3_000


async def test_answers_that_are_none_or_lie_cost_that_call(scene: Scene) -> None:
    async with scene.tools(hostile()) as tools:
        with pytest.raises(McpError, match="its answer is none that the protocol knows"):
            await tools.answer("wrong")
        with pytest.raises(McpError, match="answered with an error: no such thing"):
            await tools.answer("refuse")
        assert (await tools.answer("fail")).is_error
        assert await tools.text("lie") == "n is seven"
        assert json.loads(await tools.text("structured")) == {"n": 7, "ü": "ö"}


async def test_arguments_that_no_json_can_hold_are_refused_and_nothing_breaks(scene: Scene) -> None:
    async with scene.tools(hostile()) as tools:
        for bad in ("\ud800", float("nan")):
            with pytest.raises(McpError, match="cannot be sent"):
                await tools.answer("echo", text=bad)
        assert await tools.text("echo", text="fine") == "fine"


async def test_a_greeting_and_other_noise_on_stdout_is_let_go(scene: Scene) -> None:
    async with scene.tools(hostile("greets")) as tools:
        assert await tools.text("echo", text="polite") == "polite"


async def test_many_calls_go_on_at_a_time(scene: Scene) -> None:
    async with scene.tools(hostile()) as tools:
        texts = [str(number) for number in range(100)]
        assert await asyncio.gather(*(tools.text("echo", text=text) for text in texts)) == texts


# -- its tools --


@pytest.mark.req("TOOL-09")
async def test_tools_that_cannot_be_used_are_left_out_and_counted(scene: Scene) -> None:
    async with scene.tools(hostile("bad-tools")) as tools:
        assert tools.names == ["good", "odd/name with ünïcode", "n" * 100, "described"]
        assert "12 of its tools are left out" in tools.info.problem
        offered = [tool.offered_as for tool in tools.servers.tools(tools.origin)]
        assert offered[0] == "mcp__one__good"
        assert all(len(name) <= 64 and name.isascii() for name in offered)
        assert len(tools.tool("described").description) == 2_000


@pytest.mark.parametrize(
    ("mode", "count", "problem"),
    [
        ("many-150", 150, ""),
        ("many-10000", 7_924, "2076 of its tools are left out (there are too many)"),
        ("pages", 25, ""),
        ("same-cursor", 25, "there are two of its name"),
        ("endless-pages", 1_000, "may be more of its tools than are kept"),
        ("no-list", 0, "is no list"),
    ],
)
@pytest.mark.req("TOOL-09")
async def test_lists_of_any_length_end(scene: Scene, mode: str, count: int, problem: str) -> None:
    """B084: what of them is offered is the tools' business."""
    async with scene.tools(hostile(mode)) as tools:
        assert tools.info.state is ServerState.READY
        assert len(tools.names) == tools.info.tools == count
        assert problem in tools.info.problem


async def test_a_server_whose_tools_change_again_and_again_is_listed_once(scene: Scene) -> None:
    async with scene.tools(hostile()) as tools:
        await tools.text("more")
        assert await comes_true(lambda: "new" in tools.names)
        assert await tools.text("new", text="late") == "late"


# -- what is kept --


@pytest.mark.req("TOOL-09")
async def test_the_next_program_offers_what_this_one_learnt_before_it_has_connected(scene: Scene) -> None:
    async with scene.tools(hostile()) as tools:
        known = tools.servers.tools(tools.origin)
    async with scene.servers(one=hostile(start_timeout_s=5)) as servers:
        assert servers.infos()[0].state is ServerState.IDLE
        assert servers.tools(origin()) == known
        first = servers.tools(origin())
        await servers.settled(origin(), 10)
        assert servers.infos()[0].state is ServerState.READY
        assert servers.tools(origin()) is first


async def test_what_was_learnt_of_another_server_of_that_name_does_not_count(scene: Scene) -> None:
    async with scene.tools(hostile()):
        pass
    async with scene.servers(one=hostile("hang")) as servers:
        assert servers.tools(origin()) == ()


async def test_a_call_of_a_tool_that_was_only_remembered_connects_first(scene: Scene) -> None:
    async with scene.tools(hostile()) as tools:
        known = tools.tool("echo")
    async with scene.servers(one=hostile()) as servers:
        assert (await servers.call(known, {"text": "awake"}, origin())).text == "awake"


@pytest.mark.req("SEC-03")
async def test_its_keys_are_in_no_file_no_info_no_error_and_no_log(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with scene.tools(hostile("leaks", env={"API_KEY": KEY})) as tools:
        (tool,) = tools.servers.tools(tools.origin)
        assert tool.description == "The key is [redacted]."
        shown = repr((tool, tools.info))
    async with scene.tools(hostile("plain", env={"API_KEY": KEY})) as tools:
        await tools.text("complain", text=f"the key is {KEY}")
        with pytest.raises(McpError) as refused:
            await tools.answer("refuse")
        with pytest.raises(McpError):
            await tools.answer("die")
        shown += str(refused.value) + repr(tools.info)
    kept = await asyncio.to_thread((scene.data_dir / "mcp" / "one.json").read_text)
    assert "the key is [redacted]" in caplog.text
    assert KEY not in shown + kept + caplog.text + repr(hostile(env={"API_KEY": KEY}))


# -- the end --


@pytest.mark.parametrize("mode", ["plain", "hang", "stubborn", "endless-line"])
async def test_leaving_ends_every_server_at_once_with_all_that_it_started(scene: Scene, mode: str) -> None:
    async with scene.servers(one=hostile(mode)) as servers:
        tools = Tools(servers)
        await tools.settled(0.5 if mode in ("hang", "endless-line") else 10)
        children = psutil.Process().children(recursive=True)
        if mode in ("plain", "stubborn"):
            children.append(psutil.Process(int(await tools.text("child"))))
        began = time.monotonic()
    assert time.monotonic() - began < 2
    assert await comes_true(lambda: not any(child.is_running() for child in children))


async def test_leaving_in_the_middle_of_a_call_ends_the_call(scene: Scene) -> None:
    async with scene.tools(hostile()) as tools:
        call = asyncio.create_task(tools.text("silent"))
        await tools.text("echo", text="after it")
    with pytest.raises(McpError, match="went away before it answered"):
        await call


def test_importing_it_does_not_import_the_sdk() -> None:
    names = "print(*(name.split('.')[0] for name in sys.modules))"
    program = f"import sys, bubbles.mcp.servers, bubbles.mcp.client.shelf; {names}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"mcp", "mcp_types", "httpx2", "opentelemetry"}.isdisjoint(done.stdout.split())
