"""``bubbles onboard`` as a person or a script runs it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bubbles.cli import main
from bubbles.providers.registry import REGISTRY, names

pytestmark = [pytest.mark.req("CLI-01", "CFG-01"), pytest.mark.timeout(60)]

Run = Callable[..., subprocess.CompletedProcess[str]]
CANARY = "hunter2-canary"
KEY_LIKE = "sk-proj-aBcDeF0123456789aBcDeF"

OLD = (
    '{ "providers" :{"openai":{ "apiKey":"' + CANARY + '", "baseUrl":"https://${HOST_OF}/v1"}},\r\n'
    '\t"agents": {"defaults": {\t"max_retries" : 3, "model":"old" }}, "retired": {"a": [1,2 ,3]}}\r\n'
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def bubbles(data: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command line in this process: starting Python for each call would take most of the time."""
    for name in [name for name in os.environ if name.startswith("BUBBLES_") or name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(data.parent))
    monkeypatch.setenv("BUBBLES_HOME", str(data))

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["bubbles", "onboard", *argv])
        status = main()
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(argv, status, out, err)

    return run


def config(data: Path) -> Path:
    return data / "config.json"


def old(data: Path, text: str = OLD) -> bytes:
    """An existing configuration, with a session beside it."""
    data.mkdir(mode=0o700)
    (data / "sessions" / "work").mkdir(parents=True)
    (data / "sessions" / "work" / "SOUL.md").write_text("me")
    config(data).touch(mode=0o600)
    config(data).write_bytes(text.encode())
    return text.encode()


def printed(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def one_sentence(done: subprocess.CompletedProcess[str], status: int) -> str:
    assert done.returncode == status, done.stderr
    (line,) = done.stderr.splitlines()
    return line


def tree(data: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(data)): path.read_bytes() if path.is_file() else None for path in sorted(data.rglob("*"))
    }


@pytest.mark.req("SEC-03")
def test_b121_a_fresh_machine_gets_folders_and_a_small_file_that_only_its_owner_reads(bubbles: Run, data: Path) -> None:
    done = bubbles()
    assert done.returncode == 0
    assert done.stderr == ""
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (data, *data.iterdir())}
    assert modes == {
        "data": 0o700,
        "sessions": 0o700,
        "session_state": 0o700,
        "rules": 0o700,
        "config.json": 0o600,
    }
    assert json.loads(config(data).read_text()) == {"agents": {"defaults": {}}, "providers": {}}
    assert "1. Say which model to use" in done.stdout
    assert "2. local is no boundary: run 'bubbles onboard --sandbox bubblewrap'" in done.stdout
    assert "3. Talk to your assistant: bubbles agent" in done.stdout


def test_a_second_run_changes_nothing_and_says_so(bubbles: Run, data: Path) -> None:
    argv = ("--model", "openai/gpt-5", "--api-key-env", "OPENAI_API_KEY", "--sandbox", "local")
    bubbles(*argv)
    before, times = tree(data), config(data).stat()
    for again in ((), argv, ("--refresh",), ("--yes", *argv)):
        done = bubbles(*again)
        assert done.returncode == 0
        assert f"Nothing to change: {config(data)}" in done.stdout
    assert tree(data) == before
    assert (config(data).stat().st_ino, config(data).stat().st_mtime_ns) == (times.st_ino, times.st_mtime_ns)


