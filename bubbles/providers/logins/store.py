"""Where logins are kept: ``<data_dir>/logins/<provider>.json``, for their owner only (PROV-03, SEC-03).

Everything but ``alone`` blocks on the disk, and belongs into a thread. A file is replaced whole or not at all. What
cannot be helped: if the machine stops between a vendor's answer and our write, a refresh token that counts once is
spent and its successor lost, and the person logs in again.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bubbles.config import files
from bubbles.errors import BubblesError, ConfigError
from bubbles.providers.logins.contract import Login, LoginError, NotLoggedInError
from bubbles.providers.logins.issuers import NAMES
from bubbles.providers.logins.lock import FileLock

FOLDER = "logins"
MAX_CHARS = 256 * 1024
"""Of a file: two tokens and a few words."""
MAX_TOKEN = 16 * 1024
MAX_WORD = 2_000
"""Of everything else that is kept."""
_DAMAGED = ".damaged-"
_DATES = ("expires_at", "made_at", "renewed_at")
_log = logging.getLogger(__name__)


class LoginStore:
    """Several processes may use the same directory at once."""

    def __init__(self, data_dir: Path) -> None:
        self.folder = data_dir / FOLDER
        self._locks: dict[str, FileLock] = {}

    def path(self, provider: str) -> Path:
        return self.folder / f"{provider}.json"

    def alone(self, provider: str) -> AbstractAsyncContextManager[None]:
        """Alone at renewing, making or forgetting this login, among all processes. Raises ``LoginError``."""
        lock = self._locks.get(provider)
        if lock is None:
            lock = self._locks[provider] = FileLock(provider, self.folder / f"{provider}.lock")
        return lock.held()

    def read(self, provider: str) -> Login | None:
        """What is kept; None if nothing is. A file that others could read is made private.

        A damaged one is kept aside under another name, and ``NotLoggedInError`` says so. Raises ``LoginError``.
        """
        path = self.path(provider)
        try:
            found = files.read(path)
            if found is not None and found.warning:
                _log.warning("%s %s: it is private now", path, found.warning)
                files.make_private(path)
        except BubblesError as error:
            fault = LoginError(str(error))
        else:
            if found is None:
                return None
            try:
                return _decoded(provider, found.text)
            except ValueError as error:
                why = str(error)
            self._set_aside(provider, why)
            return self.read(provider)  # somebody has put a good one there meanwhile
        raise fault

    def write(self, login: Login) -> None:
        """On the disk when it returns. Raises ``LoginError``; what was there before then stays."""
        path = self.path(login.provider)
        try:
            _make_folder(self.folder)
            with files.writing(path) as real:
                files.replace(real, _encoded(login))
            return
        except OSError as error:
            fault = LoginError(str(files.unwritable(path, error)))
        except BubblesError as error:
            fault = LoginError(str(error))
        raise fault  # out here, so that no token hangs on it

    def remove(self, provider: str) -> bool:
        """Whether there was anything. Copies of a damaged file, and what a crash left of one, hold tokens too, and go.

        Nobody else may be at work on it (``alone``). Raises ``LoginError``.
        """
        path = self.path(provider)
        real = Path(os.path.realpath(path))
        halves = (half for half in {files.half_written(real), files.half_written(path)})
        removed = False
        for each in (path, real, *halves, *path.parent.glob(f"{path.name}{_DAMAGED}*")):
            try:
                os.unlink(each)
                removed = True
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as error:
                raise LoginError(f"{each} cannot be removed ({error.strerror}): remove it yourself.") from error
        return removed

    def _set_aside(self, provider: str, why: str) -> None:
        """Raises ``NotLoggedInError``, unless the file is a good one by now."""
        path = self.path(provider)
        aside = path.with_name(f"{path.name}{_DAMAGED}{datetime.now(UTC):%Y%m%d-%H%M%S}")
        try:
            with files.writing(path) as real:
                found = files.read(real)
                if found is None:
                    return
                with suppress(ValueError):
                    _decoded(provider, found.text)
                    return
                os.replace(real, aside)
        except BubblesError as error:
            raise LoginError(str(error)) from error
        raise NotLoggedInError(provider, f"its file was damaged ({why}) and is kept as {aside}")


def known_secrets(data_dir: Path) -> tuple[str, ...]:
    """All tokens on the disk, for ``Redactor`` at the start. Never fails, and changes nothing. Blocks on the disk."""
    found: dict[str, None] = {}
    for name in NAMES:
        try:
            written = files.read(data_dir / FOLDER / f"{name}.json")
            login = _decoded(name, written.text) if written is not None else None
        except (ConfigError, ValueError):
            continue  # whoever uses the login says what is wrong with it
        if login is not None:
            found |= dict.fromkeys(login.secrets)
    return tuple(found)


def logged_in(data_dir: Path, provider: str) -> bool:
    """Whether a login of this provider is kept; whether it still counts, its first request shows. Looks at the disk."""
    try:
        return LoginStore(data_dir).path(provider).is_file()
    except OSError:
        return False


def missing_login(data_dir: Path, provider: str) -> str | None:
    """One sentence, if this provider is used by login and none is kept. Looks at the disk."""
    if provider not in NAMES or logged_in(data_dir, provider):
        return None
    return f"{provider} needs a login, and there is none: run 'bubbles provider login {provider}'."


def _make_folder(folder: Path) -> None:
    """Both it and the data directory, if they are new, are for their owner only. Raises OSError."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)


def _encoded(login: Login) -> str:
    kept: dict[str, Any] = {
        "version": 1,
        "provider": login.provider,
        "refresh_token": login.refresh_token,
        "access_token": login.access_token,
        "account": login.account,
        "person": login.person,
        "more": dict(login.more),
    }
    kept |= {name: value.isoformat() for name in _DATES if (value := getattr(login, name)) is not None}
    return json.dumps(kept, indent=2) + "\n"


def _decoded(provider: str, text: str) -> Login:
    """Raises ValueError, in words that quote nothing of it."""
    if len(text) > MAX_CHARS:
        raise ValueError("it is too long")
    try:
        kept = json.loads(text)
    except (ValueError, RecursionError):
        kept = None
    if not isinstance(kept, dict):
        raise ValueError("it is no JSON object")
    if kept.get("provider") != provider:
        raise ValueError("it belongs to another provider")
    refresh_token, access_token = (_text(kept, name, MAX_TOKEN) for name in ("refresh_token", "access_token"))
    if not refresh_token or not (refresh_token + access_token).isascii():
        raise ValueError("its tokens are missing, or none")
    more = kept.get("more", {})
    if not isinstance(more, dict) or len(more) > 50:
        raise ValueError("more is no mapping")
    expires_at, made_at, renewed_at = (_date(kept, name) for name in _DATES)
    return Login(
        provider=provider,
        refresh_token=refresh_token,
        access_token=access_token,
        expires_at=expires_at,
        account=_text(kept, "account"),
        person=_text(kept, "person"),
        more={name: _text(more, name) for name in more},
        made_at=made_at,
        renewed_at=renewed_at,
    )


def _text(kept: Mapping[str, Any], name: str, limit: int = MAX_WORD) -> str:
    value = kept.get(name, "")
    if not isinstance(value, str) or len(value) > limit or not value.isprintable():
        raise ValueError(f"{name[:40]!a} is no short text")
    return value


def _date(kept: Mapping[str, Any], name: str) -> datetime | None:
    value = kept.get(name)
    if value is None:
        return None
    try:
        when = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        when = None
    if when is None or when.tzinfo is None:
        raise ValueError(f"{name} is no date with a zone")
    return when.astimezone(UTC)
