"""The template's skills come to a session, and what its person made of them stays."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bubbles.sessions import skillset, workspace
from bubbles.sessions.contract import Folders
from bubbles.sessions.lock import SessionLock
from bubbles.sessions.skillset import Brought
from bubbles.skills.sync import sync

pytestmark = pytest.mark.req("SESS-05", "SKILL-02")


class Setting:
    def __init__(self, home: Path) -> None:
        self.template = home / "template"
        self.folders = Folders(key="s", desk=home / "sessions/s", state=home / "session_state/s")
        self.offer("pdf", "SKILL.md", "version 1")
        self.offer("pdf", "bin/run.sh", "echo 1", executable=True)
        self.offer("tmux", "SKILL.md", "tmux 1")
        workspace.prepare(self.folders, self.template)

    def offer(self, skill: str, name: str, text: str, *, executable: bool = False) -> None:
        path = self.template / skill / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if executable else 0o644)

    def bring(self) -> Brought:
        return skillset.bring(self.folders, self.template)

    def own(self, name: str) -> Path:
        return self.folders.desk / "skills" / name


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def test_a_new_session_has_the_skills_and_a_second_look_finds_nothing_to_do(setting: Setting) -> None:
    assert setting.own("pdf/SKILL.md").read_text() == "version 1"
    assert os.access(setting.own("pdf/bin/run.sh"), os.X_OK)
    kept = (setting.folders.state / skillset.GIVEN).read_bytes()
    assert setting.bring() == Brought()
    assert (setting.folders.state / skillset.GIVEN).read_bytes() == kept


def test_a_new_skill_and_a_changed_one_come(setting: Setting) -> None:
    setting.offer("xlsx", "SKILL.md", "x")
    setting.offer("pdf", "SKILL.md", "version 2")
    setting.offer("pdf", "more/notes.md", "n")
    assert setting.bring() == Brought(added=("xlsx",), updated=("pdf",))
    assert setting.own("pdf/SKILL.md").read_text() == "version 2"
    assert setting.own("pdf/more/notes.md").read_text() == "n"
    assert setting.own("xlsx/SKILL.md").read_text() == "x"
    assert setting.bring() == Brought()


@pytest.mark.parametrize("name", ["pdf/SKILL.md", "pdf/bin/run.sh"])
def test_an_edited_skill_is_left_as_it_is_whole_and_for_good(setting: Setting, name: str) -> None:
    setting.own(name).write_text("mine")
    assert setting.bring() == Brought(edited=("pdf",))
    for version in ("version 2", "version 3"):
        setting.offer("pdf", "SKILL.md", version)
        setting.offer("pdf", "bin/run.sh", f"echo {version}")
        assert setting.bring() == Brought(edited=("pdf",))
        assert setting.own(name).read_text() == "mine"
    assert {setting.own("pdf/SKILL.md").read_text(), setting.own("pdf/bin/run.sh").read_text()} == {
        "mine",
        "echo 1" if name == "pdf/SKILL.md" else "version 1",
    }


def test_a_skill_that_was_taken_out_stays_out_and_what_was_added_stays(setting: Setting) -> None:
    for path in (setting.own("pdf/bin/run.sh"), setting.own("pdf/SKILL.md")):
        path.unlink()
    setting.own("mine").mkdir()
    setting.own("mine/SKILL.md").write_text("my own")
    setting.own("tmux/extra.txt").write_text("beside")
    setting.offer("pdf", "SKILL.md", "version 2")
    setting.offer("pdf", "new.md", "n")
    setting.offer("tmux", "SKILL.md", "tmux 2")
    assert setting.bring() == Brought(updated=("tmux",), taken_out=("pdf",))
    assert not setting.own("pdf/SKILL.md").exists()
    assert not setting.own("pdf/new.md").exists()
    assert setting.own("mine/SKILL.md").read_text() == "my own"
    assert setting.own("tmux/extra.txt").read_text() == "beside"


def test_a_part_that_was_taken_out_is_an_edit(setting: Setting) -> None:
    setting.own("pdf/bin/run.sh").unlink()
    setting.offer("pdf", "SKILL.md", "version 2")
    assert setting.bring() == Brought(edited=("pdf",))
    assert not setting.own("pdf/bin/run.sh").exists()
    assert setting.own("pdf/SKILL.md").read_text() == "version 1"


def test_an_edit_that_the_template_made_too_is_none(setting: Setting) -> None:
    setting.own("pdf/SKILL.md").write_text("version 2")
    setting.offer("pdf", "SKILL.md", "version 2")
    assert setting.bring() == Brought()
    setting.offer("pdf", "SKILL.md", "version 3")
    assert setting.bring() == Brought(updated=("pdf",))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 5}', '{"files": {"pdf/SKILL.md": 5}}'])
def test_without_a_record_nothing_that_differs_is_overwritten(setting: Setting, text: str) -> None:
    (setting.folders.state / skillset.GIVEN).write_text(text)
    setting.own("tmux/SKILL.md").write_text("mine")
    setting.offer("pdf", "SKILL.md", "version 2")
    assert setting.bring() == Brought(edited=("pdf", "tmux"))
    assert setting.own("pdf/SKILL.md").read_text() == "version 1"


def test_what_was_cut_off_goes_on(setting: Setting) -> None:
    """Killed after the first file of an update was written, and before that was on record."""
    setting.offer("pdf", "SKILL.md", "version 2")
    setting.offer("pdf", "bin/run.sh", "echo 2")
    setting.own("pdf/SKILL.md").write_text("version 2")
    assert setting.bring() == Brought(updated=("pdf",))
    assert setting.own("pdf/bin/run.sh").read_text() == "echo 2"


@pytest.mark.req("SESS-09")
def test_links_and_pipes_in_the_way_are_neither_read_nor_written_through(setting: Setting, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("version 1")
    setting.own("pdf/SKILL.md").unlink()
    setting.own("pdf/SKILL.md").symlink_to(outside)
    setting.own("tmux/SKILL.md").unlink()
    os.mkfifo(setting.own("tmux/SKILL.md"))
    setting.offer("pdf", "SKILL.md", "version 2")
    setting.offer("tmux", "SKILL.md", "tmux 2")
    assert setting.bring() == Brought(refused=("pdf", "tmux"))
    assert outside.read_text() == "version 1"
    assert stat.S_ISFIFO(setting.own("tmux/SKILL.md").lstat().st_mode)


@pytest.mark.req("SESS-09")
def test_a_skills_folder_that_leads_elsewhere_is_not_followed(setting: Setting, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    setting.own(".").rename(elsewhere)
    (setting.folders.desk / "skills").symlink_to(elsewhere)
    setting.offer("xlsx", "SKILL.md", "x")
    assert setting.bring().refused == ("pdf", "tmux", "xlsx")
    assert not (elsewhere / "xlsx").exists()


def test_a_session_at_work_is_said_and_holds_up_no_other(setting: Setting, tmp_path: Path) -> None:
    other = Folders(key="o", desk=tmp_path / "sessions/o", state=tmp_path / "session_state/o")
    workspace.prepare(other, setting.template)
    setting.offer("xlsx", "SKILL.md", "x")
    lock = SessionLock("s", setting.folders.state / "lock", "a test")
    lock.take(datetime.now(UTC))
    try:
        busy, done = sync(iter((setting.folders, other)), setting.template)
    finally:
        lock.release()
    assert busy.busy
    assert "in use" in busy.problem
    assert (done.problem, done.brought.added) == ("", ("xlsx",))
    assert not setting.own("xlsx").exists()


def test_what_a_crash_left_half_written_is_removed_by_the_next_one(setting: Setting) -> None:
    half = setting.own("pdf/.SKILL.md.0123456789abcdef")
    other = setting.own("pdf/.SKILL.md.notes")
    for path in (half, other):
        path.write_text("x")
    setting.offer("pdf", "SKILL.md", "version 2")
    assert setting.bring() == Brought(updated=("pdf",))
    assert (half.exists(), other.exists()) == (False, True)
