"""``bubbles sandbox`` as a person or a script runs it: a process, its output, its exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_backends.probes.catalog import PROBES
from tests.places import HARD, REAL

pytestmark = [pytest.mark.req("SBX-10", "CLI-01"), pytest.mark.timeout(60)]

Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "bubbles-home"


@pytest.fixture
def environment(tmp_path: Path, data: Path) -> dict[str, str]:
    person = tmp_path / "person"
    person.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BUBBLES_")}
    return {**kept, "HOME": str(person), "BUBBLES_HOME": str(data), "SECRET_CANARY": "do-not-leak"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture
def bubbles(environment: dict[str, str], project: Path) -> Run:
    def run(*argv: str, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
        line = [sys.executable, "-m", "bubbles", *argv]
        return subprocess.run(
            line, input=stdin, capture_output=True, cwd=project, env={**environment, **env}, timeout=50, check=False
        )

    return run


def sentence(done: subprocess.CompletedProcess[bytes]) -> str:
    """The one complaint of a failed run."""
    text = done.stderr.decode()
    assert "Traceback" not in text
    lines = [line for line in text.splitlines() if not line.startswith("bubbles: Commands in")]
    assert len(lines) == 1, text
    return lines[0]


@pytest.mark.parametrize("backend", REAL)
def test_exec_streams_output_and_passes_the_exit_status_on(bubbles: Run, project: Path, backend: str) -> None:
    done = bubbles("sandbox", "exec", "-b", backend, "--", "sh", "-c", "pwd; echo oops >&2; exit 7")
    assert done.returncode == 7, done.stderr
    assert done.stdout.decode() == f"{project}\n"
    assert b"oops\n" in done.stderr


@pytest.mark.parametrize("backend", REAL)
def test_exec_passes_stdin_on_when_asked(bubbles: Run, backend: str) -> None:
    data = bytes(range(256)) * 2000
    assert bubbles("sandbox", "exec", "-b", backend, "-i", "--", "cat", stdin=data).stdout == data
    assert bubbles("sandbox", "exec", "-b", backend, "--", "cat", stdin=data).stdout == b""


@pytest.mark.parametrize("backend", REAL)
def test_exec_reports_time_limits_and_signals_as_shells_do(bubbles: Run, backend: str) -> None:
    late = bubbles("sandbox", "exec", "-b", backend, "--timeout", "0.5", "--", "sh", "-c", "echo first; sleep 60")
    assert (late.returncode, late.stdout) == (124, b"first\n")
    assert b"--timeout" in late.stderr
    killed = bubbles("sandbox", "exec", "-b", backend, "--", "sh", "-c", "kill -TERM $$")
    assert killed.returncode == 143


@pytest.mark.parametrize("backend", REAL)
@pytest.mark.req("SEC-03", "SBX-03")
def test_session_keeps_its_home_and_nothing_of_ours_leaks(bubbles: Run, data: Path, backend: str) -> None:
    script = "cat ~/.kept 2>/dev/null; echo again > ~/.kept; env"
    if backend == "local":
        pytest.skip("local has the person's own home")
    first = bubbles("sandbox", "exec", "-b", backend, "-s", "alice", "--", "sh", "-c", script)
    second = bubbles("sandbox", "exec", "-b", backend, "-s", "alice", "--", "sh", "-c", script)
    other = bubbles("sandbox", "exec", "-b", backend, "-s", "bob", "--", "sh", "-c", script)
    assert not first.stdout.startswith(b"again")
    assert second.stdout.startswith(b"again")
    assert not other.stdout.startswith(b"again")
    assert b"do-not-leak" not in first.stdout + second.stdout
    assert (data / "session_homes" / "alice").stat().st_mode & 0o77 == 0


@pytest.mark.parametrize("backend", HARD)
@pytest.mark.req("SBX-04", "SBX-07")
def test_hard_sandbox_has_no_network_and_no_host(bubbles: Run, environment: dict[str, str], backend: str) -> None:
    secret = Path(environment["HOME"]) / "secret"
    secret.write_text("hidden")
    dial = "import socket; socket.create_connection(('192.0.2.1', 80), 3)"
    assert bubbles("sandbox", "exec", "-b", backend, "--", "python3", "-c", dial).returncode == 1
    assert bubbles("sandbox", "exec", "-b", backend, "--", "cat", str(secret)).returncode == 1


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (("exec",), "CMD"),
        (("exec", "--nonsense", "--", "true"), "--nonsense"),
        (("exec", "-b", "vm", "--", "true"), "'vm'"),
        (("exec", "-b", "local", "--timeout", "0", "--", "true"), "timeout"),
        (("exec", "-b", "local", "--timeout", "soon", "--", "true"), "soon"),
        (("exec", "-b", "local", "--root", "/etc", "--", "true"), "/etc"),
        (("exec", "-b", "local", "--root", "/does/not/exist", "--", "true"), "/does/not/exist"),
        (("exec", "-b", "local", "--session", "../x", "--", "true"), "../x"),
        (("exec", "-b", "local", "--network", "none", "--", "true"), "network"),
        (("exec", "-b", "local", "--network", "some", "--", "true"), "some"),
        (("exec", "-b", "local", "--allow", "example.org", "--", "true"), "allow"),
        (("exec", "-b", "bubblewrap", "--allow", "exa mple", "--", "true"), "exa mple"),
        (("rm",), "--left-over"),
        (("doctor", "--backend", "vm"), "'vm'"),
        (("image", "build", "--from", "debootstrap", "--base", "x"), "--base"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_two(bubbles: Run, argv: tuple[str, ...], named: str) -> None:
    done = bubbles("sandbox", *argv)
    assert done.returncode == 2, done.stderr
    assert named in sentence(done)


@pytest.mark.req("CFG-01")
def test_wrong_setting_is_one_sentence_and_status_two(bubbles: Run) -> None:
    done = bubbles("sandbox", "exec", "--", "true", BUBBLES_TOOLS__SANDBOX__NETWORK="sometimes")
    assert done.returncode == 2
    assert "sometimes" in sentence(done)
    done = bubbles("sandbox", "exec", "--", "true", BUBBLES_TOOLS__SANDBOX__BACKEND="vm")
    assert done.returncode == 2
    assert "vm" in sentence(done)


def test_a_key_of_a_provider_that_is_not_set_is_no_matter_of_a_sandbox(bubbles: Run, data: Path) -> None:
    data.mkdir(mode=0o700)
    config = data / "config.json"
    config.write_text('{"providers": {"openai": {"apiKey": "${NOT_THERE}"}}}')
    config.chmod(0o600)
    done = bubbles("sandbox", "exec", "-b", "local", "--", "true")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "NOT_THERE, which is not set" in bubbles("status").stdout.decode()


def test_missing_program_is_status_127(bubbles: Run) -> None:
    assert bubbles("sandbox", "exec", "-b", "local", "--", "no-such-program").returncode == 127


@pytest.mark.req("SBX-08")
@pytest.mark.parametrize("backend", ["docker"])
def test_absent_engine_is_one_sentence_with_the_mend(bubbles: Run, backend: str, tmp_path: Path) -> None:
    nowhere = f"unix://{tmp_path}/no.sock"
    done = bubbles("sandbox", "exec", "-b", backend, "--", "true", BUBBLES_TOOLS__SANDBOX__DOCKER__URL=nowhere)
    assert done.returncode == 1
    assert "no.sock" in sentence(done)


def test_absent_bwrap_is_one_sentence_with_the_mend(bubbles: Run, tmp_path: Path) -> None:
    done = bubbles("sandbox", "exec", "-b", "bubblewrap", "--", "true", PATH=str(tmp_path))
    assert done.returncode == 1
    assert "install" in sentence(done)


def test_reader_that_stops_ends_the_command(environment: dict[str, str], project: Path) -> None:
    line = f"{sys.executable} -m bubbles sandbox exec -b local -- yes | head -n 2"
    done = subprocess.run(line, shell=True, capture_output=True, cwd=project, env=environment, timeout=30, check=False)
    assert done.stdout == b"y\ny\n"
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("backend", REAL)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_interrupted_command_ends_with_all_it_started(
    environment: dict[str, str], project: Path, data: Path, backend: str, number: signal.Signals
) -> None:
    argv = [sys.executable, "-m", "bubbles", "sandbox", "exec", "-b", backend]
    mine = f".{os.getpid():07}"  # as long, and nobody else's
    argv += ["--", "sh", "-c", f"setsid sleep 4321{mine} & echo up; sleep 4322{mine}"]
    with subprocess.Popen(
        argv, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(number)
        _, complaints = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"Traceback" not in complaints
    assert not sleepers(mine)
    assert not list((data / "run").glob("*/sandbox.json"))


def sleepers(fraction: str) -> list[Path]:
    """Processes of this machine that sleep for some seconds and this fraction of one."""
    found = ((path, _read(path).split(b"\0")) for path in Path("/proc").glob("[0-9]*/cmdline"))
    return [path for path, words in found if words[0] == b"sleep" and words[1].endswith(fraction.encode())]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("backend", REAL)
@pytest.mark.req("SBX-05")
def test_killed_controller_leaves_nothing_that_lists_or_stays(
    bubbles: Run, environment: dict[str, str], project: Path, backend: str
) -> None:
    argv = [sys.executable, "-m", "bubbles", "sandbox", "exec", "-b", backend, "-s", "killed"]
    mine = f".{os.getpid():07}"
    argv += ["--", "sh", "-c", f"setsid sleep 5321{mine} & echo up; sleep 5322{mine}"]
    with subprocess.Popen(argv, cwd=project, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        listed = json.loads(bubbles("sandbox", "ls", "--json").stdout)["sandboxes"]
        assert [(box["session"], box["backend"], box["state"]) for box in listed] == [("killed", backend, "open")]
        refused = bubbles("sandbox", "rm", "killed")
        assert refused.returncode == 1
        assert f"process {process.pid}" in refused.stderr.decode()
        process.kill()
        process.wait()
    deadline = time.monotonic() + 10
    while sleepers(mine):
        assert time.monotonic() < deadline, "a command outlived its killed controller"
        time.sleep(0.05)
    assert bubbles("sandbox", "rm", "--left-over").returncode == 0
    assert json.loads(bubbles("sandbox", "ls", "--json").stdout)["sandboxes"] == []
    if backend != "local":
        assert bubbles("sandbox", "rm", "--home", "killed").returncode == 0
        assert json.loads(bubbles("sandbox", "ls", "--json").stdout)["homes"] == []


def test_ls_of_nothing_says_so(bubbles: Run) -> None:
    done = bubbles("sandbox", "ls")
    assert done.returncode == 0
    assert b"No sandbox is open" in done.stdout


@pytest.mark.needs("docker")
def test_image_ls_names_the_image(bubbles: Run, sandbox_image: str) -> None:
    names = [tag for one in json.loads(bubbles("sandbox", "image", "ls", "--json").stdout) for tag in one["tags"]]
    assert sandbox_image in names


@pytest.mark.slow
@pytest.mark.req("SBX-09")
def test_doctor_of_local_prints_json(bubbles: Run) -> None:
    done = bubbles("sandbox", "doctor", "-b", "local", "--json")
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    assert report["ok"] is True
    assert len(report["backends"][0]["probes"]) == len(PROBES)


@pytest.mark.req("SBX-09")
def test_doctor_says_why_a_backend_is_unusable_and_fails(bubbles: Run, tmp_path: Path) -> None:
    argv = ("sandbox", "doctor", "-b", "bubblewrap")
    done = bubbles(*argv, BUBBLES_TOOLS__SANDBOX__BACKEND="bubblewrap", PATH=str(tmp_path))
    assert done.returncode == 1
    text = done.stdout.decode()
    assert "bubblewrap (configured)  not usable" in text
    assert "install" in text
    assert "\x1b" not in text  # not a terminal: no colours
