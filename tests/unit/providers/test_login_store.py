"""Logins on the disk: private, whole, read with care, and one process at a time at each."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bubbles.providers.logins.contract import Login, LoginBusyError, LoginError, NotLoggedInError
from bubbles.providers.logins.lock import FileLock
from bubbles.providers.logins.store import LoginStore, known_secrets

pytestmark = pytest.mark.req("PROV-03", "SEC-03")

NOW = datetime(2026, 12, 1, 9, tzinfo=UTC)
LOGIN = Login(
    provider="openai_codex",
    refresh_token="rt_walrus-in-tweed",
    access_token="at_kelp-and-driftwood",
    expires_at=NOW,
    account="acc-1",
    person="ann@example.org",
    more={"issuer": "https://auth.openai.com"},
    made_at=NOW,
    renewed_at=NOW,
)


@pytest.fixture
def store(tmp_path: Path) -> LoginStore:
    return LoginStore(tmp_path / "data")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def spoiled(store: LoginStore, **changes: Any) -> Path:
    store.write(LOGIN)
    path = store.path("openai_codex")
    kept = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(kept))
    return path


def test_what_is_written_is_read_again_and_only_its_owner_can(store: LoginStore) -> None:
    assert store.read("openai_codex") is None
    store.write(LOGIN)
    assert store.read("openai_codex") == LOGIN
    path = store.path("openai_codex")
    assert (mode(path), mode(store.folder), mode(store.folder.parent)) == (0o600, 0o700, 0o700)
    assert [one.name for one in store.folder.iterdir()] == ["openai_codex.json"]
    assert store.remove("openai_codex")
    assert not store.remove("openai_codex")


def test_a_wide_umask_or_folder_opens_nothing(store: LoginStore) -> None:
    store.folder.mkdir(mode=0o755, parents=True)
    before = os.umask(0)
    try:
        store.write(LOGIN)
    finally:
        os.umask(before)
    assert (mode(store.path("openai_codex")), mode(store.folder)) == (0o600, 0o700)


def test_a_file_that_others_could_read_is_made_private_and_that_is_said(
    store: LoginStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.write(LOGIN)
    path = store.path("openai_codex")
    path.chmod(0o644)
    assert store.read("openai_codex") == LOGIN
    assert mode(path) == 0o600
    assert "can be read or changed by others (mode 0644): it is private now" in caplog.text


def test_no_text_of_a_login_has_a_token() -> None:
    assert "walrus" not in repr(LOGIN)
    assert "kelp" not in repr(LOGIN)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"refresh_token": ""}, "its tokens are missing"),
        ({"refresh_token": 7}, "'refresh_token' is no short text"),
        ({"access_token": "a\nb"}, "'access_token' is no short text"),
        ({"access_token": "é"}, "its tokens are missing, or none"),
        ({"provider": "github_copilot"}, "another provider"),
        ({"expires_at": "soon"}, "expires_at is no date"),
        ({"made_at": "2026-12-01T09:00:00"}, "made_at is no date with a zone"),
        ({"more": ["x"]}, "more is no mapping"),
        ({"more": {"x": {}}}, "'x' is no short text"),
        ({"person": "x" * 3_000}, "'person' is no short text"),
    ],
)
def test_a_damaged_file_is_kept_aside_and_one_sentence_says_so(
    store: LoginStore, changes: dict[str, Any], why: str
) -> None:
    path = spoiled(store, **changes)
    text = path.read_text()
    with pytest.raises(NotLoggedInError) as told:
        store.read("openai_codex")
    said = str(told.value)
    assert why in said
    assert said.endswith("Log in: bubbles provider login openai_codex")
    assert "walrus" not in said
    (aside,) = store.folder.glob("openai_codex.json.damaged-*")
    assert str(aside) in said
    assert (aside.read_text(), mode(aside)) == (text, 0o600)
    assert store.read("openai_codex") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b'"\\ud800"', b'{"provider": "openai_codex"', b"null"])
def test_what_is_no_json_object_is_kept_aside_too(store: LoginStore, content: bytes) -> None:
    store.write(LOGIN)
    store.path("openai_codex").write_bytes(content)
    with pytest.raises(NotLoggedInError, match="no JSON object"):
        store.read("openai_codex")


def test_what_cannot_be_read_or_written_is_a_sentence(store: LoginStore) -> None:
    store.path("openai_codex").mkdir(parents=True)
    with pytest.raises(LoginError, match="it is a directory"):
        store.read("openai_codex")
    with pytest.raises(LoginError, match="cannot be written") as told:
        store.write(LOGIN)
    assert told.value.__cause__ is None
    assert told.value.__context__ is None  # no token hangs on it


def test_a_pipe_in_its_place_is_not_waited_for(store: LoginStore) -> None:
    store.folder.mkdir(parents=True)
    os.mkfifo(store.path("openai_codex"))
    with pytest.raises(LoginError, match="a device or pipe"):
        store.read("openai_codex")


def test_all_tokens_are_known_to_the_redactor_whatever_the_files_are_like(store: LoginStore) -> None:
    data = store.folder.parent
    assert known_secrets(data) == ()
    store.write(LOGIN)
    store.write(replace(LOGIN, provider="github_copilot", refresh_token="ghu_otter", access_token=""))
    assert set(known_secrets(data)) == {"rt_walrus-in-tweed", "at_kelp-and-driftwood", "ghu_otter"}
    store.path("openai_codex").write_bytes(b"\xff")
    assert known_secrets(data) == ("ghu_otter",)


async def test_a_lock_is_waited_for_and_given_back(tmp_path: Path) -> None:
    one, other = (FileLock("openai_codex", tmp_path / "data" / "logins" / "x.lock") for _ in range(2))
    order: list[str] = []

    async def second() -> None:
        async with other.held():
            order.append("second")

    async with asyncio.TaskGroup() as group, one.held():
        waiting = group.create_task(second())
        with pytest.raises(LoginBusyError, match="another process is at work on the login"):
            async with FileLock("openai_codex", tmp_path / "data" / "logins" / "x.lock").held(0.05):
                pass
        assert not waiting.done()
        order.append("first")
    assert order == ["first", "second"]


async def test_one_who_gave_up_waiting_keeps_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "logins" / "x.lock"
    one, other = FileLock("openai_codex", path), FileLock("openai_codex", path)
    async with one.held():
        for _ in range(3):
            with pytest.raises(LoginBusyError):
                async with other.held(0.01):
                    pass
        cancelled = asyncio.ensure_future(other.held().__aenter__())
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
    for lock in (one, other, one):
        async with lock.held(5.0):
            pass


async def test_a_lock_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LoginError, match=r"x\.lock cannot be used"):
        async with FileLock("openai_codex", tmp_path / "file" / "logins" / "x.lock").held():
            pass


async def test_many_tasks_take_turns_at_one_lock(tmp_path: Path) -> None:
    lock, inside = FileLock("openai_codex", tmp_path / "logins" / "x.lock"), 0

    async def one() -> None:
        nonlocal inside
        async with lock.held(10.0):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(one() for _ in range(50)))
