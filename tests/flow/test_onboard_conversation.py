"""``bubbles onboard`` as somebody at a terminal goes through it: real processes, pseudo-terminals and servers.

Where it matters little who answers, ``custom`` does: it needs no library that takes seconds to import.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.local_models import LocalServer, local_server, ollama
from tests.ptys import Person, at_a_terminal

pytestmark = [pytest.mark.req("CLI-01"), pytest.mark.timeout(60)]

PROGRAM = str(Path(sys.executable).parent / "bubbles")
KEY = "sk-canary-0123456789abcdef"
WHICH, WHERE = "Which one?", "Where are commands to run?"
CONTROL_C, CONTROL_D = "\x03", "\x04"
NOBODY = {"OLLAMA_HOST": "127.0.0.1:1", "BUBBLES_PROVIDERS__VLLM__BASE_URL": "http://127.0.0.1:1/v1"}
"""Where the usual ports would be looked at, nothing listens; whatever this machine has."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """With a PATH on which there is no sandbox that would have to be measured."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("setsid", "python3"):
        (programs / name).symlink_to(str(shutil.which(name)))
    made = tmp_path / "home"
    made.mkdir()
    return made


def environment(home: Path, **more: str) -> dict[str, str]:
    return {
        "HOME": str(home),
        "PATH": str(home.parent / "bin"),
        "TERM": "xterm",
        "DOCKER_HOST": f"unix://{home}/no.sock",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        **NOBODY,
        **more,
    }


@asynccontextmanager
async def onboarding(home: Path, *argv: str, **more: str) -> AsyncIterator[Person]:
    async with at_a_terminal([PROGRAM, "onboard", *argv], environment(home, **more)) as person:
        yield person


def config(home: Path) -> Path:
    return home / ".bubbles" / "config.json"


def written(home: Path) -> Any:
    assert stat.S_IMODE(config(home).stat().st_mode) == 0o600
    return json.loads(config(home).read_text())


def have(home: Path, **settings: object) -> bytes:
    config(home).parent.mkdir(mode=0o700)
    config(home).touch(mode=0o600)
    config(home).write_text(json.dumps(settings))
    return config(home).read_bytes()


def own(server: LocalServer) -> dict[str, Any]:
    """A configuration in which all is said."""
    return {
        "agents": {"defaults": {"model": "custom/m"}},
        "providers": {"custom": {"baseUrl": f"http://{server.host}/v1", "apiKey": KEY}},
        "tools": {"sandbox": {"backend": "local"}},
    }


async def keeps(person: Person) -> None:
    await person.sees("[K/r]")
    person.types("\n")
    await person.sees("is set. Ask it for one word, to see it answer? [Y/n]")
    person.types("\n")


def vendor(server: LocalServer, name: str = "DEEPSEEK") -> Mapping[str, str]:
    """A key of this vendor in the environment, and the vendor at the look-alike."""
    return {f"{name}_API_KEY": KEY, f"BUBBLES_PROVIDERS__{name}__BASE_URL": f"http://{server.host}/v1"}


async def ends(person: Person, home: Path) -> str:
    """Enter takes the sandbox that is proposed; the rest of what is shown."""
    await person.sees(WHERE)
    person.types("\n")
    shown = await person.sees("bubbles agent")
    assert await person.leaves() == 0
    return shown


async def test_an_ollama_on_this_machine_is_found_asked_once_and_set(home: Path) -> None:
    models = ollama("gemma:2b", "qwen3.8:27b", tools=("qwen3.8:27b",), context=32_768)
    async with local_server(models) as server, onboarding(home, OLLAMA_HOST=server.host) as person:
        offered = await person.sees(WHICH)
        assert offered.index("1  ollama/qwen3.8:27b  on this machine; calls tools") < offered.index("cannot call tools")
        assert "POST /v1/chat/completions" not in server.asked
        person.types("\n")
        shown = await person.sees("takes tools.")
        assert re.search(r"ollama/qwen3\.8:27b answered in \d+\.\d s, and takes tools\.", shown)
        await person.sees("Its server takes 32,768 tokens at once")
        await ends(person, home)
        request = server.model.requests[0]
        assert (len(server.model.requests), request["model"]) == (1, "qwen3.8:27b")
        assert [tool["function"]["name"] for tool in request["tools"]] == ["note"]
    assert written(home) == {
        "agents": {"defaults": {"model": "ollama/qwen3.8:27b", "contextTokens": 32_768}},
        "providers": {"ollama": {"baseUrl": f"http://{server.host}"}},
        "tools": {"sandbox": {"backend": "local_isolated"}},
    }


