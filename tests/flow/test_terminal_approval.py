"""A card at the terminal that controls the program, with the real Ctrl-C of that terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.req("APPR-01", "APPR-02")

PROGRAM = """
import asyncio, os, sys
terminal = os.open(sys.argv[1], os.O_RDWR)  # the first one that the leader of a session opens controls it
for number in range(3):
    os.dup2(terminal, number)

from bubbles.bus import Address, Origin
from bubbles.cli.report import run
from bubbles.controller.approvals.broker import ApprovalBroker
from bubbles.controller.approvals.contract import ApprovalCard
from bubbles.controller.approvals.terminal import TerminalApprover

async def ask():
    approver = TerminalApprover()
    broker = ApprovalBroker(lambda _: approver)
    origin = Origin(session_key="s", address=Address(channel="cli", chat_id="direct"), sender="me")
    for _ in range(2):
        card = ApprovalCard(
            id=broker.new_id(), command="git push", segment="", reason="No rule.", directory="/", sandbox="local",
            network="full",
        )
        print("ended:", (await broker.ask(card, origin)).outcome, flush=True)
    await asyncio.Event().wait()

try:
    run(ask())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_control_c_declines_the_open_card_and_ends_the_program_when_there_is_none() -> None:
    master, source = pty.openpty()
    seen = b""

    def sees(text: bytes) -> None:
        nonlocal seen
        deadline = time.monotonic() + 10
        while text not in seen:
            assert select.select([master], [], [], max(0.0, deadline - time.monotonic()))[0], seen
            seen += os.read(master, 4096)
        seen = seen.partition(text)[2]

    with open(master, "r+b", buffering=0) as keys:
        line = [sys.executable, "-c", PROGRAM, os.ttyname(source)]
        with subprocess.Popen(line, start_new_session=True) as program:
            try:
                sees(b"[y/n]")
                keys.write(b"\x03")
                sees(b"ended: denied")
                sees(b"[y/n]")
                keys.write(b"y\n")
                sees(b"ended: approved")
                keys.write(b"\x03")
                sees(b"interrupted")
                assert program.wait(10) == 0
            finally:
                program.kill()
    os.close(source)
