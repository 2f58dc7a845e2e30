"""Errors of the sandbox layer. Every message is one sentence for the person: what, with which value, and the mend.

SandboxError
├── InvalidSpecError           the spec itself is wrong (a root that may not be one, a bad name)
│   └── UnsupportedSpecError   the spec asks for more than this backend enforces (SBX-08)
├── BackendUnavailableError    the place cannot be made here; carries ``remedy``
├── SandboxLostError           the place went away; its processes and temporary state are gone
│   └── ProtocolError          what came out of the place was not a valid answer: it is closed at once
├── InvalidRequestError        the request cannot be carried out by any place (an empty argv, a NUL byte)
└── FileError                  a file operation was not done; carries ``code``
    └── PathRefusedError       the path leaves the roots
"""

from __future__ import annotations


class SandboxError(Exception):
    """Root of every error that this package raises on purpose."""


class InvalidSpecError(SandboxError):
    """The spec names something that can never be: retrying does not help."""


class UnsupportedSpecError(InvalidSpecError):
    """The backend cannot enforce what the spec demands; there is no fall-back to less."""


class BackendUnavailableError(SandboxError):
    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"{reason} {remedy}".strip())
        self.reason = reason
        self.remedy = remedy


class SandboxLostError(SandboxError):
    """The session cannot be used any more; open a new one and tell the model that state was reset."""


class ProtocolError(SandboxLostError):
    """The runner is broken or hostile. It costs its own sandbox only."""


class InvalidRequestError(SandboxError):
    """The caller's mistake; nothing was done."""


class FileError(SandboxError):
    """``code``: not_found, not_a_file, not_a_directory, permission, no_space, too_long, invalid, io."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class PathRefusedError(FileError):
    def __init__(self, message: str) -> None:
        super().__init__("refused", message)
