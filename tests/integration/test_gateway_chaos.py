"""``bubbles gateway`` killed at random instants while people write, answer cards, and jobs run: nothing is lost or done
twice, and nothing runs of which nobody said that it may (OPS-02, APPR-04, CRON-04).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bubbles.bus import Address
from bubbles.cron.contract import Job, JobDraft, Schedule, ScheduleKind
from bubbles.cron.store import JobStore
from bubbles.gateway.ledger import Ledger
from bubbles.gateway.outgoing import AGAIN
from bubbles.sessions.history import NOT_RUN, UNKNOWN
from tests.channel_servers.telegram import GROUP, BotApi, Sent, bot_api
from tests.gateway_scene import GatewayScene, telegram_environment
from tests.model_server import Calls, Request, serving
from tests.places import HARD
from tests.processes import comes_true

ACT = """#!/bin/bash
echo "$1 $2 $(date +%s.%N)" >> acts.log
sleep 0.02
echo "did $1 $2"
"""
RULES = """prefix_rule(pattern=["act", "step"])
prefix_rule(pattern=["act", "tick"])
"""
"""Nothing is said of ``act gated``: a person is asked."""
ASKING_S = 1.5
EVERY_S = 10
DYING_S = 0.4
"""What a command may live on when its gateway was killed; before that the next one runs nothing."""
THINKING_S = 0.05
"""The model's: turns are on their way when the kill comes."""
MESSAGE = re.compile(r"message #(\d+) (plain|step|gated|file)")
TICK = re.compile(r"please tick (\w+)")
ACTED = re.compile(r"act (\w+) ([\w.]+)")
NOT_DONE = re.compile(r"[Tt]his call was not run")
ANSWERED = re.compile(r"#(\d+)")
GIVEN_UP = re.compile(r"I was interrupted \d times while working on: «.*?#(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    kills: int
    chats: int
    messages: int
    """At most: a slow machine takes no longer than a quick one."""
    pause_s: float
    """Between two of them, at most."""
    jobs: int
    at_jobs: int
    group: bool


SHORT = Size(kills=4, chats=12, messages=36, pause_s=0.4, jobs=4, at_jobs=4, group=False)
LONG = Size(kills=30, chats=12, messages=600, pause_s=0.4, jobs=8, at_jobs=30, group=True)


class Brain:
    """Answers each message once, and does what it asks for once: again only what certainly did not run, or, of what a
    person is asked about, what may not have run.

    So whatever is done twice beyond that was repeated by the program.
    """

    def __init__(self) -> None:
        self.told: dict[str, tuple[str, str]] = {}
        """By id of a call: what was to be done, and its result as it was told last."""
        self.faults: list[str] = []

    def __call__(self, request: Request) -> str | Calls:
        messages = request["messages"]
        done = self._done(messages)
        said = [str(message["content"]) for message in messages if message["role"] == "user"]
        opening = next(text for text in reversed(said) if MESSAGE.search(text) or TICK.search(text))
        if tick := TICK.search(opening):
            run = f"{tick[1]}.{sum(text == opening or tick[0] in text for text in said)}"
            return f"ran {run}" if ("tick", run) in done else [_act("tick", run)]
        answers = " ".join(str(message["content"]) for message in messages if message["role"] == "assistant")
        answered = {number for part in re.findall(r"answer([ #\d]*)", answers) for number in ANSWERED.findall(part)}
        asked = {number: kind for text in said for number, kind in MESSAGE.findall(text) if number not in answered}
        due = [
            _act(kind, number)
            for number, kind in asked.items()
            if (kind in ("step", "gated") and NOT_DONE.search(done.get((kind, number), NOT_RUN)))
            or (kind == "gated" and done[kind, number] == UNKNOWN)
        ]
        return due or f"answer {' '.join(f'#{number}' for number in asked)}"

    def _done(self, messages: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
        """The last result of each act."""
        acts: dict[str, tuple[str, str]] = {}
        done: dict[tuple[str, str], str] = {}
        for message in messages:
            for call in message.get("tool_calls") or ():
                if (act := ACTED.search(call["function"]["arguments"])) is not None:
                    acts[call["id"]] = (act[1], act[2])
            if message["role"] == "tool" and message["tool_call_id"] in acts:
                ident, text = message["tool_call_id"], message["content"]
                what = acts[ident]
                done[what] = text
                if self.told.setdefault(ident, (" ".join(what), text))[1] != text:
                    self.faults.append(f"what {what} came to was told in two ways: {self.told[ident]}, {text}")
        return done


def _act(kind: str, number: str) -> tuple[str, dict[str, str]]:
    return "exec", {"script": f"act {kind} {number}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    number: str
    at: float
    life: int
    """In which gateway's life the card was shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    kind: str
    number: str
    at: float


@dataclass(slots=True)
class People:
    """They write, and answer some of the cards."""

    server: BotApi
    size: Size
    chance: random.Random
    kinds: dict[str, str] = field(default_factory=dict, init=False)
    """Of the messages that were sent, by number."""
    presses: list[Press] = field(default_factory=list, init=False)
    births: list[float] = field(default_factory=list, init=False)
    """When each gateway was started."""

    def person(self, number: int) -> dict[str, Any]:
        return {"id": 1001 + number, "is_bot": False, "first_name": f"Person{number}"}

    @property
    def ids(self) -> list[int]:
        return [self.person(number)["id"] for number in range(self.size.chats)]

    async def write(self) -> None:
        for _ in range(self.size.messages):
            await self.writes_one()
            await asyncio.sleep(self.chance.uniform(0, self.size.pause_s))

    async def writes_one(self) -> None:
        number = str(len(self.kinds) + 1)
        kind = self.chance.choice(("plain", "plain", "plain", "step", "step", "gated", "file"))
        user = self.person(self.chance.randrange(self.size.chats))
        self.kinds[number] = kind
        text = f"message #{number} {kind}"
        if kind == "file":
            file = self.server.file(text.encode(), file_name=f"f{number}.txt", mime_type="text/plain")
            await self.server.says(user=user, caption=text, document=file)
        elif self.size.group and self.chance.random() < 0.05:
            await self.server.says(f"@bubbles_bot {text}", user=user, chat=GROUP)
        else:
            await self.server.says(text, user=user)

    async def answer_cards(self) -> None:
        """Of four cards two are approved, one is declined, and one is not answered, by the number of the message."""
        async with asyncio.TaskGroup() as presses:
            for seen in itertools.count():
                await self.server.until(partial(self._is_there, seen), 3_600)
                card = self.server.sent[seen]
                if card.buttons and (act := ACTED.search(card.text)) is not None and int(act[2]) % 4 < 3:
                    presses.create_task(self._press(card, act[2], len(self.births) - 1))

    def _is_there(self, number: int) -> bool:
        return len(self.server.sent) > number

    async def _press(self, card: Sent, number: str, life: int) -> None:
        await asyncio.sleep(self.chance.uniform(0, ASKING_S / 2))
        approves = int(number) % 4 < 2
        if approves:
            self.presses.append(Press(number=number, at=time.time(), life=life))
        shown = {"message_id": card.id, "date": 1, "chat": self.server.chats[card.chat]}
        user = self.person(0) if card.chat == GROUP["id"] else {**self.person(0), "id": card.chat}
        await self.server.presses(card.buttons[0 if approves else 1], message=shown, user=user)

    def life_at(self, moment: float) -> int:
        return sum(birth <= moment for birth in self.births) - 1


async def plan(data_dir: Path, size: Size, chance: random.Random) -> list[Job]:
    """Jobs that fall due from the first seconds on; some write into a chat, and some work in the session of one."""
    now = datetime.now(UTC)
    made = []
    for number in range(size.jobs):
        begun = now + timedelta(seconds=2 + chance.uniform(0, EVERY_S) - EVERY_S)
        schedule = Schedule(kind=ScheduleKind.EVERY, text=f"{EVERY_S}s")
        made.append((f"every{number}", schedule, JobStore(data_dir, lambda begun=begun: begun)))  # type: ignore[misc]
    for number in range(size.at_jobs):
        moment = now + timedelta(seconds=chance.uniform(2, 2 + 2.5 * size.kills))
        schedule = Schedule(kind=ScheduleKind.AT, text=moment.isoformat())
        made.append((f"at{number}", schedule, JobStore(data_dir)))
    jobs = []
    for number, (name, schedule, store) in enumerate(made):
        to = Address(channel="telegram", chat_id="1001") if number % 2 else None
        draft = JobDraft(name=name, message=f"please tick {name}", schedule=schedule, deliver_to=to)
        jobs.append(await store.add(draft, "telegram.1001" if number % 4 == 1 else name))
    return jobs


def scene_of(base: Path, environment: Mapping[str, str], backend: str) -> GatewayScene:
    tools = base / "tools"
    tools.mkdir()
    (tools / "act").write_text(ACT)
    (tools / "act").chmod(0o755)
    scene = GatewayScene(
        base,
        {
            **environment,
            "BUBBLES_AGENTS__DEFAULTS__CONTEXT_TOKENS": "1000000",
            "BUBBLES_TOOLS__SANDBOX__BACKEND": backend,
            "BUBBLES_TOOLS__SANDBOX__TOOL_DIRS": str(tools),
            "BUBBLES_TOOLS__EXEC__PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin",
            "BUBBLES_TOOLS__APPROVALS__TIMEOUT_S": str(ASKING_S),
        },
    )
    (scene.data_dir / "rules").mkdir()
    (scene.data_dir / "rules" / "test.rules").write_text(RULES)
    return scene


async def chaos(base: Path, size: Size, backend: str = "local") -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance, brain = random.Random(seed), Brain()
    async with bot_api() as server, serving(brain, delay_s=THINKING_S, keep=False) as model:
        people = People(server, size, chance)
        async with scene_of(base, telegram_environment(server, people.ids) | model.environment, backend) as scene:
            jobs = await plan(scene.data_dir, size, chance)
            await lived_through(scene, people)
            status, took_s = await scene.stops()
            assert (status, took_s < 10) == (0, True), scene.told()
        print(f"{len(people.kinds)} messages, {len(server.sent)} sent, {len(people.presses)} approved by buttons")
        model.check()
        assert not brain.faults, "\n".join(brain.faults)
        check_answers(server.sent, people.kinds)
        acts = read_acts(scene)
        check_acts(acts, brain, people)
        check_ticks(acts, jobs, server.sent)
        check_files(scene, people.kinds)
        await nothing_is_left(scene)


async def lived_through(scene: GatewayScene, people: People) -> None:
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(people.answer_cards())
        writing = group.create_task(people.write())
        try:
            await kills(scene, people)
            writing.cancel()
            await comes_to_rest(scene, people)
        finally:
            writing.cancel()
            answering.cancel()


async def kills(scene: GatewayScene, people: People) -> None:
    """Every fourth of them comes while it starts, and every sixth after a longer life."""
    for number in range(people.size.kills):
        people.births.append(time.time())
        if number % 4 == 0:
            await scene.begins()
            await asyncio.sleep(people.chance.uniform(0, 1.2))
        else:
            await scene.starts()
            await asyncio.sleep(people.chance.uniform(0, 5.0 if number % 6 == 5 else 1.5))
        await scene.killed()
    people.births.append(time.time())
    await scene.starts()


async def comes_to_rest(scene: GatewayScene, people: People) -> None:
    """Everything that was said is dealt with, and each chat has what was to be said."""

    def unanswered() -> set[str]:
        found = answers(people.server.sent)
        return {number for number in people.kinds if not found[number]}

    ledger = scene.data_dir / "gateway" / "ledger.db"
    try:
        async with asyncio.timeout(20 + people.size.kills):
            # Nobody tells when a row is gone from the disk of another process.
            while unanswered() or await scene.waiting() or await asyncio.to_thread(unsent, ledger):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"never answered: {sorted(unanswered(), key=int)}\n{scene.told()}") from None


def unsent(ledger: Path) -> int:
    import sqlite3

    connection = sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)
    try:
        return int(connection.execute("SELECT count(*) FROM parcels").fetchone()[0])
    finally:
        connection.close()


def answers(sent: Sequence[Sent]) -> defaultdict[str, list[str]]:
    """By number: ``answer`` or ``given up``, with `` again`` if it says so, as they came."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for message in list(sent):
        text, again = message.text.removeprefix(AGAIN).strip(), " again" * message.text.startswith(AGAIN)
        if text.startswith("answer"):
            for number in ANSWERED.findall(text):
                found[number].append(f"answer{again}")
        elif given_up := GIVEN_UP.match(text):
            found[given_up[1]].append(f"given up{again}")
    return found


def check_answers(sent: Sequence[Sent], kinds: Mapping[str, str]) -> None:
    """One each; what comes twice says so. After a message was given up, the model may still answer it with the next."""
    found = answers(sent)
    print(Counter(map(tuple, found.values())))
    assert found.keys() == kinds.keys()
    for number, came in found.items():
        assert came.count("answer") <= 1, f"message {number} was answered twice: {came}"
        assert came.count("given up") <= 1, f"message {number} was given up twice: {came}"
        late = came.index("given up") if "given up" in came else 0
        assert not late or came[0].startswith("given up"), f"message {number} was given up once it was answered: {came}"


def read_acts(scene: GatewayScene) -> list[Act]:
    found = []
    for log in (scene.data_dir / "sessions").glob("*/acts.log"):
        for line in log.read_text().splitlines():
            kind, number, at = line.split()
            found.append(Act(kind=kind, number=number, at=float(at)))
    return sorted(found, key=lambda act: act.at)


def check_acts(acts: Sequence[Act], brain: Brain, people: People) -> None:
    """Each was done once at most, the model was told the truth about it, and what needed a word had it."""
    done = Counter(f"{act.kind} {act.number}" for act in acts)
    told: defaultdict[str, list[str]] = defaultdict(list)
    for what, text in brain.told.values():
        told[what].append(text)
    for what, texts in told.items():
        if any(f"did {what}" in text for text in texts):
            assert what in done, f"the model was told that {what} was done"
    for what, times in done.items():
        unknown = told[what].count(UNKNOWN) if what.startswith("gated") else 0
        assert times <= 1 + unknown, f"{what} was done {times} times"
        if what.startswith("tick"):
            continue  # a run that was cut off is not told of: the next run is another one
        assert any(f"did {what}" in text or text == UNKNOWN for text in told[what]), f"{what} was done: {told[what]}"
    for act in acts:
        if act.kind == "gated":
            allowed = [press for press in people.presses if press.number == act.number and press.at <= act.at]
            life = people.life_at(act.at - DYING_S)
            assert any(press.life == life for press in allowed), f"{act} was not approved: {allowed}"
    for number, came in answers(people.server.sent).items():
        if people.kinds[number] == "step" and any(each.startswith("answer") for each in came):
            assert told[f"step {number}"], f"message {number} was answered, and nothing done about it"


def check_ticks(acts: Sequence[Act], jobs: Sequence[Job], sent: Sequence[Sent]) -> None:
    """No moment at which a job was due has two runs, and no run was told of twice."""
    slots: Counter[tuple[str, int]] = Counter()
    by_name = {job.draft.name: job for job in jobs}
    for act in acts:
        if act.kind == "tick":
            job = by_name[act.number.partition(".")[0]]
            every = job.draft.schedule.kind is ScheduleKind.EVERY
            assert job.anchor is not None
            slots[job.id, int((act.at - job.anchor.timestamp()) // EVERY_S) if every else 0] += 1
    assert slots, "no job ran: the test proves nothing"
    assert all(times == 1 for times in slots.values()), f"a run came twice: {slots.most_common(3)}"
    told = Counter(message.text for message in sent if message.text.startswith("ran "))
    assert all(times == 1 for times in told.values()), f"a run was told of twice: {told.most_common(3)}"


def check_files(scene: GatewayScene, kinds: Mapping[str, str]) -> None:
    """What came with a message is there, whole."""
    received = [path for path in (scene.data_dir / "sessions").glob("*/data/received/*") if path.is_file()]
    there = Counter(path.read_text() for path in received)
    wanted = {f"message #{number} file" for number, kind in kinds.items() if kind == "file"}
    assert there.keys() == wanted
    assert not list((scene.data_dir / "gateway" / "incoming").glob("*"))


async def nothing_is_left(scene: GatewayScene) -> None:
    """Neither in the ledger, nor of sandboxes, processes, or files on the way."""
    async with Ledger(scene.data_dir / "gateway" / "ledger.db") as ledger:
        assert ledger.warnings == []
        assert (ledger.undone, await ledger.parcels()) == (0, [])
    assert await comes_true(lambda: not scene.left_over(), 10), scene.left_over()
    status, out, err = await scene.runs("sandbox", "ls", "--json")
    assert (status, json.loads(out)["sandboxes"]) == (0, []), err
    assert list(scene.temporary.iterdir()) == []
    half_made = [path for path in scene.data_dir.rglob("*.new*") if scene.data_dir / "run" not in path.parents]
    assert half_made == []  # those in run/ go once they are old: sandbox_backends/litter.py


@pytest.mark.req("OPS-02", "APPR-04", "CRON-04", "CHAN-07")
@pytest.mark.timeout(90)
async def test_a_gateway_killed_again_and_again_answers_each_message_once_and_does_nothing_twice(
    tmp_path: Path,
) -> None:
    await chaos(tmp_path, SHORT)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["local", *HARD])
async def test_thirty_kills_lose_and_repeat_nothing_and_leave_no_sandbox(tmp_path: Path, backend: str) -> None:
    for part in (tmp_path, *list(tmp_path.parents)[:3]):
        if part.name.startswith(("pytest-", "test_", "popen-")):
            part.chmod(0o755)
    await chaos(tmp_path, LONG, backend)
