"""Docker sandboxes for an ordinary user who may use the engine, and for one who may not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.as_tester import directory_of_tester, run_as_tester

pytestmark = [pytest.mark.needs("docker", "tester"), pytest.mark.req("SBX-05")]

CODE = """
import asyncio, json, os, sys
from pathlib import Path
from sandbox_backends.contract import BackendSettings, ExecRequest, Limits, Root, SandboxSpec
from sandbox_backends.docker import DockerBackend, list_containers, reap
from sandbox_backends.errors import SandboxError
from sandbox_backends.owner import Owner, records

base, image, transport = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
for name in ("data", "project", "person"):
    (base / name).mkdir()
settings = BackendSettings(data_dir=base / "data", person_home=base / "person", docker_image=image)
owner = Owner(settings.data_dir)
backend = DockerBackend(settings, owner, transport)
spec = SandboxSpec(session="t", roots=(Root(path=base / "project"),), home=base / "data/session_homes/t",
                   limits=Limits(memory_bytes=96 << 20, pids=64))

async def main():
    probe = await backend.probe()
    told = {"usable": probe.usable, "reason": probe.reason, "remedy": probe.remedy}
    if not probe.usable:
        try:
            async with backend.open(spec):
                pass
        except SandboxError as error:
            told["error"] = str(error)
        return told
    async with backend.open(spec) as session:
        await session.write_file("a/b.txt", b"x")
        script = "id -u; id -g; echo y > c.txt; echo key > ~/login; exec python3 -c 'bytearray(300 << 20)'"
        result = await session.exec(ExecRequest(argv=("sh", "-c", script), timeout_s=10))
        told.update(outcome=result.outcome, stdout=result.stdout.decode(), warnings=session.warnings)
        told["alive"] = [box.alive for box in await list_containers(settings)]
        told["reaped"] = await reap(settings, owner)
    told["left"] = len(await list_containers(settings)) + len(records(settings.data_dir))
    return told

print(json.dumps(asyncio.run(main())))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    with directory_of_tester() as made:
        yield made


@pytest.mark.parametrize("transport", ["unix", "attach"])
def test_ordinary_user_has_all_that_root_has(place: Path, sandbox_image: str, transport: str) -> None:
    """B022."""
    group = os.stat("/var/run/docker.sock").st_gid
    told = json.loads(run_as_tester(CODE, str(place), sandbox_image, transport, groups=(group,)).stdout)
    owner = place.stat()
    assert told == {
        "usable": True,
        "reason": "",
        "remedy": "",
        "outcome": "oom",
        "stdout": f"{owner.st_uid}\n{owner.st_gid}\n",
        "warnings": [],
        "alive": [True],
        "reaped": [],
        "left": 0,
    }
    for name in ("project/a/b.txt", "project/c.txt", "data/session_homes/t/login"):
        assert (place / name).stat().st_uid == owner.st_uid


def test_user_who_may_not_use_the_engine_is_told_how_to(place: Path, sandbox_image: str) -> None:
    told = json.loads(run_as_tester(CODE, str(place), sandbox_image, "auto").stdout)
    assert not told["usable"]
    assert "may not use" in told["reason"]
    assert "usermod -aG docker" in told["remedy"]
    assert told["remedy"] in told["error"]


def test_proxies_and_logins_of_docker_s_own_settings_stay_outside(place: Path, sandbox_image: str) -> None:
    """The docker program would put these proxies, with their passwords, into every container."""
    (place / "docker").mkdir()
    secret = {"httpProxy": "http://me:s3cret@proxy:1", "httpsProxy": "http://me:s3cret@proxy:1"}
    (place / "docker" / "config.json").write_text(json.dumps({"proxies": {"default": secret}}))
    code = f"import os; os.environ['DOCKER_CONFIG'] = {str(place / 'docker')!r}\n" + CODE.replace("id -u; id -g", "env")
    group = os.stat("/var/run/docker.sock").st_gid
    told = json.loads(run_as_tester(code, str(place), sandbox_image, "auto", groups=(group,)).stdout)
    assert "PATH=" in told["stdout"]
    assert "s3cret" not in told["stdout"]