@pytest.mark.req("SEC-03")
def test_flags_write_the_settings_they_name_and_the_key_stays_a_reference(
    bubbles: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", CANARY)
    done = bubbles(
        *("--model", "m1", "--provider", "custom", "--api-key-env", "MY_KEY"),
        *("--base-url", "http://localhost:1/v1", "--sandbox", "bubblewrap", "--json"),
    )
    found = printed(done)
    assert (found["action"], found["backup"], found["warnings"]) == ("created", None, [])
    assert (found["problem"], found["next"]) == (None, ["Talk to your assistant: bubbles agent"])
    assert json.loads(config(data).read_text()) == {
        "agents": {"defaults": {"model": "m1", "provider": "custom"}},
        "providers": {"custom": {"apiKey": "${MY_KEY}", "baseUrl": "http://localhost:1/v1"}},
        "tools": {"sandbox": {"backend": "bubblewrap"}},
    }
    assert CANARY not in done.stdout + done.stderr + config(data).read_text()


def test_b107_b110_b111_refresh_keeps_every_byte_but_the_named_setting_and_reports_what_is_retired(
    bubbles: Run, data: Path
) -> None:
    old(data)
    done = bubbles("--refresh", "--model", "new")
    assert done.returncode == 0
    assert config(data).read_bytes() == OLD.replace('"old"', '"new"').encode()
    assert "retired is not a setting of this version" in done.stderr
    assert "HOST_OF, which is not set" in done.stderr
    assert (data / "sessions" / "work" / "SOUL.md").read_text() == "me"


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_b118_no_key_is_in_what_a_change_prints(bubbles: Run, data: Path, more: tuple[str, ...]) -> None:
    old(data)
    done = bubbles("--model", "new", *more)
    assert done.returncode == 0
    assert CANARY not in done.stdout + done.stderr


def test_without_a_terminal_an_existing_configuration_is_kept_unasked(bubbles: Run, data: Path) -> None:
    before = old(data)
    done = bubbles()
    assert done.returncode == 0
    assert config(data).read_bytes() == before
    assert "[k]eep" not in done.stdout


def test_b107_reset_copies_the_old_file_first_and_touches_no_session(bubbles: Run, data: Path) -> None:
    before = old(data)
    config(data).chmod(0o644)
    backups = [printed(bubbles("--reset", "--model", f"m{number}", "--json"))["backup"] for number in range(3)]
    assert all(re.fullmatch(r".*/config\.json\.backup-\d{8}-\d{6}(-\d)?", backup) for backup in backups)
    assert len(set(backups)) == 3
    first, second, third = map(Path, backups)
    assert first.read_bytes() == before
    assert json.loads(second.read_text())["agents"]["defaults"]["model"] == "m0"
    assert json.loads(third.read_text())["agents"]["defaults"]["model"] == "m1"
    for path in (first, config(data)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(config(data).read_text()) == {"agents": {"defaults": {"model": "m2"}}, "providers": {}}
    assert (data / "sessions" / "work" / "SOUL.md").read_text() == "me"


@pytest.mark.parametrize(
    "damage", [b"{", b"\xff\xfe", b'{"agents": {"concurrency": 0}}', b"{}" + b" " * (1 << 20), b""]
)
def test_a_damaged_file_is_refused_with_the_way_out_and_kept_byte_for_byte_by_reset(
    bubbles: Run, data: Path, damage: bytes
) -> None:
    old(data)
    config(data).write_bytes(damage)
    for argv in ((), ("--refresh",), ("--yes", "--model", "m"), ("--json",)):
        done = bubbles(*argv)
        assert "bubbles onboard --reset" in one_sentence(done, 2)
        assert config(data).read_bytes() == damage
    backup = printed(bubbles("--reset", "--json"))["backup"]
    assert Path(backup).read_bytes() == damage
    assert json.loads(config(data).read_text()) == {"agents": {"defaults": {}}, "providers": {}}


def test_a_reset_that_would_not_be_valid_leaves_everything(bubbles: Run, data: Path) -> None:
    before = old(data)
    assert "base_url" in one_sentence(bubbles("--reset", "--provider", "custom", "--base-url", "localhost"), 2)
    assert config(data).read_bytes() == before
    assert not list(data.glob("*.backup-*"))


def test_a_linked_configuration_stays_a_link(bubbles: Run, data: Path, tmp_path: Path) -> None:
    old(data)
    there = tmp_path / "dotfiles.json"
    config(data).rename(there)
    config(data).symlink_to(there)
    bubbles("--model", "new")
    assert there.read_bytes() == OLD.replace('"old"', '"new"').encode()
    backup = printed(bubbles("--reset", "--json"))["backup"]
    assert Path(backup).parent == data
    assert config(data).is_symlink()
    assert "agents" in json.loads(there.read_text())


def test_b112_other_files_of_the_directory_are_not_touched(bubbles: Run, data: Path) -> None:
    old(data)
    (data / ".env").write_text("# mine\nMY_VARIABLE=1\n")
    before = {name: held for name, held in tree(data).items() if name != "config.json"}
    bubbles("--model", "new")
    bubbles("--reset")
    after = tree(data)
    assert {name: after[name] for name in before} == before


@pytest.mark.req("SEC-03")
def test_a_configuration_that_others_can_read_is_closed_to_them(bubbles: Run, data: Path) -> None:
    old(data)
    config(data).chmod(0o644)
    data.chmod(0o755)
    done = bubbles()
    assert "no longer can (mode 0600)" in done.stdout
    assert stat.S_IMODE(config(data).stat().st_mode) == 0o600
    assert f"chmod 700 {data}" in done.stderr


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--refresh", "--reset"), "exclude each other"),
        (("--provider", "opanai"), "take one of anthropic, openai"),
        (("--provider", "openai-codex", "--api-key-env", "A_KEY"), "openai_codex, which has no key: run 'bubbles prov"),
        (("--model", "github-copilot/gpt-5", "--api-key-env", "A_KEY"), "run 'bubbles provider login github_copilot'"),
        (
            ("--model", "anthropc/claude-x", "--api-key-env", "A_KEY"),
            "anthropc is no provider; did you mean anthropic?",
        ),
        (("--model", "opnai/gpt-5", "--base-url", "http://x"), "opnai is no provider; did you mean openai?"),
        (("--model", "someone/gpt-5", "--base-url", "http://x"), "add --provider"),
        (("--sandbox", "vm"), "--sandbox 'vm' is not known: take one of"),
        (("--api-key-env", "OPENAI_API_KEY"), "add --provider"),
        (("--base-url", "http://x"), "add --provider"),
        (("--model", ""), "--model"),
        (("--model", "a\nb"), "--model"),
        (("--provider", "openai", "--api-key-env", "not a name"), "the name of an environment variable"),
        (("--provider", "openai", "--api-key-env", KEY_LIKE), "the name of an environment variable"),
        (("--provider", "openai", "--base-url", f"https://me:{CANARY}@host"), "write ${VAR}"),
        (("--provider", "openai", "--base-url", "localhost"), "providers.openai.base_url"),
        (("--api-key", CANARY), "No such option"),
    ],
)
def test_wrong_usage_is_one_sentence_and_makes_no_configuration(
    bubbles: Run, data: Path, argv: tuple[str, ...], says: str
) -> None:
    done = bubbles(*argv)
    assert says in one_sentence(done, 2)
    assert CANARY not in done.stderr
    assert KEY_LIKE not in done.stderr
    assert not config(data).exists()


