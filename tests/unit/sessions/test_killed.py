"""A program that is killed at any instant of making a session's files: the next one puts all of it right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bubbles.sessions import beneath

KILLED = """
import os, signal, sys
from pathlib import Path
from bubbles.providers.contract import Image
from bubbles.sessions import workspace
from bubbles.sessions.blobs import Blobs
from bubbles.sessions.contract import Folders

EVENTS = {"os.mkdir", "os.link", "os.rename", "os.remove", "os.symlink"}
base, template = map(Path, sys.argv[1:])

def work(home, pictures):
    folders = Folders(key="work", desk=home / "sessions/work", state=home / "session_state/work")
    for warning in workspace.prepare(folders, template):
        print(warning)
    for picture in pictures:
        Blobs(folders.state / "blobs").put(Image(media_type="image/png", data=picture * 9_000))

work(base / "whole", (b"a", b"b"))
count = 0
while True:
    count += 1
    child = os.fork()
    if child == 0:
        left = [count]
        def hook(event, arguments):
            left[0] -= event in EVENTS or (event == "open" and bool(arguments[2] & os.O_WRONLY))
            if left[0] == 0:
                left[0] = -1  # kill is an event too
                os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
        work(base / str(count), (b"a",))
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    work(base / str(count), (b"a", b"b"))
    if status == 0:
        break
sys.exit(0 if count > 20 else "there was little to kill")
"""


@pytest.mark.req("CTX-04", "SESS-01")
def test_session_whose_first_start_was_killed_anywhere_is_whole_at_the_next(tmp_path: Path) -> None:
    template = tmp_path / "template"
    for name in ("weather/SKILL.md", "weather/bin/run.sh", "zoo/SKILL.md"):
        (template / name).parent.mkdir(parents=True, exist_ok=True)
        (template / name).write_text(name)
    base = tmp_path / "homes"
    base.mkdir()
    argv = [sys.executable, "-c", KILLED, str(base), str(template)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    whole = _names(base / "whole")
    assert "sessions/work/skills/weather/bin/run.sh" in whole
    for home in base.iterdir():
        assert _names(home) == whole, home
        desk = home / "sessions" / "work"
        assert "Soul" in (beneath.read_text(desk, "SOUL.md", 10_000) or "")
        assert beneath.read_text(desk, "skills/zoo/SKILL.md", 10_000) == "zoo/SKILL.md"


def _names(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*"))
