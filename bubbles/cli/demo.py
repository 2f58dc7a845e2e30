"""``bubbles demo``: the main job, with no key and no network service."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bubbles.cli.report import complain, run, spinner, styled, visible

if TYPE_CHECKING:
    from bubbles.app import Workshop
    from sandbox_backends.contract import SandboxBackend, SandboxSession, SandboxSpec

PROJECT = {
    "wordcount/__init__.py": '"""Counts words."""\n',
    "wordcount/core.py": (
        '"""Words of a text, most frequent first."""\n\n'
        "from __future__ import annotations\n\n"
        "import re\nfrom collections import Counter\n\n\n"
        "def count(text: str, top: int | None = None) -> list[tuple[str, int]]:\n"
        '    """Case-folded words with their number; ties in the order of first appearance."""\n'
        '    words = re.findall(r"[^\\W\\d_]+(?:\'[^\\W\\d_]+)?", text.casefold())\n'
        "    return Counter(words).most_common(top)\n"
    ),
    "tests/test_core.py": (
        "import unittest\n\nfrom wordcount.core import count\n\n\n"
        "class CountTest(unittest.TestCase):\n"
        "    def test_counts_whatever_the_case(self):\n"
        '        self.assertEqual(count("The cat and the hat"), [("the", 2), ("cat", 1), ("and", 1), ("hat", 1)])\n\n'
        "    def test_keeps_apostrophes_inside_words(self):\n"
        '        self.assertEqual(count("don\'t \'quote\'"), [("don\'t", 1), ("quote", 1)])\n\n'
        "    def test_takes_the_most_frequent(self):\n"
        '        self.assertEqual(count("a b b c c c", top=2), [("c", 3), ("b", 2)])\n\n'
        "    def test_counts_words_of_any_script(self):\n"
        '        self.assertEqual(dict(count("Straße 東京 straße")), {"strasse": 2, "東京": 1})\n\n\n'
        'if __name__ == "__main__":\n    unittest.main()\n'
    ),
}

GATED = (
    "python3 -m unittest -q tests.test_core 2>&1 | tail -3",
    "git -C ~/other push --force",
    "cat notes.txt && rm -rf ~",
)
"""One command of each fate."""

DIAL = """
import socket
try:
    socket.create_connection(("192.0.2.1", 80), 3)
except OSError as error:
    print("refused:", error.strerror)
"""


def demo() -> int:
    """Run a small project's tests in the strongest sandbox that works here, and show what that sandbox holds."""
    from bubbles.app import workshop
    from bubbles.config.load import load_settings

    with tempfile.TemporaryDirectory(prefix="bubbles-demo-") as directory:
        base = Path(directory).resolve()
        settings = load_settings().model_copy(update={"data_dir": base / "data"})
        with workshop(settings) as shop:
            return run(_demo(shop, base / "wordcount"))


async def _demo(shop: Workshop, project: Path) -> int:
    backend = await _strongest(shop)
    for name, text in PROJECT.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    _hand_over(project)
    spec = shop.spec(session="demo", roots=(project,))
    async with backend.open(spec) as session:
        for warning in session.warnings:
            complain(warning)
        print(f"A project in {project}, in a {styled(backend.name, 'bold')} sandbox.\n")
        passed = await _step(session, "Its tests", "python3 -m unittest -v tests.test_core")
        await session.write_file("notes.txt", b"written by a file tool\n")
        await _step(session, "Files, in both directions", "cat notes.txt; echo 'written by a command' > answer.txt; ls")
        print(f"  on the host: {(project / 'answer.txt').read_text().strip()}\n")
        await _step(session, "The network (there is none)", f"python3 -c '{DIAL}'")
        home = shop.settings.person_home
        await _step(
            session,
            "Your home (not there) and the number of processes it sees",
            f"ls -A {home} | head -3; ls /proc | grep -c '^[0-9]'",
        )
        await _step(session, "Who it is", "id; echo HOME=$HOME")
    await _gate(shop, backend.name, spec)
    await _doctor(shop, backend.name)
    program = "bubbles" if shutil.which("bubbles", path=shop.settings.host_env.get("PATH")) else ".venv/bin/bubbles"
    print(f"\nMore: '{program} sandbox exec -b {backend.name} -- CMD', '{program} sandbox doctor -v'.")
    return 0 if passed else 1


async def _strongest(shop: Workshop) -> SandboxBackend:
    from sandbox_backends.registry import BUILT_IN

    print("Looking for the strongest sandbox that works here:")
    for name in BUILT_IN:
        backend = shop.backend(name)
        probe = await backend.probe()
        print(f"  {name:<15} {'works' if probe.usable else 'no: ' + visible(f'{probe.reason} {probe.remedy}').strip()}")
        if probe.usable:
            print()
            return backend
    raise AssertionError("the local sandbox always works")


async def _step(session: SandboxSession, title: str, script: str) -> bool:
    from sandbox_backends.contract import ExecRequest

    print(styled(f"{title}", "bold"))
    for number, line in enumerate(script.splitlines()):
        print(styled(f"  {'>' if number else '$'} {line}", "dim"))
    argv = ("/bin/bash", "--noprofile", "--norc", "-c", script)
    result = await session.exec(ExecRequest(argv=argv, timeout_s=60, merge_stderr=True))
    lines = result.stdout.decode("utf-8", "replace").rstrip().splitlines()
    for line in lines[-12:] if len(lines) > 12 else lines:
        print(f"  {visible(line)}")
    print(styled(f"  {result.outcome} {'' if result.exit_code is None else result.exit_code}", "dim") + "\n")
    return result.ok


async def _gate(shop: Workshop, backend: str, spec: SandboxSpec) -> None:
    """The same sandbox behind the gate, with nobody there to be asked."""
    from bubbles.app import gate
    from bubbles.bus import Address, Origin
    from bubbles.controller.contract import DeclinedError
    from bubbles.controller.policy.contract import SHELL
    from sandbox_backends.contract import ExecRequest

    print(styled("The gate, which decides what runs without asking", "bold"))
    origin = Origin(session_key="demo", address=Address(channel="cli", chat_id="demo"), sender="demo")
    async with gate(shop, lambda _: None) as controller:
        for script in GATED:
            print(styled(f"  $ {script}", "dim"))
            try:
                ran = await controller.exec(
                    ExecRequest(argv=(*SHELL, script), timeout_s=60, merge_stderr=True),
                    shop.workplace(spec, backend),
                    origin,
                )
            except DeclinedError as declined:
                print(f"  {visible(str(declined))}\n")
            else:
                last = ran.result.stdout.decode("utf-8", "replace").strip().splitlines()[-1:]
                print(f"  It ran: {visible(ran.decision.reason)} {visible(' '.join(last))}\n")


async def _doctor(shop: Workshop, name: str) -> None:
    from bubbles.cli.doctor import show
    from sandbox_backends.probes.run import run_probes

    print(styled("What it holds, tried from inside", "bold"))
    with spinner("trying to break out"):
        report = await run_probes(name, shop.backends, shop.owner)
    show([report], shop.settings.tools.sandbox.backend, verbose=False)


def _hand_over(project: Path) -> None:
    """Under a root controller the project is given to an ordinary user, as a real one would be, if there is one."""
    import os

    if os.geteuid() == 0:
        for path in (project, *project.rglob("*")):
            os.chown(path, 65534, 65534)
        project.parent.chmod(0o755)
