"""A ``bubbles gateway`` process with a home of its own, and what a person does with it: start it, kill it, stop it.

async with bot_api() as telegram, serving(brain) as model:
    async with GatewayScene(tmp_path, telegram_environment(telegram) | model.environment) as gateway:
        await gateway.starts()
        await gateway.killed()
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

import psutil

from tests.channel_servers.telegram import ANN, TOKEN, BotApi
from tests.model_server import ModelServer

PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to whoever connects: while a gateway is down nobody else gets its port."""
START_S = 20.0
SILENT_MODEL = ModelServer(lambda _: "", url="http://127.0.0.1:9").environment
"""Where nobody listens: without a model that is configured no gateway is ready."""
GAUGE = re.compile(r"^(\w+)(?:\{\})? ([-+.\de]+)$", re.MULTILINE)


def telegram_environment(server: BotApi, allowed: Collection[int] = (ANN["id"],)) -> dict[str, str]:  # type: ignore[assignment]
    return {
        "BUBBLES_CHANNELS__TELEGRAM__ENABLED": "true",
        "BUBBLES_CHANNELS__TELEGRAM__TOKEN": TOKEN,
        "BUBBLES_CHANNELS__TELEGRAM__ALLOW_FROM": ",".join(map(str, allowed)),
        "BUBBLES_CHANNELS__TELEGRAM__BASE_URL": server.url,
    }


def free_port() -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class GatewayScene:
    """One data directory; one process at a time, or none. Leaving the context kills it."""

    def __init__(self, base: Path, environment: Mapping[str, str]) -> None:
        self.home = base / "home"
        self.data_dir = self.home / ".bubbles"
        self.temporary = base / "tmp"
        for folder in (self.home, self.data_dir, self.temporary):
            folder.mkdir()
        self.data_dir.chmod(0o700)
        self.port = free_port()
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "BUBBLES_HOME": str(self.data_dir),
            "TMPDIR": str(self.temporary),
            "BUBBLES_GATEWAY__PORT": str(self.port),
            **environment,
        }
        self.said = base / "stderr"
        """What all processes wrote, one after the other."""
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *how: object) -> None:
        if self._process is not None:
            await self.killed()

    @property
    def process(self) -> psutil.Process:
        assert self._process is not None
        return psutil.Process(self._process.pid)

    async def begins(self) -> None:
        """It is started, and goes on by itself."""
        assert self._process is None
        with self.said.open("ab") as said:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bubbles", "gateway"),
                env=self.environment,
                cwd=self.home,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    async def starts(self) -> float:
        """Returns once all of it is up; how many seconds that took."""
        began = time.monotonic()
        await self.begins()
        await self.is_ready()
        return time.monotonic() - began

    async def is_ready(self, within_s: float = START_S) -> None:
        await self.answers("/readyz", within_s)

    async def answers(self, path: str, within_s: float = START_S) -> None:
        """Returns once it says 200 there."""
        assert self._process is not None
        found: Any = None
        try:
            async with asyncio.timeout(within_s):
                while True:
                    if self._process.returncode is not None:
                        raise AssertionError(f"it ended with {self._process.returncode}:\n{self.told()}")
                    try:
                        status, found = await self.asks(path)
                    except OSError:
                        status = 0
                    if status == 200:
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{path} is not well after {within_s} s: {found}\n{self.told()}") from None

    async def killed(self) -> None:
        """By SIGKILL, wherever it is just now."""
        await self._ends(signal.SIGKILL)

    async def stops(self) -> tuple[int, float]:
        """SIGTERM: the exit status, and the seconds until then."""
        return await self._ends(signal.SIGTERM)

    async def _ends(self, number: signal.Signals) -> tuple[int, float]:
        assert self._process is not None
        began = time.monotonic()
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(START_S):
            status = await self._process.wait()
        self._process = None
        return status, time.monotonic() - began

    async def asks(self, path: str) -> tuple[int, str]:
        """What it says about itself: status and body. Raises OSError if nobody listens."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        finally:
            writer.close()
        if not head:
            raise ConnectionError("it said nothing")
        return int(head.split()[1]), body

    async def waiting(self) -> int:
        """Messages that it has taken and not dealt with."""
        return int(json.loads((await self.asks("/readyz"))[1])["waiting"])

    async def gauges(self) -> dict[str, float]:
        """Those of ``/metrics`` that have no labels."""
        return {name: float(value) for name, value in GAUGE.findall((await self.asks("/metrics"))[1])}

    async def runs(self, *words: str) -> tuple[int, str, str]:
        """Another ``bubbles`` command with the same settings: status, output, complaints."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bubbles", *words),
            env=self.environment,
            cwd=self.home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    def told(self) -> str:
        """The end of what it said."""
        return self.said.read_text(errors="replace")[-4_000:]

    def left_over(self) -> list[str]:
        """Processes of it, and of its sandboxes, that still run."""
        mine = {str(self.data_dir), str(self.temporary)}
        found = []
        for process in psutil.process_iter():
            try:
                places = {process.cwd(), *(process.environ().get(name) for name in ("BUBBLES_HOME", "TMPDIR"))}
                inside = mine & places or str(process.cwd()).startswith(f"{self.home}/")
                if inside and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {' '.join(process.cmdline())}")
            except (psutil.Error, OSError):
                continue
        return found
