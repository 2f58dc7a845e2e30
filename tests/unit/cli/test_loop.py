"""The event loop of every command."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading

import pytest

from bubbles.cli.loop import MAX_LOOKUPS, Loop

LEAVES = """
import asyncio, time
from bubbles.cli.loop import Loop

async def main():
    try:
        async with asyncio.timeout(0.1):
            await asyncio.open_connection("slow.example", 80)
    except TimeoutError:
        print("left")

def lookup(*where, **how):
    time.sleep(60)

with asyncio.Runner(loop_factory=lambda: Loop(lookup)) as runner:
    runner.run(main())
"""


async def test_the_end_of_the_program_waits_for_no_name() -> None:
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", LEAVES, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(10):
        out, _ = await program.communicate()
    assert (program.returncode, out) == (0, b"left\n")


def test_names_that_nobody_answers_for_keep_nothing_else_waiting() -> None:
    go_on = threading.Event()

    async def main() -> str:
        loop = asyncio.get_running_loop()
        names = [asyncio.create_task(loop.getaddrinfo(f"n{number}.example", 80)) for number in range(2 * MAX_LOOKUPS)]
        await asyncio.sleep(0)  # they begin
        try:
            async with asyncio.timeout(5):
                return await asyncio.to_thread(lambda: "done")
        finally:
            go_on.set()
            await asyncio.wait(names)

    with asyncio.Runner(loop_factory=lambda: Loop(lambda *_, **__: go_on.wait(10))) as runner:
        assert runner.run(main()) == "done"


def test_names_are_looked_up_and_what_is_none_is_an_error() -> None:
    async def main() -> set[str]:
        loop = asyncio.get_running_loop()
        with pytest.raises(socket.gaierror):
            await loop.getaddrinfo("no-such-name.invalid", 80)
        return {str(entry[4][0]) for entry in await loop.getaddrinfo("localhost", 80)}

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(main()) & {"127.0.0.1", "::1"}