def test_every_provider_is_known_by_its_name(bubbles: Run, data: Path) -> None:
    for name in names():
        assert bubbles("--provider", name.upper()).returncode == 0
        assert json.loads(config(data).read_text())["agents"]["defaults"]["provider"] == name


@pytest.mark.req("PROV-03")
def test_every_provider_is_offered(bubbles: Run) -> None:
    offered = one_sentence(bubbles("--provider", "nobody"), 2)
    assert offered.rpartition("take one of ")[2].partition(": see")[0].split(", ") == list(REGISTRY)


@pytest.mark.req("PROV-03")
@pytest.mark.parametrize("argv", [("--model", "github-copilot/gpt-5"), ("--provider", "openai_codex", "--model", "m")])
def test_a_provider_by_login_needs_no_key_and_the_login_is_the_next_step(
    bubbles: Run, data: Path, argv: tuple[str, ...]
) -> None:
    found = printed(bubbles(*argv, "--sandbox", "local", "--json"))
    name = "openai_codex" if "openai_codex" in argv else "github_copilot"
    assert found["next"][0] == f"{name} needs a login, and there is none: run 'bubbles provider login {name}'."
    assert found["problem"] == found["next"][0]
    (data / "logins").mkdir()
    (data / "logins" / f"{name}.json").write_text("{}")
    found = printed(bubbles(*argv, "--json"))
    assert (found["problem"], found["next"]) == (None, ["Talk to your assistant: bubbles agent"])


@pytest.mark.req("PROV-02")
@pytest.mark.parametrize(
    ("argv", "first"),
    [
        (("--provider", "openai"), "Say which model to use"),
        (("--model", "gpt-5"), "export OPENAI_API_KEY and run 'bubbles onboard --provider openai --api-key-env OPENAI"),
        (("--model", "openai/x", "--api-key-env", "NO_KEY"), "export NO_KEY=…: the configuration takes the key from"),
        (("--model", "m", "--provider", "custom"), "run 'bubbles onboard --provider custom --base-url"),
        (("--model", "some-model"), "run 'bubbles onboard --provider NAME --api-key-env VARIABLE'"),
    ],
)
def test_where_no_turn_can_run_the_first_step_is_what_mends_that(
    bubbles: Run, data: Path, argv: tuple[str, ...], first: str
) -> None:
    found = printed(bubbles(*argv, "--json"))
    assert found["action"] == "created"
    assert found["problem"]
    assert first in found["next"][0]
    assert first in bubbles(*argv).stdout.partition("1. ")[2].splitlines()[0]
    assert config(data).exists()


