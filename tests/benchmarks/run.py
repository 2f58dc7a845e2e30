"""``make bench``: what a sandbox and the gate cost, in one run, against what a user would take instead.

Every figure is the median of samples taken in turn with its rivals (A B C A B C …), since the machine is noisy and its
speed drifts: ratios hold, milliseconds only roughly. Needs Docker with the sandbox image, and bubblewrap; what is
missing is left out. ``--json`` for scripts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from bubbles.controller.policy.contract import SHELL
from sandbox_backends.contract import ExecRequest, SandboxSession
from tests.benchmarks import core, decisions, gateway, mcp_servers
from tests.places import Bench, make_bench

Work = Callable[[], Awaitable[object]]
TRUE = ExecRequest(argv=("/bin/true",), timeout_s=30)
FLOOD_BYTES = 400_000_000


async def spawn(*argv: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    if await process.wait() != 0:
        raise RuntimeError(f"{argv} failed")


async def in_turn(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Median milliseconds of each, sampled round by round."""
    for work in works.values():
        await work()
    samples: dict[str, list[float]] = {name: [] for name in works}
    order = list(works)
    for _ in range(rounds):
        random.shuffle(order)  # whoever comes after another pays for what that one left to be done
        for name in order:
            started = time.perf_counter()
            await works[name]()
            samples[name].append((time.perf_counter() - started) * 1e3)
    return {name: statistics.median(values) for name, values in samples.items()}


