"""Keys in the operating system's keyring: ``keyring:SERVICE/NAME`` as the whole value of a secret setting (SEC-03).

The library (extra ``keyring``) is imported only where a setting is written like that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from bubbles.errors import BubblesError

SERVICE = "bubbles"
"""Under which ``bubbles provider key`` keeps keys."""
PREFIX = "keyring:"
MAX_NAME = 200
MAX_KEY = 4_096
"""Characters."""
WITHIN_S = 20.0
"""How long the system may take: it may ask its person to unlock the keyring."""
INSTALL = "install it where Bubbles is: pip install keyring, or pipx inject bubbles keyring"

T = TypeVar("T")


class KeyringError(BubblesError):
    """The keyring cannot be used; one sentence for the person, without a secret."""


class KeyringSilentError(KeyringError):
    """It does not answer in time: whoever has more to ask should not wait as long again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReference:
    service: str
    name: str

    @property
    def text(self) -> str:
        return f"{PREFIX}{self.service}/{self.name}"


Lookup = Callable[[KeyReference], str]
"""Raises ``KeyringError``, also where nothing is kept under that name. Blocks."""


def is_key(text: str) -> bool:
    """Whether it could be one: a line of ASCII, such as a header carries."""
    return 0 < len(text) <= MAX_KEY and text.isascii() and text.isprintable()


def read_reference(text: str) -> KeyReference | None:
    """What ``keyring:SERVICE/NAME`` means; None for a value that is none."""
    if not text.startswith(PREFIX) or len(text) > MAX_NAME or not text.isprintable():
        return None
    service, slash, name = text.removeprefix(PREFIX).partition("/")
    return KeyReference(service=service, name=name) if service and slash and name else None


def look_up(reference: KeyReference, *, within_s: float = WITHIN_S) -> str:
    """The secret. Raises ``KeyringError``."""

    def ask() -> str | None:
        import keyring

        return keyring.get_password(reference.service, reference.name)

    found = _bounded(ask, within_s)
    if not found:
        raise KeyringError(f"nothing is kept in the keyring as {reference.service}/{reference.name}")
    return found


def keep(reference: KeyReference, secret: str) -> None:
    """Keep the secret, in place of one that is kept under that name. Raises ``KeyringError``."""

    def put() -> None:
        import keyring

        keyring.set_password(reference.service, reference.name, secret)
        if keyring.get_password(reference.service, reference.name) != secret:
            raise KeyringError("the keyring does not give back what it was given")

    _bounded(put)


def forget(reference: KeyReference) -> bool:
    """Whether there was one. Raises ``KeyringError``."""

    def drop() -> bool:
        import keyring

        if keyring.get_password(reference.service, reference.name) is None:
            return False
        keyring.delete_password(reference.service, reference.name)
        return True

    return _bounded(drop)


def _bounded(work: Callable[[], T], within_s: float = WITHIN_S) -> T:
    """In a thread that nobody waits for longer: a bus that does not answer would hold the program."""
    done: list[T] = []
    failed: list[KeyringError] = []

    def run() -> None:
        try:
            done.append(work())
        except KeyringError as error:
            failed.append(error)
        except ImportError:
            failed.append(KeyringError(f"the package keyring is not there; {INSTALL}"))
        except Exception as error:  # noqa: BLE001 - an edge: every backend of the library raises what it likes
            # Its words may quote what it was given.
            what = type(error).__name__
            why = "there is none" if what == "NoKeyringError" else what
            failed.append(KeyringError(f"the keyring of this system cannot be used ({why})"))

    thread = threading.Thread(target=run, name="keyring", daemon=True)
    thread.start()
    thread.join(within_s)
    if failed:
        raise failed[0]
    if not done:
        raise KeyringSilentError(f"the keyring did not answer within {within_s:g} seconds")
    return done[0]
