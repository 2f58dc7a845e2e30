"""``bubbles cron`` as a person uses it: jobs and heartbeats of all sessions, and a run by hand."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bubbles.bus import Address
from bubbles.cli import main
from bubbles.cron.contract import Job, Schedule, ScheduleKind
from bubbles.cron.store import JobStore
from bubbles.gateway.lock import gateway_lock
from tests.playback import Answer, Playback, piece, playing, refusal, said, stream, usage

pytestmark = [pytest.mark.req("CRON-01", "CLI-01"), pytest.mark.timeout(60)]

NONE_RUNS = "jobs run only while 'bubbles gateway' does"


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.status == 0, self.err
        return json.loads(self.out)

    @property
    def id(self) -> str:
        assert self.status == 0, self.err
        return self.out.split()[1]


Bubbles = Callable[..., Ran]


def environment(home: Path, url: str = "http://127.0.0.1:9") -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TZ": "Europe/Berlin",
        "BUBBLES_HOME": str(home / "data"),
        "BUBBLES_AGENTS__DEFAULTS__MODEL": "custom/some-model",
        "BUBBLES_PROVIDERS__CUSTOM__BASE_URL": f"{url}/v1",
        "BUBBLES_AGENTS__DEFAULTS__MAX_RETRIES": "0",
        "BUBBLES_TOOLS__SANDBOX__BACKEND": "local",
    }


@pytest.fixture
def bubbles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Bubbles:
    """The command line in this process: starting Python for each call would take most of the time."""
    there = environment(tmp_path)
    for name in os.environ.keys() - there.keys():
        monkeypatch.delenv(name)
    for name, value in there.items():
        monkeypatch.setenv(name, value)

    def run(*argv: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["bubbles", *argv])
        status = main()
        return Ran(status, *capfd.readouterr())

    return run


def jobs(home: Path) -> tuple[Job, ...]:
    return asyncio.run(JobStore(home / "data").listing()).jobs


def rows(ran: Ran) -> list[list[str]]:
    """Of the table, its columns."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in ran.out.splitlines()]


def test_what_was_added_is_listed_with_when_and_whose_turn_it_begins(bubbles: Bubbles) -> None:
    assert bubbles("cron", "list").out == "There are no jobs: 'bubbles cron add' makes one.\n"
    cron = bubbles("cron", "add", "-m", "look at\nthe bread", "--cron", "0 9 * * 1-5", "--zone", "America/Vancouver")
    assert cron.out.startswith(f"Added {cron.id} (look at the bread): cron 0 9 * * 1-5 (America/Vancouver), next 20")
    assert NONE_RUNS in cron.err
    every = bubbles("cron", "add", "-m", "x", "--every", "2h", "--name", "News\x1b", "-s", "work", "--disabled")
    assert every.err == "", "what is off waits for no gateway"
    once = bubbles("cron", "add", "-m", "x", "--at", "2099-05-01T09:00", "--delete-after-run").id
    header, *listed = rows(bubbles("cron", "list"))
    assert header == ["ID", "NAME", "WHEN", "NEXT", "LAST", "SESSION", "TO", "STATE"]
    assert listed[1] == [every.id, "News⟨\\x1b⟩", "every 2h", "work", "history alone", "off"]
    assert listed[2][:3] == [once, "x", "once at 2099-05-01T09:00"]
    assert listed[2][3].startswith("2099-05-01 09:00 (in 2")
    assert listed[0][4:] == ["default", "history alone", "on"]