class Table:
    """Rows of measure, figure, goal; printed as Markdown."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, measure: str, figure: float, unit: str, goal: float | None = None, *, least: bool = False) -> None:
        met = None if goal is None else (figure >= goal if least else figure <= goal)
        self.rows.append(
            {"measure": measure, "figure": round(figure, 3), "unit": unit, "goal": goal, "at_least": least, "met": met}
        )

    def text(self) -> str:
        lines = ["| measure | here | goal | |", "|---|---|---|---|"]
        for row in self.rows:
            goal = "" if row["goal"] is None else f"{'≥' if row['at_least'] else '≤'} {row['goal']:g} {row['unit']}"
            mark = {None: "", True: "met", False: "**missed**"}[row["met"]]
            figure = f"{row['figure']:.0f}" if row["figure"] >= 100 else f"{row['figure']:.3g}"
            lines.append(f"| {row['measure']} | {figure} {row['unit']} | {goal} | {mark} |")
        return "\n".join(lines)


def container_of(session: SandboxSession) -> Any:
    import docker

    client = docker.from_env()
    for container in client.containers.list():
        if session.id in str(container.labels) or session.id in container.name:
            return container
    raise RuntimeError("the session's container was not found")


def one_shot_bwrap(project: Path) -> tuple[str, ...]:
    args = "--unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib"
    more = "--symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp"
    return ("bwrap", *args.split(), *more.split(), "--bind", str(project), str(project), "/bin/true")


async def bench_exec(table: Table, bench: Bench, sessions: dict[str, SandboxSession], rounds: int) -> None:
    """The sessions against the floor; then what a user would take instead, whose load would chill all caches."""
    works: dict[str, Work] = {"floor": lambda: spawn("true")}
    for name, session in sessions.items():
        works[name] = lambda session=session: session.exec(TRUE)  # type: ignore[misc]
    found = await in_turn(works, 4 * rounds)
    goals = {"docker": 1.5, "bubblewrap": 1.2, "local": 1.2, "local_isolated": 1.2}
    table.add("floor: a bare asyncio subprocess, `true`", found["floor"], "ms")
    for name in sessions:
        table.add(f"exec in an open {name} session", found[name] / found["floor"], "x floor", goals.get(name))
    rivals: dict[str, Work] = {"floor": works["floor"]}
    if shutil.which("bwrap"):
        rivals["one-shot bwrap"] = lambda: spawn(*one_shot_bwrap(bench.project))
    if "docker" in sessions:
        container = container_of(sessions["docker"])
        rivals["docker session"] = works["docker"]
        rivals["docker exec"] = lambda: spawn("docker", "exec", container.id, "/bin/true")
        rivals["docker-py exec_run"] = lambda: asyncio.to_thread(container.exec_run, ["/bin/true"])
    found = await in_turn(rivals, rounds)
    for name in rivals:
        if name not in ("floor", "docker session"):
            table.add(name, found[name] / found["floor"], "x floor")
    if "docker" in sessions:
        ratio = found["docker exec"] / found["docker session"]
        table.add("docker exec ÷ exec in an open docker session", ratio, "x", 20, least=True)


async def bench_ready(table: Table, bench: Bench, names: list[str], rounds: int) -> None:
    async def ready(name: str) -> float:
        started = time.perf_counter()
        async with bench.open(name) as session:
            await session.stat(".")
            return (time.perf_counter() - started) * 1e3

    samples: dict[str, list[float]] = {name: [] for name in [*names, "bare"]}
    for _ in range(rounds):
        for name in names:
            samples[name].append(await ready(name))
        if "docker" in names:
            samples["bare"].append(await asyncio.to_thread(bare_create_and_start, bench.settings.docker_image))
    for name in names:
        took = statistics.median(samples[name])
        table.add(f"{name} session ready", took, "ms", 60 if name == "bubblewrap" else None)
    if "docker" in names:
        bare = statistics.median(samples["bare"])
        table.add("bare docker create + start", bare, "ms")
        table.add("docker session ready ÷ bare create + start", statistics.median(samples["docker"]) / bare, "x", 1.3)


def bare_create_and_start(image: str) -> float:
    import docker

    api = docker.from_env().api
    started = time.perf_counter()
    config = api.create_host_config(network_mode="none")
    ident = api.create_container(image, ["sleep", "60"], host_config=config)["Id"]
    api.start(ident)
    took = (time.perf_counter() - started) * 1e3
    api.remove_container(ident, force=True)
    return took


async def bench_flood(table: Table, sessions: dict[str, SandboxSession]) -> None:
    """400 MB of output in each place, kept (head and tail) and streamed: the slowest, and the largest growth."""
    measured = [await flood(session, streamed) for session in sessions.values() for streamed in (False, True)]
    places = f"{len(sessions)} places, kept and streamed"
    table.add(f"400 MB of output, {places}: slowest", min(speed for speed, _ in measured), "MB/s", 40, least=True)
    table.add("… the controller grows by at most", max(grown for _, grown in measured), "MB", 8)


async def flood(session: SandboxSession, streamed: bool) -> tuple[float, float]:
    """(MB/s, MB that this process grew by at its largest)."""
    process = psutil.Process()
    request = ExecRequest(argv=("head", "-c", str(FLOOD_BYTES), "/dev/zero"), timeout_s=120)
    before = peak = process.memory_info().rss

    async def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, process.memory_info().rss)
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    started = time.perf_counter()
    result = await session.exec(request, on_output=(lambda *_: None) if streamed else None)
    took = time.perf_counter() - started
    watching.cancel()
    assert result.dropped_bytes == FLOOD_BYTES - request.max_output_bytes, result
    return FLOOD_BYTES / 1e6 / took, (max(peak, process.memory_info().rss) - before) / 1e6


async def bench_docker(table: Table, session: SandboxSession, rounds: int) -> None:
    data = os.urandom(4096)
    works: dict[str, Work] = {
        "write_file": lambda: session.write_file("bench.bin", data),
        "read_file": lambda: session.read_file("bench.bin"),
    }
    for name, took in (await in_turn(works, rounds)).items():
        table.add(f"{name} of 4 kB in docker", took, "ms", 2)

    async def together() -> None:
        await asyncio.gather(*(session.exec(TRUE) for _ in range(32)))

    took = (await in_turn({"32": together}, max(5, rounds // 10)))["32"]
    table.add("32 concurrent execs in one docker session, each", took / 32, "ms", 4)


async def bench_idle(table: Table, bench: Bench, more: int = 4) -> None:
    """What one more idle session takes: the first also pays for pages that all of them share."""
    async with AsyncExitStack() as stack:
        before = await asyncio.to_thread(docker_bytes)
        for number in range(more):
            await stack.enter_async_context(bench.open("docker", bench.spec(session=f"idle-{number}")))
        grown = await asyncio.to_thread(docker_bytes) - before
    table.add("one more idle docker session, container and shim", grown / more / 1e6, "MB", 8)
    left = await asyncio.to_thread(docker_bytes) - before
    table.add("what is left of it once it is reaped", max(0, left) / more / 1e6, "MB", 0.1)


def docker_bytes() -> int:
    """Memory of all our runners and of the engine's shims, shared pages counted by share (PSS)."""
    total = 0
    for process in psutil.process_iter(["name", "cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if "containerd-shim" in (process.info["name"] or "") or "/runner/start.py --unix" in line:
            try:
                rows = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            total += sum(int(row.split()[1]) * 1024 for row in rows if row.startswith("Pss:"))
    return total


async def measure(rounds: int) -> Table:
    table = Table()
    with tempfile.TemporaryDirectory(prefix="bubbles-bench-") as directory:
        bench = make_bench(Path(directory) / "bench")
        async with AsyncExitStack() as stack:
            sessions: dict[str, SandboxSession] = {}
            for name in ("local", "local_isolated", "bubblewrap", "docker"):
                probe = await bench.backend(name).probe()
                if probe.usable:
                    sessions[name] = await stack.enter_async_context(bench.open(name))
                else:
                    print(f"left out: {name}: {probe.reason}", file=sys.stderr)
            await bench_exec(table, bench, sessions, rounds)
            await bench_flood(table, sessions)
            if "docker" in sessions:
                await bench_docker(table, sessions["docker"], rounds)
                await bench_idle(table, bench)
            await bench_ready(table, bench, list(sessions), max(5, rounds // 10))
        bench.owner.close()
        for (name, count), took in decisions.measure(Path(directory) / "decisions", rounds).items():
            table.add(f"a decision, {name}, {count:,} rules", took, "µs", 200)
        await bench_core(table, Path(directory) / "core", rounds)
        await bench_gateway(table, Path(directory) / "gateway")
    return table


async def bench_core(table: Table, home: Path, rounds: int) -> None:
    """The assistant itself: start-up of the command, a tool call in a turn, many sessions."""
    home.mkdir()
    took = await core.starts(home, in_turn, max(10, rounds // 5))
    bare = took["python -c pass"]
    table.add("python -c pass", bare, "ms")
    table.add("bubbles --help", took["bubbles --help"] / bare, "x python -c pass", 8)
    table.add("bubbles status", took["bubbles status"] / bare, "x python -c pass")
    table.add("bubbles agent -m, custom provider, no tool call", took["bubbles agent -m"] / 1e3, "s", 0.5)
    deaf = "… the same with 5 MCP servers that never answer, their end included"
    table.add(deaf, took["with deaf servers"] / 1e3, "s", 1)
    called = await core.tool_calls(home, lambda: spawn(*SHELL, "true 1"))
    bare_call = "x a bare asyncio subprocess of it"
    table.add("a tool call of a turn on local, request, records and history included", called["call"], "ms")
    table.add("… over the same command by itself", called["call"] / called["floor"], bare_call, 3)
    table.add("calls 131 to 150 ÷ calls 1 to 20 of one turn", called["late"], "x", 1.3)
    crowd = await core.crowd(home)
    table.add(f"{core.SESSIONS} sessions, {core.TURNS} turns each, at once", crowd["turns_per_s"], "turns/s")
    table.add("… memory after the last turn less that after the first third", crowd["growth_mb"], "MB", 2)
    added = await mcp_servers.measure(home / "mcp", max(20, 2 * rounds))
    turn = f"a turn of {mcp_servers.CALLS} calls, custom provider, commands on local"
    table.add(turn, added["none_ms"], "ms")
    table.add("… 5 MCP servers of 30 tools add", added["adds_percent"], "%", 5)
    table.add("… to our own processor time", added["adds_cpu_percent"], "%", 5)


async def bench_gateway(table: Table, home: Path) -> None:
    """The long-running form: idle, and at work."""
    idle = await gateway.idle(home / "idle")
    table.add("bubbles gateway without a channel: healthy after", idle["healthy_s"], "s", 1)
    table.add("… resident memory, idle", idle["mb"], "MB", 60)
    table.add("… processor time while idle", idle["cpu_percent"], "% of a core", 0.5)
    table.add("… libraries of platforms and models that it has imported", idle["libraries"], "", 0)
    for sessions, (speed, part) in (await gateway.turns(home / "turns")).items():
        at_once = f"{sessions} sessions at once" if sessions > 1 else "one session"
        table.add(f"turns through the whole gateway, {at_once}", speed, "turns/s")
        table.add("… ÷ the same turns through the dispatcher, without ledger and channel", part, "x")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    table = asyncio.run(measure(chosen.rounds))
    print(json.dumps(table.rows, indent=2) if chosen.json else table.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
