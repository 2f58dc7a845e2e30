"""A keyring backend that keeps its secrets in a file, for programs that are told of it by PYTHON_KEYRING_BACKEND."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError

FILE = "OWN_KEYRING_FILE"
MODE = "OWN_KEYRING_MODE"
"""``hangs`` or ``fails``."""
CANARY = "canary-of-the-backend"


class OwnKeyring(KeyringBackend):
    priority = 1

    def _all(self) -> dict[str, str]:
        mode = os.environ.get(MODE)
        if mode == "hangs":
            time.sleep(600)
        if mode == "fails":
            raise RuntimeError(CANARY)
        path = Path(os.environ[FILE])
        held: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return held

    def get_password(self, service: str, username: str) -> str | None:
        return self._all().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        held = self._all() | {f"{service}/{username}": password}
        Path(os.environ[FILE]).write_text(json.dumps(held))

    def delete_password(self, service: str, username: str) -> None:
        held = self._all()
        if held.pop(f"{service}/{username}", None) is None:
            raise PasswordDeleteError("not there")
        Path(os.environ[FILE]).write_text(json.dumps(held))
