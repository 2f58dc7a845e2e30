"""``bubbles demo``: the main job, with no key and no network. The model is a script; everything else is real."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bubbles.cli.report import complain, run, spinner, styled, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bubbles.app.workshop import Workshop
    from bubbles.bus import Origin, OutboundMessage
    from bubbles.controller.approvals.contract import Answer, ApprovalCard
    from bubbles.providers.contract import ModelRequest, ToolCall
    from bubbles.providers.scripted import Step
    from bubbles.tools.contract import ToolResult
    from sandbox_backends.contract import SandboxBackend

TASK = (
    "Write a module that counts the words of a text, most frequent first, whatever their case, with tests. "
    "Then count the words of notes.txt, and clean up after yourself."
)
NOTES = "The cat and the hat.\nDon't feed the cat: the cat has fed itself.\n"
MODULE = (
    '"""Words of a text, most frequent first."""\n\n'
    "import re\nimport sys\nfrom collections import Counter\n\n\n"
    "def count(text, top=None):\n"
    '    """Words with their number; ties in the order of first appearance."""\n'
    '    words = re.findall(r"[^\\W\\d_]+(?:\'[^\\W\\d_]+)?", text)\n'
    "    return Counter(words).most_common(top)\n\n\n"
    'if __name__ == "__main__":\n'
    "    for word, number in count(open(sys.argv[1], encoding='utf-8').read(), 3):\n"
    "        print(number, word)\n"
)
TESTS = (
    "import unittest\n\nfrom wordcount import count\n\n\n"
    "class CountTest(unittest.TestCase):\n"
    "    def test_counts_whatever_the_case(self):\n"
    '        self.assertEqual(count("The cat and the hat")[0], ("the", 2))\n\n'
    "    def test_keeps_apostrophes_inside_words(self):\n"
    '        self.assertEqual(count("don\'t \'quote\'"), [("don\'t", 1), ("quote", 1)])\n\n'
    "    def test_counts_words_of_any_script(self):\n"
    '        self.assertEqual(dict(count("Straße 東京 straße")), {"strasse": 2, "東京": 1})\n'
)
RUN_TESTS = "python3 -m unittest -q test_wordcount 2>&1 | tail -4"
ASKED = "python3 wordcount.py notes.txt"
DECLINED = "rm -rf ~"
PATIENCE_S = 60.0
"""How long the demo waits for an answer at a terminal."""


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the measuring of the sandbox.")] = False,
) -> int:
    """Let a scripted model do a small task in the strongest sandbox that works here, then measure that sandbox.

    No key and no network is needed. Loop, gate, sandbox and history are the real ones; only the model is a script.
    """
    from bubbles.app.workshop import workshop
    from bubbles.config.load import load_settings

    settings = load_settings()
    approvals = settings.tools.approvals.model_copy(update={"mode": "ask", "timeout_s": PATIENCE_S})
    tools = settings.tools.model_copy(update={"approvals": approvals})
    with tempfile.TemporaryDirectory(prefix="bubbles-demo-") as directory:
        base = Path(directory).resolve()
        project = base / "project"
        project.mkdir()
        (project / "notes.txt").write_text(NOTES, encoding="utf-8")
        _hand_over(project)
        settings = settings.model_copy(update={"data_dir": base / "data", "tools": tools})
        with workshop(settings) as shop:
            return run(_demo(shop, project, quick))


async def _demo(shop: Workshop, project: Path, quick: bool) -> int:
    backend = await _strongest(shop)
    print(f"{styled('The model is a script', 'bold')}: it asks for what a model would ask for. All else is real.")
    print(f"Project: {project}, sandbox: {styled(backend.name, 'bold')}.\n")
    print(f"{styled('you', 'bold')}   {TASK}\n")
    stage = Stage()
    await _play(shop, project, backend.name, stage)
    if not quick:
        await _doctor(shop, backend.name)
    program = "bubbles" if shutil.which("bubbles", path=shop.settings.host_env.get("PATH")) else ".venv/bin/bubbles"
    print(f"\nNext: '{program} onboard' and '{program} agent'. Without a model: '{program} sandbox exec -- CMD'.")
    return 0 if stage.as_it_should else 1


class Stage:
    """Shows the turn, and keeps what is needed to tell whether it went as it should."""

    def __init__(self) -> None:
        self.results: list[tuple[str, ToolResult]] = []
        self.asked = 0
        self.answer = ""

    @property
    def as_it_should(self) -> bool:
        texts = [result.text for _, result in self.results]
        tested = any("OK" in text and "Ran" in text for text in texts) or any(text.strip() == "OK" for text in texts)
        return bool(self.answer) and self.asked == 1 and tested and any("declined without asking" in t for t in texts)

    # -- what an observer sees --

    def text(self, piece: str) -> None:
        print(piece, end="", flush=True)

    def withdrawn(self) -> None:
        print()

    def reply_ended(self) -> None:
        print()

    def tool(self, call: ToolCall, hint: str) -> None:
        del call
        print(styled(f"  → {hint}", "dim"))

    def result(self, call: ToolCall, result: ToolResult, duration_s: float) -> None:
        self.results.append((call.name, result))
        for line in result.text.rstrip().splitlines()[:6]:
            print(styled(f"    {visible(line)}", "dim"))
        took = f"{duration_s * 1e3:.0f} ms" if duration_s < 1 else f"{duration_s:.1f} s"
        print(styled(f"    {took}", "dim"))

    def notice(self, sentence: str) -> None:
        complain(sentence)

    # -- what comes for the person --

    async def send(self, message: OutboundMessage) -> None:
        from bubbles.bus import Kind

        if message.kind is Kind.REPLY:
            self.answer = message.text
        elif message.kind is Kind.NOTICE:
            complain(message.text)


class DemoApprover:
    """The terminal, if there is one; else the card is shown and nobody answers it."""

    def __init__(self, stage: Stage) -> None:
        from bubbles.controller.approvals.terminal import TerminalApprover

        self._stage = stage
        self._terminal = TerminalApprover()

    async def show(self, card: ApprovalCard, origin: Origin) -> Answer | None:
        from bubbles.controller.approvals.card import WIDTH, render
        from bubbles.controller.approvals.contract import Outcome

        self._stage.asked += 1
        answer = await self._terminal.show(card, origin)
        if answer is not None and answer.outcome is Outcome.NOBODY:
            print(render(card, WIDTH))
        return answer

    async def close(self, card: ApprovalCard, answer: Answer) -> None:
        await self._terminal.close(card, answer)


async def _play(shop: Workshop, project: Path, backend: str, stage: Stage) -> None:
    from bubbles.app.assistant import assistant
    from bubbles.bus import Address, InboundMessage
    from bubbles.providers.scripted import ScriptedProvider

    approver = DemoApprover(stage)
    async with assistant(
        shop,
        approver_for=lambda _: approver,
        send=stage.send,
        observer_for=lambda _: stage,
        project=project,
        backend=backend,
        provider=ScriptedProvider(_script()),
        on_warning=complain,
        goes_on=False,
    ) as bubbles:
        address = Address(channel="cli", chat_id="demo")
        await bubbles.dispatcher.deliver(InboundMessage(address=address, sender="demo", text=TASK, session_key="demo"))
        await bubbles.dispatcher.idle()
    print()


def _script() -> Iterator[Step]:
    """What a model would do here, mistake included: the first version fails a test and is mended."""
    from bubbles.providers.scripted import calls

    todo = ["the module and its tests", "the words of notes.txt", "clean up"]

    def todo_list(done: int, doing: int | None) -> tuple[str, dict[str, Any]]:
        states = ["done" if n < done else "doing" if n == doing else "todo" for n in range(len(todo))]
        return "todo", {"items": [{"title": t, "status": s} for t, s in zip(todo, states, strict=True)]}

    yield calls(
        todo_list(0, 0),
        ("write_file", {"path": "wordcount.py", "content": MODULE}),
        ("write_file", {"path": "test_wordcount.py", "content": TESTS}),
        ("exec", {"script": RUN_TESTS}),
        text="I write the module and its tests, and run them.",
    )
    yield calls(
        ("edit_file", {"path": "wordcount.py", "old": '_]+)?", text)', "new": '_]+)?", text.casefold())'}),
        ("exec", {"script": RUN_TESTS}),
        text="Case is not folded yet: I mend that and run the tests again.",
    )
    yield calls(
        todo_list(1, 1),
        ("exec", {"script": ASKED}),
        text="Now the words of notes.txt. Running a program of one's own is asked about.",
    )
    yield lambda request: calls(
        todo_list(2 if _counted(request) else 1, 2),
        ("exec", {"script": DECLINED}),
        text="Last, I do something that no assistant should: I clean up far too much.",
    )
    yield _closing


def _counted(request: ModelRequest) -> bool:
    """Whether the command that was asked about ran."""
    return any(str(getattr(message, "text", "")).startswith("4 the") for message in request.messages)


def _closing(request: ModelRequest) -> str:
    """The last reply says what the results said."""
    counted = "counted the words of notes.txt"
    about = counted if _counted(request) else "did not count the words of notes.txt: you did not say yes"
    return f"The module works and its tests pass. I {about}. Deleting your home was declined, as it should be."


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


async def _doctor(shop: Workshop, name: str) -> None:
    from bubbles.cli.doctor import show
    from sandbox_backends.probes.run import run_probes

    print(styled("What this sandbox holds, tried from inside", "bold"))
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