@pytest.mark.req("PROV-09", "SEC-01", "SEC-03")
async def test_a_key_in_the_environment_is_tried_when_it_is_chosen_and_only_its_name_is_written(home: Path) -> None:
    async with local_server({}) as server, onboarding(home, **vendor(server)) as person:
        await person.sees("1  deepseek/deepseek-flash  key in DEEPSEEK_API_KEY")
        await person.sees(WHICH)
        assert server.asked == []
        person.types("\n")
        await person.sees("deepseek/deepseek-flash answered in")
        shown = await ends(person, home)
        assert server.asked == ["POST /v1/chat/completions"]
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
        assert "1. Set DEEPSEEK_API_KEY wherever Bubbles is started" in shown
        assert KEY.encode() not in person.raw
    said = written(home)
    assert said["agents"] == {"defaults": {"model": "deepseek/deepseek-flash"}}
    assert said["providers"] == {"deepseek": {"apiKey": "${DEEPSEEK_API_KEY}"}}


@pytest.mark.req("PROV-08", "SEC-03")
async def test_a_refusal_is_told_in_the_vendors_words_and_can_be_tried_again(home: Path) -> None:
    async with local_server({}, refusal=(401, f"No such key: {KEY}\x1b[2J")) as server:
        have(home, **own(server))
        async with onboarding(home) as person:
            await keeps(person)
            shown = await person.sees("or [k]eep it all the same? [other] ")
            assert "gave no answer: authentication (status 401: No such key: [redacted]" in shown
            person.types("a\n")
            await person.sees("or [k]eep it all the same? [other] ")
            person.types("\n")
            await person.sees("a key [1] ")
            person.types("nonsense\n")
            await person.sees("Please answer with a number from 1 to 1, PROVIDER/MODEL, or k.")
            person.types("custom/n\n")
            await person.sees("custom/n gave no answer")
            server.refusal = None
            await person.sees("[other] ")
            person.types("again\n")
            await person.sees("custom/n answered in")
            await person.sees("bubbles agent")
            assert await person.leaves() == 0
            assert KEY.encode() not in person.raw
            assert b"\x1b[2J" not in person.raw
        assert written(home) == own(server) | {"agents": {"defaults": {"model": "custom/n"}}}


async def test_what_did_not_answer_can_be_kept_and_another_region_is_proposed(home: Path) -> None:
    refusing = local_server({}, refusal=(401, "no"))
    async with refusing as server, onboarding(home, **vendor(server, "MOONSHOT")) as person:
        await person.sees(WHICH)
        person.types("\n")
        await person.sees("[r]egion: https://api.moonshot.cn/v1")
        await person.sees("[other] ")
        person.types("x\n")
        await person.sees("Please answer a, o, r, k.")
        await person.sees("[other] ")
        person.types("k\n")
        await ends(person, home)
    assert written(home)["providers"] == {"moonshot": {"apiKey": "${MOONSHOT_API_KEY}"}}


async def test_a_model_that_takes_no_tools_is_a_refusal(home: Path) -> None:
    refusing = local_server(ollama("tiny:1b"), refusal=(400, "tiny:1b does not support tools"))
    async with refusing as server, onboarding(home, OLLAMA_HOST=server.host) as person:
        await person.sees(WHICH)
        person.types("\n")
        await person.sees("gave no answer: rejected (status 400: tiny:1b does not support tools)")