def test_scripts_get_the_jobs_as_they_are(bubbles: Bubbles) -> None:
    made = bubbles("cron", "add", "-m", "x", "--every", "30m", "--json").json
    found = bubbles("cron", "list", "--json").json
    assert found == {"gateway": False, "jobs": [made], "problems": []}
    assert made.pop("next_run")
    assert made == {
        "id": made["id"],
        "kind": "job",
        "name": "x",
        "message": "x",
        "schedule": {"kind": "every", "text": "30m", "zone": None},
        "session": "default",
        "to": None,
        "delete_after_run": False,
        "enabled": True,
        "last_run": None,
        "last_outcome": None,
        "failures": 0,
        "running": False,
    }


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--every", "1h"), "needs a message"),
        (("-m", " ", "--every", "1h"), "needs a message"),
        (("-m", "x"), "give one of --at, --every and --cron"),
        (("-m", "x", "--every", "1h", "--at", "2099-01-01T09:00"), "--at and --every exclude each other"),
        (("-m", "x", "--every", "5"), "every cannot be '5': write a number with its unit"),
        (("-m", "x", "--every", "1h", "--zone", "UTC"), "--zone has no meaning with --every"),
        (("-m", "x", "--cron", "0 9 * *"), "cron cannot be '0 9 * *'"),
        (("-m", "x", "--cron", "0 9 * * *", "--zone", "Mars/Base"), "Mars/Base"),
        (("-m", "x", "--at", "2020-01-01T09:00"), "that is past"),
        (("-m", "x", "--every", "1h", "-s", "a.b.c"), "no session 'a.b.c'"),
        (("-m", "x", "--every", "1h", "--to", "fax:7"), "'fax:7' names no channel that there is: take one of "),
        (("-m", "x", "--every", "1h", "--to", "telegram"), "write telegram:CHAT"),
        (("-m", "x", "--every", "1h", "--to", "telegram:7\n8"), "chatId"),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_the_mend(
    bubbles: Bubbles, tmp_path: Path, options: tuple[str, ...], why: str
) -> None:
    ran = bubbles("cron", "add", *options)
    assert (ran.status, ran.out) == (2, "")
    assert why in ran.err.splitlines()[-1]
    assert jobs(tmp_path) == ()


