"""``bubbles mcp serve`` under a client that is gone, broken or hostile: bounded, and nothing stays behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from sandbox_backends.docker.container import LABEL_DATA
from sandbox_backends.docker.reaper import data_dir_id
from tests.docker_engine import engine_client
from tests.mcp_served import ASKED_ABOUT, INITIALIZE, Ground, Raw, make_ground, raw
from tests.needs import need
from tests.places import HARD
from tests.processes import alive, below, comes_true, runners

ENDS_WITHIN_S = 2.0
SLEEP = "sleep 600"
RULE = 'prefix_rule(pattern=[["sleep", "touch"]])\n'


@pytest.fixture(params=HARD)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    if request.param == "docker":
        request.getfixturevalue("sandbox_image")
    found = make_ground(tmp_path, request.param)
    found.rule(RULE)
    return found


@pytest.fixture
def bubblewrap(tmp_path: Path) -> Ground:
    need("bubblewrap")
    found = make_ground(tmp_path, "bubblewrap")
    found.rule(RULE)
    return found


def containers(ground: Ground) -> list[str]:
    if ground.backend != "docker":
        return []
    with engine_client() as client:
        label = f"{LABEL_DATA}={data_dir_id(ground.data_dir)}"
        return [row["Id"] for row in client.containers(all=True, filters={"label": label})]


async def _asleep(served: Raw, ground: Ground) -> list[psutil.Process]:
    """With a command that runs; what there is below the server then."""
    await served.initialize()
    await served.call(1, "exec", script=f"touch begun; {SLEEP}")
    assert await comes_true((ground.project / "begun").exists, 15)
    return below(served.pid)


async def _ends(served: Raw) -> int:
    begun = time.monotonic()
    status = await served.ends()
    assert time.monotonic() - begun < ENDS_WITHIN_S
    return status


@pytest.mark.req("SBX-05")
async def test_the_end_of_input_ends_it_with_all_that_runs(ground: Ground) -> None:
    async with raw(ground) as served:
        processes = await _asleep(served, ground)
        assert len(await asyncio.to_thread(containers, ground)) == (ground.backend == "docker")
        served.stdin.close()
        assert await _ends(served) == 0
        assert alive(processes) == []
    assert await asyncio.to_thread(containers, ground) == []
    assert list((ground.data_dir / "run").glob("*/sandbox.json")) == []


@pytest.mark.req("SBX-05")
async def test_killed_it_leaves_nothing_that_runs(ground: Ground) -> None:
    async with raw(ground) as served:
        processes = await _asleep(served, ground)
        served.process.send_signal(signal.SIGKILL)
        await served.ends()
        assert await comes_true(lambda: not alive(processes))
    assert await comes_true(lambda: not containers(ground), 10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_signals_end_it_in_order(bubblewrap: Ground, number: signal.Signals) -> None:
    async with raw(bubblewrap) as served:
        processes = await _asleep(served, bubblewrap)
        served.process.send_signal(number)
        assert await _ends(served) == 130
        assert alive(processes) == []
        _, err = await served.process.communicate()
    assert b"Traceback" not in err
    assert list((bubblewrap.data_dir / "run").glob("*/sandbox.json")) == []


async def test_a_client_that_closes_both_pipes_ends_it(bubblewrap: Ground) -> None:
    process = subprocess.Popen(
        bubblewrap.command("--root", str(bubblewrap.project)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=bubblewrap.environment,
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}).encode())
    process.stdin.write(b"\n")
    process.stdin.flush()
    await asyncio.to_thread(process.stdout.readline)
    process.stdout.close()
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    process.stdin.flush()  # its answer finds nobody
    assert await asyncio.to_thread(process.wait, ENDS_WITHIN_S) == 0
    assert process.stderr.read() == b""
    process.stdin.close()
    process.stderr.close()


async def test_one_that_ends_while_its_sandbox_opens_leaves_none(ground: Ground) -> None:
    async with raw(ground) as served:
        await served.initialize()
        served.stdin.close()
        assert await _ends(served) == 0
    assert await asyncio.to_thread(containers, ground) == []
    assert list((ground.data_dir / "run").glob("*/sandbox.json")) == []


async def test_what_was_asked_before_the_end_is_answered(bubblewrap: Ground) -> None:
    async with raw(bubblewrap) as served:
        await served.send({"id": 0, "method": "initialize", "params": INITIALIZE}, {"id": 1, "method": "tools/list"})
        served.stdin.close()
        answered = [json.loads(line)["id"] async for line in served.stdout]
        assert await _ends(served) == 0
    assert answered == [0, 1]


@pytest.mark.parametrize("where", ["/dev/null", "empty", "messages"])
async def test_input_from_a_file_is_as_good(bubblewrap: Ground, where: str) -> None:
    if where == "messages":
        lines = [{"id": 0, "method": "initialize", "params": INITIALIZE}, {"id": 1, "method": "ping"}]
        text = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
        (bubblewrap.base / where).write_text(text.rstrip("\n"))
    elif where == "empty":
        (bubblewrap.base / where).touch()

    def ran() -> list[dict[str, Any]]:
        with open(bubblewrap.base / where, "rb") as source, open(bubblewrap.base / "out", "wb") as target:
            command = bubblewrap.command("--root", str(bubblewrap.project))
            subprocess.run(command, stdin=source, stdout=target, env=bubblewrap.environment, check=True, timeout=15)
        return [json.loads(line) for line in (bubblewrap.base / "out").read_text().splitlines()]

    assert [line["id"] for line in await asyncio.to_thread(ran)] == ([0, 1] if where == "messages" else [])


async def test_a_cancelled_call_ends_its_command(ground: Ground) -> None:
    count: Callable[[], int] = lambda: (ground.project / "beats").stat().st_size  # noqa: E731
    ground.rule(RULE + 'prefix_rule(pattern=["./beat.sh"])\n')
    script = ground.project / "beat.sh"
    script.write_text("#!/bin/bash\nwhile :; do echo >> beats; sleep 0.05; done\n")
    script.chmod(0o755)
    async with raw(ground) as served:
        await served.initialize()
        await served.call(7, "exec", script="./beat.sh")
        assert await comes_true((ground.project / "beats").exists, 15)
        await served.send({"method": "notifications/cancelled", "params": {"requestId": 7, "reason": "no more"}})
        assert await comes_true(lambda: any(event["event"] == "command_finished" for event in ground.events))
        before = count()
        await served.call(8, "exec", script="sleep 0.3")  # three beats and more
        assert not (await served.answer(8))["result"]["isError"]
        assert count() <= before + 1
    assert "cancelled" in [event.get("outcome") for event in ground.events]


GARBAGE = [
    b"\n",
    b"   \r\n",
    b"hello\n",
    b"\x00\xff\xfe\x80\n",
    b"[]\n",
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n',
    b"null\n",
    b"{}\n",
    b'{"jsonrpc":"1.0","id":1,"method":"ping"}\n',
    b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}\n',
    b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n',
    b'{"jsonrpc":"2.0","id":[1],"method":"ping"}\n',
    b'{"jsonrpc":"2.0","id":' + b"9" * 4_000 + b',"method":"ping"}\n',
    b'{"jsonrpc":"2.0","id":2,"method":7}\n',
    b'{"jsonrpc":"2.0","id":2,"method":"ping","params":[]}\n',
    b'{"jsonrpc":"2.0","id":2,"method":"\\ud800"}\n',
    b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":7}}\n',
    b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"exec","arguments":"ls"}}\n',
    b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"exec","arguments":{"script":"\\u0000"}}}\n',
    b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"' + b"x" * 100_000 + b'"}}\n',
    b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"exec","arguments":{"timeout_s":'
    + b"9" * 6_000
    + b"}}}\n",
    b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"exec","arguments":{"timeout_s":NaN}}}\n',
    b'{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{"_meta":7}}\n',
    b'{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{"cursor":{}}}\n',
    b'{"jsonrpc":"2.0","id":5,"method":"no/such/method"}\n',
    b'{"jsonrpc":"2.0","method":"no/such/notification"}\n',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled"}\n',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}\n',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":"x"}}\n',
    b'{"jsonrpc":"2.0","id":99,"result":{}}\n',
    b'{"jsonrpc":"2.0","id":99,"result":[]}\n',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"x"}}\n',
    b'{"jsonrpc":"2.0","id":6,"method":"initialize","params":{}}\n',
    b'{"jsonrpc":"2.0","id":6,"method":"logging/setLevel","params":{"level":"x"}}\n',
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n",
    b"[" * 200_000 + b"\n",
]


async def _garbage(served: Raw) -> None:
    await served.send_bytes(b"".join(GARBAGE))
    await served.send({"id": "last", "method": "ping"})
    while (await served.line()).get("id") != "last":
        pass


async def _clean_end(served: Raw) -> None:
    served.stdin.close()
    out, err = await served.process.communicate()
    assert served.process.returncode == 0
    assert err == b""
    for line in out.splitlines():
        assert json.loads(line)["jsonrpc"] == "2.0"


@pytest.mark.parametrize("first", [True, False], ids=["before initialize", "after it"])
async def test_garbage_is_answered_and_nothing_else_comes_of_it(bubblewrap: Ground, first: bool) -> None:
    async with raw(bubblewrap) as served:
        if not first:
            await served.initialize()
        await _garbage(served)
        if first:
            await served.initialize()
        await served.call(10, "list_dir")
        assert "notes.txt" in (await served.answer(10))["result"]["content"][0]["text"]
        await _clean_end(served)


async def test_every_wrong_line_has_an_answer_that_says_what_is_wrong(bubblewrap: Ground) -> None:
    async with raw(bubblewrap) as served:
        await served.send_bytes(b"hello\n")
        assert (await served.line())["error"]["code"] == -32700
        asked = b'"method":"tools/call","params":{"name":"exec","arguments":{"script":"\\ud83d"}}'
        half = b'{"jsonrpc":"2.0","id":%s,' + asked + b"}\n"
        for written, ident in ((b"4", 4), (b'"four"', "four"), (b'"\\udc00"', None), (b"true", None)):
            await served.send_bytes(half % written)  # as JavaScript writes half a character
            wrong = await served.line()
            assert (wrong["id"], wrong["error"]["code"]) == (ident, -32700)
        await served.send_bytes(b'{"jsonrpc":"2.0","id":5,"method":7}\n')
        wrong = await served.line()
        assert (wrong["id"], wrong["error"]["code"]) == (5, -32600)
        await served.send({"id": 6, "method": "tools/list"})
        assert (await served.line())["error"]["code"] == -32602  # not initialized yet
        await _clean_end(served)


async def test_a_line_of_a_hundred_megabytes_is_refused_and_not_kept(bubblewrap: Ground) -> None:
    async with raw(bubblewrap) as served:
        await served.initialize()
        before = psutil.Process(served.pid).memory_info().rss
        piece = b"x" * (1 << 20)
        for _ in range(100):
            await served.send_bytes(piece)
        grown = psutil.Process(served.pid).memory_info().rss - before
        await served.send_bytes(b"\n")
        assert "over 16 MiB" in (await served.line())["error"]["message"]
        await served.send({"id": 1, "method": "ping"})
        assert (await served.answer(1))["result"] == {}
        await _clean_end(served)
    assert grown < 60 << 20


async def test_a_thousand_calls_at_once_are_all_answered(bubblewrap: Ground) -> None:
    async with raw(bubblewrap) as served:
        await served.initialize()
        calls = [
            {"id": n, "method": "tools/call", "params": {"name": "read_file", "arguments": {"path": "notes.txt"}}}
            for n in range(1, 1_001)
        ]
        await served.send(*calls)
        answered = {(await served.line())["id"] for _ in calls}
        assert answered == set(range(1, 1_001))
        await _clean_end(served)


async def test_too_many_calls_are_told_to_come_later(bubblewrap: Ground) -> None:
    big = "x" * (4 << 20)
    async with raw(bubblewrap) as served:
        await served.initialize()
        for n in range(1, 9):
            await served.call(n, "exec", script=SLEEP)
        for n in range(11, 23):  # they wait behind those, and are 48 MiB together
            await served.call(n, "write_file", path=f"{n}.txt", content=big)
        for _ in range(5):
            assert "Too much is asked for at once" in (await served.line())["result"]["content"][0]["text"]
        for n in range(1, 9):
            await served.send({"method": "notifications/cancelled", "params": {"requestId": n}})
        for _ in range(7):
            assert "Created" in (await served.line())["result"]["content"][0]["text"]
        await _clean_end(served)


async def test_a_client_that_reads_nothing_is_waited_for_and_its_end_is_seen(bubblewrap: Ground) -> None:
    (bubblewrap.project / "long.txt").write_text("0123456789abcdef\n" * 1_500)
    call = {"method": "tools/call", "params": {"name": "read_file", "arguments": {"path": "long.txt"}}}
    read, write = os.pipe()
    process = subprocess.Popen(
        bubblewrap.command("--root", str(bubblewrap.project)),
        stdin=subprocess.PIPE,
        stdout=write,
        stderr=subprocess.PIPE,
        env=bubblewrap.environment,
    )
    os.close(write)
    assert process.stdin
    assert process.stderr
    try:
        lines = [{"id": 0, "method": "initialize", "params": INITIALIZE}, *({"id": n, **call} for n in range(1, 3_000))]
        data = b"".join(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n" for line in lines)
        await asyncio.to_thread(process.stdin.write, data)
        await asyncio.to_thread(process.stdin.flush)
        server = psutil.Process(process.pid)
        assert await comes_true(lambda: server.cpu_percent(0.3) < 5, 15)
        assert server.memory_info().rss < 250 << 20
        process.stdin.close()
        assert await asyncio.to_thread(process.wait, ENDS_WITHIN_S) == 0
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        os.close(read)


async def test_a_client_that_never_answers_a_question_blocks_nothing_else(bubblewrap: Ground) -> None:
    async with raw(bubblewrap) as served:
        await served.initialize()
        for n in range(1, 31):
            await served.call(n, "exec", script=ASKED_ABOUT)
        await served.call(100, "read_file", path="notes.txt")
        assert not (await served.answer(100))["result"]["isError"]
        served.stdin.close()
        await _ends(served)


async def test_two_requests_of_one_id_are_both_answered(bubblewrap: Ground) -> None:
    async with raw(bubblewrap) as served:
        await served.initialize()
        await served.call(1, "exec", script="sleep 0.1")
        await served.call(1, "read_file", path="notes.txt")
        assert [(await served.line())["id"] for _ in range(2)] == [1, 1]
        await _clean_end(served)


async def test_only_the_protocol_is_on_standard_output(bubblewrap: Ground) -> None:
    bubblewrap.rule("this is no rule\n")
    async with raw(bubblewrap) as served:
        await served.initialize()
        await served.call(1, "exec", script="ls")
        await served.answer(1)
        served.stdin.close()
        out, err = await served.process.communicate()
    assert out == b""
    assert b"test.rules" in err


async def test_the_sandbox_opens_while_the_client_thinks(bubblewrap: Ground) -> None:
    async with raw(bubblewrap) as served:
        await served.initialize()
        assert await comes_true(lambda: len(runners(below(served.pid))) == 1, 10)
        await _clean_end(served)