async def test_with_nothing_there_two_lines_say_what_to_do_and_enter_goes_on(home: Path) -> None:
    async with onboarding(home) as person:
        shown = await person.sees("Enter goes on without a model:")
        assert "Export a key, such as\nANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY" in shown
        person.types("\n")
        shown = await person.sees(WHERE)
        assert "bwrap is not installed. apt-get install bubblewrap" in shown
        assert "local_isolated: no boundary" in shown
        person.types("docker\n")
        await person.sees("Please take one of local_isolated, local.")
        person.types("local\n")
        await person.sees("1. Say which model to use")
        assert await person.leaves() == 0
    assert written(home) == {
        "agents": {"defaults": {}},
        "providers": {},
        "tools": {"sandbox": {"backend": "local"}},
    }


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize("kept", ["keyring", "file", "nowhere"])
async def test_a_pasted_key_is_not_shown_and_kept_as_the_person_is_told(home: Path, kept: str) -> None:
    own = {"PYTHON_KEYRING_BACKEND": "tests.own_keyring.OwnKeyring", "OWN_KEYRING_FILE": str(home / "ring.json")}
    own["PYTHONPATH"] = str(Path(__file__).parents[2])
    async with local_server({}) as server:
        more = {"BUBBLES_PROVIDERS__DEEPSEEK__BASE_URL": f"http://{server.host}/v1"}
        async with onboarding(home, **more, **(own if kept == "keyring" else {})) as person:
            await person.sees("Enter goes on without a model:")
            person.types("deepseek\n")
            await person.sees("Key of deepseek (it is not shown):")
            person.types(f"{KEY}\n")
            await person.sees("answered in")
            await person.sees(WHERE)
            assert not (home / "ring.json").exists()
            person.types("\n")
            if kept != "keyring":
                await person.sees("Keep it there? [Y/n]")
                person.types("\n" if kept == "file" else "n\n")
            shown = await person.sees("bubbles agent")
            assert await person.leaves() == 0
            assert KEY.encode() not in person.raw
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    value = {"keyring": "keyring:bubbles/deepseek", "file": KEY, "nowhere": "${DEEPSEEK_API_KEY}"}[kept]
    assert written(home)["providers"]["deepseek"]["apiKey"] == value
    if kept == "keyring":
        assert json.loads((home / "ring.json").read_text()) == {"bubbles/deepseek": KEY}
    assert ("export DEEPSEEK_API_KEY" in shown) == (kept == "nowhere")


@pytest.mark.parametrize("key", [CONTROL_C, CONTROL_D])
@pytest.mark.parametrize(
    "question", ["a key [1] ", "see it answer? [Y/n] ", "all the same? [other] ", "[local_isolated] "]
)
async def test_leaving_at_any_question_writes_nothing(home: Path, key: str, question: str) -> None:
    async with local_server(ollama("m:1b"), refusal=(500, "down") if "same" in question else None) as server:
        said = own(server)
        del said["tools"]
        before = have(home, **({} if "key" in question else said))
        async with onboarding(home, OLLAMA_HOST=server.host) as person:
            await person.sees("[K/r]")
            person.types("\n")
            for asked in dict.fromkeys((*([] if "key" in question else ["see it answer? [Y/n] "]), question)):
                await person.sees(asked)
                if asked != question:
                    person.types("\n")
            person.types(key)
            await person.sees("Nothing was written.\n")
            assert await person.leaves() == 130
            assert b"Traceback" not in person.raw
        assert config(home).read_bytes() == before
        assert [path.name for path in config(home).parent.iterdir()] == ["config.json"]


async def test_ctrl_c_while_the_model_is_asked_writes_nothing(home: Path) -> None:
    async with local_server({}, holds=True) as server:
        before = have(home, **own(server))
        async with onboarding(home) as person:
            await keeps(person)
            async with asyncio.timeout(20):
                await server.held.wait()
            person.types(CONTROL_C)
            await person.sees("Nothing was written.")
            assert await person.leaves() == 130
    assert config(home).read_bytes() == before


