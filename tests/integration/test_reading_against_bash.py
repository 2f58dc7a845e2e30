"""What the reader sees of a script against what bash really starts, observed with harmless stubs in a bubblewrap.

The only programs on PATH are stubs that write down their name, arguments and directory, so nothing real can run (but
``cat`` without a file copies its input, ``nproc`` says 4, and ``sh`` is bash, for what the reader makes of them). Where
the reader has no doubt, its segments must be exactly the commands started; where it is wrong it must have a doubt.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import random
import re
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bubbles.controller.policy.contract import SHELL, Context
from bubbles.controller.policy.shell.reader import read
from bubbles.controller.policy.shell.reading import UNKNOWN, Hole, Reading, Segment, Word
from sandbox_backends.contract import ExecRequest, SandboxSession
from tests.integration.bash_scripts import BRANCHES, LINK, PLAIN, TREE
from tests.integration.bash_traps import BEGINNINGS, PIECES, TRAPS
from tests.places import Bench, make_bench

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.req("DEC-06", "DEC-12")]
STUB = """#!/bin/sh
printf '%s\\0' "$(pwd -P)" "$0" "$@" '\x1e' >>"$STUB_LOG"
case $0 in
    */fails) exit 1 ;;
    */bash | */sh) exec /bin/bash "$@" ;;
    */cat) [ $# -gt 0 ] || exec /bin/cat ;;
    */nproc) echo 4 ;;
