"""``bubbles mcp serve`` that does not begin: one sentence, a status, and never a weaker sandbox."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mcp_served import INITIALIZE, REPOSITORY, Ground, make_ground

NO_ENGINE = "unix:///nonexistent/engine.sock"


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return make_ground(tmp_path, "bubblewrap", BUBBLES_TOOLS__SANDBOX__DOCKER__URL=NO_ENGINE)


async def started(ground: Ground, *options: str, stdin: bytes = b"", **environment: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bubbles", "mcp", "serve", *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ground.project,
        env={**ground.environment, **environment},
    )
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    assert "Traceback" not in err.decode()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.req("SBX-08")
@pytest.mark.parametrize("weak", ["local", "local_isolated"])
async def test_less_than_a_hard_sandbox_is_refused(ground: Ground, weak: str) -> None:
    status, out, err = await started(ground, "--backend", weak)
    assert (status, out) == (1, "")
    assert f"The sandbox {weak} does not hold files and network" in err
    assert "--backend bubblewrap or docker" in err
    assert "bubbles sandbox doctor" in err
    assert err.count("\n") == 1


async def test_a_wrong_name_is_wrong_usage(ground: Ground) -> None:
    status, _, err = await started(ground, "--backend", "bubblewarp")
    assert status == 2
    assert "take one of docker, bubblewrap" in err
    status, _, err = await started(ground, BUBBLES_TOOLS__SANDBOX__BACKEND="bubblewarp")
    assert status == 2
    assert "bubblewarp" in err


@pytest.mark.req("SBX-08")
async def test_a_hard_sandbox_that_does_not_work_is_not_replaced(ground: Ground) -> None:
    for options, configured in ((("--backend", "docker"), "bubblewrap"), ((), "docker")):
        status, _, err = await started(ground, *options, BUBBLES_TOOLS__SANDBOX__BACKEND=configured)
        assert status == 1
        assert "The sandbox docker cannot be used:" in err
        assert err.count("\n") == 1


@pytest.mark.needs("bubblewrap")
async def test_where_the_configured_one_is_weak_the_strongest_that_works_is_taken(ground: Ground) -> None:
    asked = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}).encode() + b"\n"
    status, out, err = await started(ground, stdin=asked, BUBBLES_TOOLS__SANDBOX__BACKEND="local")
    assert (status, err) == (0, "")
    assert "inside a sandbox (bubblewrap, network: none)" in json.loads(out)["result"]["instructions"]


@pytest.mark.req("SBX-08")
async def test_where_no_hard_sandbox_works_nothing_is_offered(ground: Ground) -> None:
    status, out, err = await started(ground, PATH="/nonexistent")
    assert (status, out) == (1, "")
    assert "No hard sandbox works here" in err
    assert "apt-get install bubblewrap" in err
    assert "bubbles sandbox doctor" in err
    assert err.count("\n") == 1


@pytest.mark.needs("bubblewrap")
@pytest.mark.req("SBX-08")
@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("person", "is or holds your home directory"),
        ("data", "is Bubbles' own"),
        ("data/sessions/other", "is Bubbles' own"),
        ("missing", "is not a directory"),
        ("/etc", "is a system directory"),
        ("/", "is a system directory"),
        ("project/notes.txt", "is not a directory"),
    ],
)
async def test_a_root_that_no_sandbox_opens_is_refused_at_once(ground: Ground, root: str, why: str) -> None:
    (ground.data_dir / "sessions" / "other").mkdir(parents=True)
    status, out, err = await started(ground, "--backend", "bubblewrap", "--root", str(ground.base / root))
    assert status in (1, 2)
    assert out == ""
    assert why in err
    assert err.count("\n") == 1


@pytest.mark.needs("bubblewrap")
@pytest.mark.req("SESS-07", "DEC-10")
@pytest.mark.parametrize(
    ("link", "target", "what"),
    [
        ("person/.codex/rules", "project/codex", "Rules"),
        ("person/.codex/rules/one.rules", "project/one.rules", "Rules"),
        ("data/rules", "project", "Rules"),
        ("data/config.json", "project/bubbles.json", "Settings"),
        ("data/config.json", "project/through/config.json", "Settings"),
    ],
)
async def test_no_root_holds_what_says_what_may_run(ground: Ground, link: str, target: str, what: str) -> None:
    """File tools never ask inside a root: what wrote there would allow itself everything, in every session."""
    outside = ground.base / "elsewhere"
    outside.mkdir()
    (outside / "config.json").write_text("{}")
    (ground.project / "through").symlink_to(outside)
    (ground.base / link).parent.mkdir(parents=True, exist_ok=True)
    (ground.base / link).symlink_to(ground.base / target)
    status, out, err = await started(ground, "--root", str(ground.project))
    assert (status, out) == (1, "")
    assert f"{what} are read from {ground.base / link}, which lies or leads in the root {ground.project}" in err
    assert err.splitlines()[-1].endswith("keep that file elsewhere.")

    agent = (sys.executable, "-m", "bubbles", "agent", "-m", "hi", "--project", str(ground.project))
    ran = await asyncio.to_thread(
        subprocess.run, agent, env=ground.environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert f"{what} are read from" in ran.stderr


@pytest.mark.needs("bubblewrap")
async def test_a_home_of_codex_in_the_root_is_refused(ground: Ground) -> None:
    for home in (ground.project, ground.project / "not" / "there"):
        status, _, err = await started(ground, "--root", str(ground.project), CODEX_HOME=str(home))
        assert status == 1
        assert f"Rules are read from {home / 'rules'}" in err


@pytest.mark.needs("bubblewrap")
async def test_one_root_in_another_is_refused(ground: Ground) -> None:
    (ground.project / "in").mkdir()
    for inner in (ground.project / "in", ground.project):
        status, _, err = await started(ground, "--root", str(ground.project), "--root", str(inner))
        assert status == 2
        assert str(inner) in err


def test_it_does_without_standard_input_only_by_a_sentence(ground: Ground) -> None:
    shell = f'exec {sys.executable} -m bubbles mcp serve --backend bubblewrap "$@"'
    for closed, why in (("<&-", "Standard input is closed"), (">&-", "Standard output is closed")):
        done = subprocess.run(
            ["bash", "-c", f"{shell} {closed}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=ground.project,
            env={**ground.environment, "PYTHONPATH": str(REPOSITORY)},
            timeout=15,
            check=False,
        )
        assert done.returncode == 1
        assert why in done.stderr
        assert done.stdout == ""