@pytest.mark.req("SEC-01")
@pytest.mark.parametrize(
    "tags",
    [
        b"x" * (3 << 20),
        b"[" * 100_000,
        b"\xff\xfe{",
        b'{"models": "many"}',
        b'{"models": [1, null, {"name": 7}, {"name": "a\\u001b[2Jb"}, {"name": "${A_KEY}"}, {"name": ""}]}',
        302,
        401,
    ],
    ids=["huge", "deep", "binary", "other", "names", "redirect", "refused"],
)
async def test_whatever_listens_there_is_survived_and_offers_nothing(home: Path, tags: bytes | int) -> None:
    paths = {"/api/tags": tags, "/v1/models": tags}
    async with local_server(paths) as server:
        there = {"OLLAMA_HOST": server.host, "BUBBLES_PROVIDERS__VLLM__BASE_URL": f"http://{server.host}/v1"}
        async with onboarding(home, **there) as person:
            await person.sees("No key is in the environment, and no Ollama or vLLM answers")
            assert b"Traceback" not in person.raw
        assert sorted(server.asked) == ["GET /api/tags", "GET /v1/models"]


async def test_a_server_that_never_answers_is_not_waited_for(home: Path) -> None:
    release = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        began = asyncio.get_running_loop().time()
        async with onboarding(home, OLLAMA_HOST=f"127.0.0.1:{port}") as person:
            await person.sees("No key is in the environment")
            assert asyncio.get_running_loop().time() - began < 8
        release.set()


