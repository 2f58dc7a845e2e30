"""What starts what: commands that need little import little, and a sandbox opens while the model still thinks."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bubbles.app.workshop import backend_settings
from bubbles.providers.contract import ModelReply, ModelRequest, TextSink
from bubbles.providers.scripted import ScriptedProvider
from sandbox_backends.contract import BackendSettings
from sandbox_backends.inventory import list_sandboxes
from tests.flow.test_turns import scene
from tests.model_server import serving

HEAVY = {"litellm", "openai", "docker", "mcp", "trafilatura", "tavily", "tiktoken"}
PROGRAM = """
import sys
from bubbles.cli import main
sys.argv = ["bubbles", *sys.argv[1:]]
status = main()
print("IMPORTED", *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
raise SystemExit(status)
"""


async def imported(*words: str, environment: Mapping[str, str]) -> set[str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, *words),
        env={"PATH": os.environ["PATH"], **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    last = err.decode().splitlines()[-1]
    assert process.returncode == 0, err.decode()
    assert last.startswith("IMPORTED")
    return set(last.split()[1:])


@pytest.mark.parametrize("words", [("--help",), ("status",), ("agent", "--help")], ids=" ".join)
async def test_looking_imports_nothing_heavy(tmp_path: Path, words: tuple[str, ...]) -> None:
    found = await imported(*words, environment={"HOME": str(tmp_path)})
    assert not found & {*HEAVY, "aiohttp", "prompt_toolkit"}


INTERRUPTED = """
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from bubbles.__main__ import main
raise SystemExit(main())
"""


async def test_control_c_while_the_program_still_loads_is_no_traceback() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", INTERRUPTED), stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
    )
    _, err = await process.communicate()
    assert (process.returncode, err) == (130, b"")


@pytest.mark.req("PROV-04")
async def test_one_message_to_a_custom_provider_imports_nothing_heavy(tmp_path: Path) -> None:
    async with serving(lambda _: "Hello.") as server:
        found = await imported("agent", "-m", "hi", environment={"HOME": str(tmp_path), **server.environment})
        server.check()
    assert not found & {*HEAVY, "prompt_toolkit", "rich"}


class Waiting(ScriptedProvider):
    """Thinks until the session's sandbox is there."""

    def __init__(self) -> None:
        super().__init__(["It is open."])
        self.backends: BackendSettings | None = None

    async def complete(self, request: ModelRequest, *, on_text: TextSink | None = None) -> ModelReply:
        assert self.backends is not None
        while not await list_sandboxes(self.backends):  # noqa: ASYNC110 - it is seen from outside, by its record
            await asyncio.sleep(0.01)
        return await super().complete(request, on_text=on_text)


@pytest.mark.req("SBX-12")
@pytest.mark.needs("bubblewrap")
@pytest.mark.blocking  # opening places looks at the host's files
async def test_the_sandbox_opens_while_the_model_thinks(tmp_path: Path) -> None:
    provider = Waiting()
    async with scene(tmp_path, provider, backend="bubblewrap") as here:
        provider.backends = backend_settings(here.bubbles.settings)
        await here.channel.say("hi")
        assert await here.channel.heard() == ["It is open."]