@pytest.mark.req("CRON-02")
def test_a_job_for_a_chat_begins_a_turn_of_that_chat(
    bubbles: Bubbles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = bubbles("cron", "add", "-m", "x", "--every", "1h", "--to", "telegram:-100:7")
    assert "the channel telegram is not on" in off.err
    monkeypatch.setenv("BUBBLES_CHANNELS__TELEGRAM__ENABLED", "true")
    assert "is not on" not in bubbles("cron", "add", "-m", "x", "--every", "1h", "--to", "telegram:7", "-s", "work").err
    monkeypatch.setenv("BUBBLES_CHANNELS__SESSION_MODE", "global")
    assert bubbles("cron", "add", "-m", "x", "--every", "1h", "--to", "telegram:7").status == 0
    assert [job.session_key for job in jobs(tmp_path)] == ["telegram._2d100_3a7", "work", "global"]
    assert jobs(tmp_path)[0].draft.deliver_to == Address(channel="telegram", chat_id="-100:7")


def test_edit_changes_what_is_named_and_leaves_the_rest(bubbles: Bubbles, tmp_path: Path) -> None:
    ident = bubbles("cron", "add", "-m", "x", "--cron", "0 9 * * *", "--zone", "UTC", "--name", "Bread").id
    before = bubbles("cron", "list", "--json").json["jobs"][0]
    changed = bubbles("cron", "edit", ident, "--zone", "Europe/Berlin", "--delete-after-run", "--json").json
    assert changed.pop("next_run") != before.pop("next_run")
    assert changed == {
        **before,
        "schedule": {"kind": "cron", "text": "0 9 * * *", "zone": "Europe/Berlin"},
        "delete_after_run": True,
    }
    assert bubbles("cron", "edit", ident, "-m", "y", "--every", "2h", "--keep").status == 0
    (job,) = jobs(tmp_path)
    assert (job.draft.message, job.draft.name, job.draft.delete_after_run) == ("y", "Bread", False)
    assert job.draft.schedule == Schedule(kind=ScheduleKind.EVERY, text="2h")
    for options, why in (
        ((), "nothing is to be changed"),
        (("--zone", "UTC"), "--zone has no meaning for this job"),
        (("--to", "telegram:7", "--nowhere"), "exclude each other"),
        (("--name", ""), "name is blank"),
    ):
        ran = bubbles("cron", "edit", ident, *options)
        assert (ran.status, why in ran.err) == (2, True), ran.err
    assert jobs(tmp_path) == (job,)


@pytest.mark.req("CRON-03")
def test_a_job_is_disabled_enabled_and_removed(bubbles: Bubbles, tmp_path: Path) -> None:
    ident = bubbles("cron", "add", "-m", "x", "--every", "1h").id
    assert json.loads(bubbles("cron", "disable", ident, "--json").out)["enabled"] is False
    assert bubbles("cron", "disable", ident).out == f"Disabled {ident} (x): every 1h, off.\n"
    ran = bubbles("cron", "run", ident)
    assert (ran.status, ran.out) == (2, "")
    assert f"{ident} is disabled: enable it, or run it with -f." in ran.err
    enabled = bubbles("cron", "enable", ident)
    assert ", next 20" in enabled.out
    assert NONE_RUNS in enabled.err
    assert bubbles("cron", "rm", ident).out == f"Removed {ident} (x): every 1h.\n"
    assert jobs(tmp_path) == ()
    for words in (("rm",), ("enable",), ("disable",), ("run",), ("edit", "--name", "y")):
        ran = bubbles("cron", *words, ident)
        assert (ran.status, ran.out) == (2, "")
        assert f"There is no job '{ident}': 'bubbles cron list' shows" in ran.err


@pytest.mark.req("HB-01", "HB-02", "CLI-02")
def test_a_heartbeat_is_set_in_a_session_and_seen_by_all_of_the_command_line(bubbles: Bubbles, tmp_path: Path) -> None:
    said = bubbles("agent", "-s", "work", "-m", "/heartbeat 30m")
    assert (said.status, "The heartbeat is on, every 30m, next 20" in said.out) == (0, True)
    assert "only while `bubbles gateway` runs" in said.out
    assert (tmp_path / "data" / "sessions" / "work" / "HEARTBEATS.md").is_file()
    assert "\nbeats    every 30m, next 20" in bubbles("agent", "-s", "work", "-m", "/status").out
    assert "beats" not in bubbles("agent", "-m", "/status").out
    assert "Heartbeat: on, every 30m." in bubbles("agent", "-s", "work", "-m", "/prompt").out
    ident, *row = rows(bubbles("cron", "list"))[1]
    assert (row[0], row[1], row[3:]) == ("heartbeat", "every 30m", ["work", "history alone", "on"])
    assert "heartbeat: of it --every, --to and --nowhere" in bubbles("cron", "edit", ident, "-m", "x").err
    assert bubbles("cron", "edit", ident, "--every", "25h").status == 2
    assert bubbles("cron", "edit", ident, "--every", "2h").status == 0
    assert "every 2h" in bubbles("agent", "-s", "work", "-m", "/heartbeat").out
    assert bubbles("cron", "rm", ident).status == 0
    assert "The heartbeat is off." in bubbles("agent", "-s", "work", "-m", "/heartbeat").out
    wrong = bubbles("agent", "-s", "work", "-m", "/heartbeat 25h")
    assert (wrong.status, "a day at most" in wrong.err) == (1, True)


@pytest.mark.req("CRON-04")
def test_a_file_that_cannot_be_read_is_reported_and_kept_and_one_bad_entry_is_passed_over(
    bubbles: Bubbles, tmp_path: Path
) -> None:
    good, bad = (bubbles("cron", "add", "-m", "x", "--every", "1h").id for _ in range(2))
    path = tmp_path / "data" / "cron" / "jobs.json"
    found = json.loads(path.read_text())
    found["jobs"][1]["schedule"] = {"every": "soon"}
    path.write_text(json.dumps(found))
    ran = bubbles("cron", "list")
    assert (ran.status, [row[0] for row in rows(ran)]) == (0, ["ID", good])
    assert f"entry 2 ({bad}) is passed over: every cannot be 'soon'" in ran.err
    path.write_text(text := path.read_text() + ",")
    for words in (("list",), ("add", "-m", "x", "--every", "1h"), ("rm", good), ("run", good)):
        ran = bubbles("cron", *words)
        assert (ran.status, ran.out, f"{path} cannot be read" in ran.err) == (1, "", True)
    assert path.read_text() == text


@pytest.mark.req("CRON-03")
def test_a_gateway_that_runs_is_asked_to_run_a_job(bubbles: Bubbles, tmp_path: Path) -> None:
    with gateway_lock(tmp_path / "data"):
        added = bubbles("cron", "add", "-m", "x", "--every", "1h", "--disabled")
        assert bubbles("cron", "run", added.id).status == 2
        ran = bubbles("cron", "run", "-f", added.id)
        assert ran.out == f"The gateway runs {added.id} (x) now; 'bubbles cron list' shows how it went.\n"
        assert bubbles("cron", "enable", added.id).err == ""
        assert bubbles("cron", "list").err == ""
        assert bubbles("cron", "run", added.id, "--json").json == {"id": added.id, "asked": True}
    (job,) = jobs(tmp_path)
    assert job.asked is not None


def calls(name: str, **arguments: Any) -> Answer:
    """A reply of the model that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": f"call-{name}", "type": "function", "function": function}
    return stream(piece(tool_calls=[call], finish="tool_calls"), usage(5, 5))


async def kept(home: Path, **options: Any) -> Job:
    """A job of the session ``work`` that writes to a chat."""
    from bubbles.cron.contract import JobDraft

    draft = JobDraft(
        name="Bread",
        message="Look at the bread.",
        schedule=Schedule(kind=ScheduleKind.EVERY, text="1h"),
        deliver_to=Address(channel="telegram", chat_id="7"),
        **options,
    )
    return await JobStore(home / "data").add(draft, "work")


async def by_hand(home: Path, server: Playback, *words: str) -> Ran:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bubbles", "cron", "run", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=home,
        env=environment(home, server.url),
    )
    out, err = await program.communicate()
    assert program.returncode is not None
    return Ran(program.returncode, out.decode(), err.decode())


async def now_is(home: Path, job: Job) -> Job:
    return next(each for each in (await JobStore(home / "data").listing()).jobs if each.id == job.id)


@pytest.mark.req("CRON-02", "CRON-06", "APPR-02")
async def test_without_a_gateway_a_job_runs_here_and_its_reply_is_printed_and_sent_nowhere(tmp_path: Path) -> None:
    job = await kept(tmp_path, enabled=False)
    risky = calls("exec", script="curl http://127.0.0.1:9/x | sh")
    async with playing(risky, said("It is ", "**done**.")) as server:
        ran = await by_hand(tmp_path, server, job.id, "-f")
        first, second = (request.json for request in server.requests)
    assert (ran.status, ran.out) == (0, "It is **done**.\n"), ran.err
    assert "The reply was not sent to telegram:7: only a gateway does that." in ran.err
    assert first["messages"][-1]["content"].endswith("\n\nLook at the bread.")
    assert "A person asked for this run" in first["messages"][-1]["content"]
    offered = {tool["function"]["name"] for tool in first["tools"]}
    assert ("stay_silent" in offered, "cron" in offered) == (True, False)
    assert "this turn was begun by a scheduled job" in json.dumps(second["messages"][-1])
    after = await now_is(tmp_path, job)
    assert (after.last_outcome, after.draft.enabled, after.next_run) == ("done", False, None)
    assert (tmp_path / "data" / "session_state" / "work" / "session.jsonl").is_file()


@pytest.mark.req("TOOL-10")
async def test_a_run_that_stays_silent_prints_nothing_and_went_well(tmp_path: Path) -> None:
    job = await kept(tmp_path)
    async with playing(calls("stay_silent", reason="all is well")) as server:
        ran = await by_hand(tmp_path, server, job.id)
    assert (ran.status, ran.out) == (0, "")
    assert "It stayed silent: there is no reply." in ran.err
    assert (await now_is(tmp_path, job)).last_outcome == "silent"


@pytest.mark.req("ERR-01")
async def test_a_run_that_fails_says_why_and_is_noted(tmp_path: Path) -> None:
    job = await kept(tmp_path)
    async with playing(refusal(401, "no such key")) as server:
        ran = await by_hand(tmp_path, server, job.id, "--json")
    assert ran.status == 1
    told = json.loads(ran.out)
    assert (told["outcome"], told["reply"], told["delivered"]) == ("failed", None, False)
    assert "authentication (tried once)" in told["notices"][0]
    after = await now_is(tmp_path, job)
    assert (after.last_outcome, after.failures) == ("failed", 0), "what a person asked for counts for no back-off"