esac
"""
NAMES = """
a b cargo cat cmake curl diff env fails find git go grep head ls make nice node nohup npm nproc pytest python rm sed
sh bash sort sudo tee timeout uniq wc xargs
""".split()
BUILTINS = frozenset(
    """
    . : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo
    enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf
    pushd pwd read readarray readonly return set shift shopt source suspend test times trap true type typeset ulimit
    umask unalias unset wait [[ ((
    """.split()
)
AT_ONCE = 8
WITHOUT_NAME = frozenset({"nosuch"})


@dataclass(frozen=True, slots=True)
class Started:
    """A command that bash started."""

    argv: tuple[str, ...]
    directory: str


@dataclass(frozen=True, slots=True)
class Trial:
    script: str
    started: tuple[Started, ...]
    reading: Reading
    context: Context


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(tmp_path / "bench")
    yield made
    made.owner.close()


def plant(top: Path, count: int) -> Path:
    """A tree for each script, and the stubs. Returns the stubs' directory."""
    model = top / "model"
    for name in TREE:
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).touch()
    (model / LINK[0]).symlink_to(LINK[1])
    for number in range(count):
        shutil.copytree(model, top / str(number), symlinks=True)
    stubs = top / "stubs"
    stubs.mkdir()
    (stubs / "stub").write_text(STUB)
    (stubs / "stub").chmod(0o755)
    for name in NAMES:
        (stubs / name).symlink_to("stub")
    (top / "logs").mkdir()
    return stubs


def started(log: Path, stubs: Path) -> tuple[Started, ...]:
    records = log.read_bytes().decode().split("\x1e\0")[:-1] if log.exists() else []
    found = []
    for record in records:
        directory, *argv = record.split("\0")[:-1]
        found.append(Started((argv[0].removeprefix(f"{stubs}/"), *argv[1:]), directory))
    return tuple(found)


async def watch(session: SandboxSession, script: str, number: int, stubs: Path) -> Trial:
    place = stubs.parent / str(number)
    log = stubs.parent / "logs" / str(number)
    env = {"PATH": str(stubs), "HOME": str(place / "home"), "STUB_LOG": str(log), "LANG": "C.UTF-8"}
    # What is left in the background writes its log before the output ends, for it holds that open.
    await session.exec(ExecRequest(argv=(*SHELL, script), cwd=str(place), env=env, timeout_s=10))
    context = Context(
        cwd=str(place), roots=(str(place),), home=str(place / "home"), person_home="/nowhere", resolve=os.path.realpath
    )
    return Trial(script, started(log, stubs), read(script, context), context)


@asynccontextmanager
async def trials(bench: Bench, scripts: tuple[str, ...]) -> AsyncIterator[list[Trial]]:
    stubs = plant(bench.project, len(scripts))
    gate = asyncio.Semaphore(AT_ONCE)
    async with bench.open("bubblewrap") as session:

        async def one(number: int, script: str) -> Trial:
            async with gate:
                return await watch(session, script, number, stubs)

        yield await asyncio.gather(*(one(number, script) for number, script in enumerate(scripts)))


def run_by_bash(segment: Segment) -> tuple[Word, ...]:
    """The words of the program that bash itself starts for this segment; none for a builtin."""
    words = segment.words
    while words and words[0].text in ("time", "command", "exec", "builtin", "!"):
        words = words[1:]
        while words and words[0].text in ("-p", "--"):
            words = words[1:]
    return () if not words or words[0].text in BUILTINS | WITHOUT_NAME else words


def fits(words: tuple[Word, ...], argv: tuple[str, ...]) -> bool:
    """Whether ``argv`` is what ``words`` say, letter by letter except where a word admits that it is open."""
    if not words:
        return not argv
    first, rest = words[0], words[1:]
    if first.exact:
        return bool(argv) and first.text == argv[0] and fits(rest, argv[1:])
    if first.holes is Hole.INTEGER:
        return bool(argv) and integer_fits(first.text, argv[0]) and fits(rest, argv[1:])
    if first.holes is Hole.GLOB:
        unmatched = bool(argv) and first.text == argv[0] and fits(rest, argv[1:])
        return unmatched or any(
            all(fnmatch.fnmatchcase(arg, first.text) for arg in argv[:taken]) and fits(rest, argv[taken:])
            for taken in range(1, len(argv) + 1)
        )
    return any(fits(rest, argv[taken:]) for taken in range(len(argv) + 1))


def integer_fits(text: str, argument: str) -> bool:
    return re.fullmatch("[0-9]+".join(map(re.escape, text.split(UNKNOWN))), argument) is not None


def guessed(guess: tuple[str, ...], argv: tuple[str, ...]) -> bool:
    """Whether a guess for suspicion's sake leaves room for ``argv``."""
    if not guess:
        return not argv
    first, rest = guess[0], guess[1:]
    if UNKNOWN in first:
        return any(guessed(rest, argv[taken:]) for taken in range(len(argv) + 1))
    return bool(argv) and first == argv[0] and guessed(rest, argv[1:])


def is_seen(command: Started, segment: Segment, context: Context) -> bool:
    places = segment.directories
    here = places is None or command.directory in map(context.resolve, places)
    return here and fits(run_by_bash(segment), command.argv)


def difference(trial: Trial, *, all_run: bool) -> str:
    """How a reading without doubts differs from what happened; empty if it does not.

    Each command started must be a segment of its own, or be guessed inside a substitution or a shell.
    """
    segments = [segment for segment in trial.reading.segments if run_by_bash(segment)]
    in_order = all_run and not trial.reading.hidden and not any(sign in trial.script for sign in "|&")
    if in_order and len(trial.started) == len(segments):
        fits_all = all(map(is_seen, trial.started, segments, [trial.context] * len(segments)))
        return "" if fits_all else f"{trial.script!r}: bash started {trial.started}, not {describe(segments)}"
    taken: dict[int, Started] = {}
    for command in sorted(trial.started, key=lambda one: is_guessed(one, trial)):
        if not placed(command, segments, taken, trial.context, set()) and not is_guessed(command, trial):
            return f"{trial.script!r}: bash started {command}, the reader expected {describe(segments)}"
    never = [segment for number, segment in enumerate(segments) if number not in taken]
    return f"{trial.script!r}: bash never started {describe(never)}" if all_run and never else ""


def is_guessed(command: Started, trial: Trial) -> bool:
    return any(guessed(segment.guess, command.argv) for segment in trial.reading.hidden)


def placed(
    command: Started, segments: Sequence[Segment], taken: dict[int, Started], context: Context, tried: set[int]
) -> bool:
    """Whether ``command`` gets a segment of its own, if need be by moving others to other segments that fit them."""
    for number, segment in enumerate(segments):
        if number not in tried and is_seen(command, segment, context):
            tried.add(number)
            if number not in taken or placed(taken[number], segments, taken, context, tried):
                taken[number] = command
                return True
    return False


def describe(segments: Sequence[Segment]) -> str:
    return "; ".join(f"{[word.text for word in part.words]} in {part.directories}" for part in segments) or "nothing"


async def test_plain_scripts_are_understood_and_seen_exactly_as_bash_runs_them(bench: Bench) -> None:
    async with trials(bench, PLAIN) as seen:
        doubted = [
            f"{trial.script!r}: doubted for no reason: {doubt}" for trial in seen for doubt in trial.reading.doubts
        ]
        wrong = [text for trial in seen if (text := difference(trial, all_run=True))]
        lost = [trial.script for trial in seen if any(part.directories is None for part in trial.reading.segments)]
    assert not doubted + wrong, "\n".join(doubted + wrong)
    assert not lost, f"the directory is not known in {lost}"


async def test_in_branches_bash_starts_only_what_the_reader_saw(bench: Bench) -> None:
    async with trials(bench, BRANCHES) as seen:
        wrong = [text for trial in seen if not trial.reading.doubts and (text := difference(trial, all_run=False))]
    assert not wrong, "\n".join(wrong)


async def test_traps_are_doubted_or_seen_exactly_as_bash_runs_them(bench: Bench) -> None:
    async with trials(bench, TRAPS) as seen:
        trusted = [trial for trial in seen if not trial.reading.doubts]
        wrong = [text for trial in trusted if (text := difference(trial, all_run=False))]
    assert not wrong, "\n".join(wrong)


def random_scripts(seed: int, count: int) -> tuple[str, ...]:
    """Scripts that the reader does not doubt. Reading a stub as a script (``. git``) is left out."""
    chance = random.Random(seed)
    context = Context(cwd="/r", roots=("/r",), home="/r/home", person_home="/nowhere")
    kept: dict[str, None] = {}
    while len(kept) < count:
        script = chance.choice(BEGINNINGS) + "".join(
            chance.choice(PIECES) + chance.choice(("", "", " ")) for _ in range(chance.randint(1, 9))
        )
        reading = read(script, context)
        if not reading.doubts and not reads_a_script(script, reading):
            kept[script] = None
    return tuple(kept)


def reads_a_script(script: str, reading: Reading) -> bool:
    """Whether ``.`` may be a command of it, spelt out or left by what is not known (``$IFS.``)."""
    heads = (part.words[0].text for part in reading.segments if part.words)
    spelt = re.search(r"(^|[\s;&|()!])\.([\s<>;&|()]|$)", script)
    return bool(spelt) or any(head.replace(UNKNOWN, "") == "." for head in heads)


async def compare_random_scripts(bench: Bench, seed: int, count: int) -> None:
    async with trials(bench, random_scripts(seed, count)) as seen:
        wrong = [text for trial in seen if (text := difference(trial, all_run=False))]
    assert not wrong, "\n".join(wrong)


async def test_random_scripts_without_a_doubt_are_seen_as_bash_runs_them(bench: Bench) -> None:
    await compare_random_scripts(bench, 0, 200)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 21))
async def test_many_random_scripts_without_a_doubt_are_seen_as_bash_runs_them(bench: Bench, seed: int) -> None:
    await compare_random_scripts(bench, seed, 5000)


def test_there_are_enough_scripts_and_no_two_alike() -> None:
    scripts = PLAIN + BRANCHES + TRAPS
    assert len(scripts) >= 150
    assert len(set(scripts)) == len(scripts)