def test_the_command_that_a_problem_names_mends_it(bubbles: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = printed(bubbles("--model", "gpt-5", "--sandbox", "local", "--json"))["problem"]
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    _, command, _ = problem.split("'")
    found = printed(bubbles(*command.split()[2:], "--json"))
    assert (found["problem"], found["next"]) == (None, ["Talk to your assistant: bubbles agent"])
    assert CANARY not in config(data).read_text()


def test_a_model_of_another_than_the_provider_that_was_set_is_told(
    bubbles: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("O_KEY", "A_KEY"):
        monkeypatch.setenv(name, CANARY)
    bubbles("--model", "gpt-5", "--provider", "openai", "--api-key-env", "O_KEY")
    found = printed(bubbles("--model", "anthropic/claude-x", "--api-key-env", "A_KEY", "--json"))
    assert "'bubbles onboard --provider anthropic'" in found["next"][0]
    assert "is set to" not in printed(bubbles("--provider", "anthropic", "--json"))["next"][0]


@pytest.mark.req("SBX-08")
def test_who_chose_no_sandbox_is_told_what_local_is(bubbles: Run) -> None:
    assert any("local is no boundary" in step for step in printed(bubbles("--json"))["next"])
    assert not any("local is no boundary" in step for step in printed(bubbles("--sandbox", "local", "--json"))["next"])
    assert not any("local is no boundary" in step for step in printed(bubbles("--json"))["next"])


async def test_the_shell_completes_providers_and_sandboxes(data: Path) -> None:
    cases = (("--provider", "op", {"openai", "openai_codex", "openrouter"}), ("--sandbox", "b", {"bubblewrap"}))
    for option, begun, expected in cases:
        program = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "bubbles"),
            stdout=asyncio.subprocess.PIPE,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(data.parent),
                "_BUBBLES_COMPLETE": "complete_bash",
                "COMP_WORDS": f"bubbles onboard {option} {begun}",
                "COMP_CWORD": "3",
            },
        )
        out, _ = await program.communicate()
        assert set(out.decode().split()) == expected


def test_the_provider_of_a_key_follows_from_the_model_or_from_the_file(bubbles: Run, data: Path) -> None:
    bubbles("--model", "deepseek/deepseek-chat")
    bubbles("--api-key-env", "D_KEY")
    bubbles("--model", "groq/llama", "--api-key-env", "G_KEY")
    bubbles("--provider", "vllm")
    bubbles("--base-url", "http://localhost:8000")
    assert json.loads(config(data).read_text())["providers"] == {
        "deepseek": {"apiKey": "${D_KEY}"},
        "groq": {"apiKey": "${G_KEY}"},
        "vllm": {"baseUrl": "http://localhost:8000"},
    }


def test_odd_variables_are_told_and_do_not_stop_it(bubbles: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUBBLES_AGENTS__DEFAULTS__MODEL", "other")
    monkeypatch.setenv("BUBBLES_AGENTS__CONCURRENCY", "many")
    done = bubbles("--model", "mine")
    assert done.returncode == 0
    assert "BUBBLES_AGENTS__DEFAULTS__MODEL is set, and counts instead" in done.stderr
    assert 'BUBBLES_AGENTS__CONCURRENCY: agents.concurrency is "many"' in done.stderr
    assert json.loads(config(data).read_text())["agents"]["defaults"]["model"] == "mine"


def test_a_place_that_cannot_be_written_is_one_sentence(
    bubbles: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "data", tmp_path / "file", Path("/proc/self/data")):
        monkeypatch.setenv("BUBBLES_HOME", str(place))
        said = one_sentence(bubbles(), 1)
        assert str(place) in said


@pytest.mark.parametrize(
    ("typed", "status", "resets"),
    [(b"\n", 0, False), (b"k\n", 0, False), (b"what\nr\n", 0, True), (b"\x04", 130, False)],
)
def test_at_a_terminal_it_asks_whether_to_keep_what_is_there(
    data: Path, tmp_path: Path, typed: bytes, status: int, resets: bool
) -> None:
    before = old(data)
    front, back = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BUBBLES_")}
    with subprocess.Popen(
        [sys.executable, "-m", "bubbles", "onboard"],
        stdin=back,
        stdout=back,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
        env={**kept, "HOME": str(tmp_path), "BUBBLES_HOME": str(data)},
        start_new_session=True,
    ) as child:
        os.close(back)
        try:
            shown = b""
            while b"[K/r] " not in shown:
                shown += os.read(front, 4096)
            os.write(front, typed)
            assert child.wait(50) == status
        finally:
            os.close(front)
            child.kill()
    backups = list(data.glob("config.json.backup-*"))
    assert (config(data).read_bytes() != before) == resets
    assert [path.read_bytes() for path in backups] == ([before] if resets else [])