def other_address() -> str:
    """Of this machine, by which another one could reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but 127.0.0.1")
        return str(probe.getsockname()[0])


@pytest.mark.req("SEC-01")
async def test_a_server_elsewhere_is_not_asked_before_it_is_chosen(home: Path) -> None:
    far = local_server(ollama("far:1b", tools=("far:1b",)), at=other_address())
    async with far as server, onboarding(home, OLLAMA_HOST=server.host) as person:
        await person.sees(f"1  ollama  at {server.host}; not asked yet")
        await person.sees("a key [1] ")
        assert server.asked == []
        person.types("1\n")
        await person.sees(f"1  ollama/far:1b  at {server.host}; calls tools")
        await person.sees("a key [1] ")
        assert server.asked == ["GET /api/tags", "POST /api/show"]
        person.types(CONTROL_C)
        assert await person.leaves() == 130


async def test_a_vllm_says_its_models_and_how_much_they_take(home: Path) -> None:
    models = {"/v1/models": {"object": "list", "data": [{"id": "Qwen/Qwen3.8-27B", "max_model_len": 12_000}]}}
    async with local_server(models) as server:
        async with onboarding(home, BUBBLES_PROVIDERS__VLLM__BASE_URL=f"http://{server.host}/v1") as person:
            await person.sees("1  vllm/Qwen/Qwen3.8-27B  on this machine")
            await person.sees(WHICH)
            person.types("1\n")
            await person.sees("12,000 tokens are few for an assistant with tools")
            await ends(person, home)
        assert server.model.requests[0]["model"] == "Qwen/Qwen3.8-27B"
    assert written(home)["agents"]["defaults"] == {"model": "vllm/Qwen/Qwen3.8-27B", "contextTokens": 12_000}


async def test_a_second_run_checks_what_is_set_and_changes_nothing(home: Path) -> None:
    async with local_server({}) as server:
        before = have(home, **own(server))
        async with onboarding(home) as person:
            await keeps(person)
            await person.sees("custom/m answered in")
            await person.sees("local, as it is set.")
            await person.sees("bubbles agent")
            assert await person.leaves() == 0
        assert server.asked == ["POST /v1/chat/completions"]
    assert config(home).read_bytes() == before


@pytest.mark.parametrize("backend", ["bubblewrap", "docker"])
async def test_a_sandbox_that_is_set_and_cannot_be_used_is_told_and_another_proposed(home: Path, backend: str) -> None:
    async with local_server({}) as server:
        have(home, **own(server) | {"tools": {"sandbox": {"backend": backend}}})
        async with onboarding(home) as person:
            await person.sees("[K/r]")
            person.types("\n")
            await person.sees("[Y/n]")
            person.types("n\n")
            await person.sees(f"{backend} is set, and cannot be used:")
            await ends(person, home)
        assert server.asked == []
    assert written(home)["tools"]["sandbox"]["backend"] == "local_isolated"


async def test_a_second_run_repairs_what_is_missing_and_keeps_the_rest(home: Path) -> None:
    have(home, agents={"defaults": {"model": "gpt-5", "provider": "openai", "maxRetries": 5}}, retired={"a": 1})
    async with local_server({}) as server, onboarding(home, **vendor(server)) as person:
        await person.sees("[K/r]")
        person.types("k\n")
        await person.sees(WHICH)
        person.types("1\n")
        await person.sees("answered in")
        await ends(person, home)
    assert written(home) == {
        "agents": {"defaults": {"model": "deepseek/deepseek-flash", "maxRetries": 5}},
        "retired": {"a": 1},
        "providers": {"deepseek": {"apiKey": "${DEEPSEEK_API_KEY}"}},
        "tools": {"sandbox": {"backend": "local_isolated"}},
    }


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_reset_happens_when_all_is_agreed_and_forgets_what_was_set(home: Path, leaves: bool) -> None:
    before = have(home, agents={"defaults": {"model": "custom/old"}}, providers={"custom": {"apiKey": KEY}})
    async with onboarding(home) as person:
        await person.sees("[K/r]")
        person.types("r\n")
        offered = await person.sees("Enter goes on without a model: ")
        assert "custom" not in offered
        person.types(CONTROL_C if leaves else "\n")
        if leaves:
            await person.sees("Nothing was written.")
            assert await person.leaves() == 130
        else:
            await ends(person, home)
            assert written(home)["providers"] == {}
    copies = [path.read_bytes() for path in config(home).parent.glob("config.json.backup-*")]
    assert copies == ([] if leaves else [before])
    assert (config(home).read_bytes() == before) == leaves


@pytest.mark.parametrize("argv", [("--yes",), ("--model", "m", "--provider", "custom"), ("--refresh",), ("--json",)])
async def test_flags_that_decide_leave_nothing_to_talk_about(home: Path, argv: tuple[str, ...]) -> None:
    async with local_server(ollama("m:1b")) as server, onboarding(home, *argv, OLLAMA_HOST=server.host) as person:
        assert await person.leaves() == 0
        assert server.asked == []
    assert config(home).exists()


async def test_the_rules_of_codex_are_counted(home: Path) -> None:
    rules = home / ".codex" / "rules"
    rules.mkdir(parents=True)
    (rules / "default.rules").write_text(
        'prefix_rule(pattern=["npm", "publish"])\nprefix_rule(pattern=["git", "push"], decision="prompt")\nwhat\n'
    )
    (rules / "more.rules").write_text('prefix_rule(pattern=["dd"], decision="forbidden")\n')
    async with onboarding(home) as person:
        await person.sees("Enter goes on without a model:")
        person.types("\n")
        shown = await ends(person, home)
    assert "Found 3 rules in 2 files of Codex" in shown
    assert "3 are honoured (1 allow, 1 prompt, 1 forbidden); there is a warning on 1 statement" in shown
    assert " rules list' shows them." in shown


@pytest.mark.needs("bubblewrap")
@pytest.mark.req("SBX-09")
async def test_the_strongest_sandbox_is_measured_before_it_is_proposed(home: Path) -> None:
    (home.parent / "bin" / "bwrap").symlink_to(str(shutil.which("bwrap")))
    async with onboarding(home) as person:
        await person.sees("Enter goes on without a model:")
        person.types("\n")
        shown = await person.sees(WHERE)
        assert "ways out are closed" in shown.partition("bubblewrap")[2]
        assert "bubblewrap: commands see the session's folders" in shown
        assert await person.sees("[bubblewrap]")
        person.types("\n")
        await person.sees("bubbles agent")
        assert await person.leaves() == 0
    assert written(home)["tools"]["sandbox"]["backend"] == "bubblewrap"


async def test_a_service_manager_that_ends_it_leaves_nothing(home: Path) -> None:
    async with local_server(ollama("m:1b")) as server, onboarding(home, OLLAMA_HOST=server.host) as person:
        await person.sees(WHICH)
        person.sends(signal.SIGTERM)
        assert await person.leaves() != 0
    assert list(home.iterdir()) == []


async def test_an_odd_variable_is_told_and_what_can_be_made_is_made(home: Path) -> None:
    async with onboarding(home, BUBBLES_AGENTS__CONCURRENCY="many") as person:
        await person.sees('agents.concurrency is "many"')
        assert await person.leaves() == 0
    assert config(home).exists()
