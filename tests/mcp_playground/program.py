"""A program with MCP servers, to be killed: ``program.py DIRECTORY BACKEND``.

It says when they are ready, and goes on calling them.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))


async def main(base: Path) -> None:
    from bubbles.config.schema import McpServerSettings
    from tests.mcp_playground.scene import Tools, a_scene

    server = str(base / "server.py")
    async with a_scene(base / "bench", sys.argv[2]) as scene:
        settings: dict[str, Any] = {
            "one": McpServerSettings(command=sys.executable, args=(server, "stubborn")),
            "hung": McpServerSettings(command=sys.executable, args=(server, "hang")),
        }
        if sys.argv[2] != "local":
            await asyncio.to_thread((scene.bench.project / "server.py").write_bytes, (base / "server.py").read_bytes())
            settings["inside"] = McpServerSettings(
                command="python3", args=(str(scene.bench.project / "server.py"), "stubborn"), sandboxed=True
            )
        async with scene.servers(**settings) as servers:
            tools = Tools(servers)
            while "child" not in tools.names:  # the other one never settles
                await tools.settled(0.1)
            await tools.text("child")
            print("ready", flush=True)
            while True:
                await tools.text("echo", text="x" * 10_000)


asyncio.run(main(Path(sys.argv[1])))
