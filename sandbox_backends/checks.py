"""What no place could carry out, refused before anything is sent."""

from __future__ import annotations

from sandbox_backends.contract import ExecRequest
from sandbox_backends.errors import FileError, InvalidRequestError

MAX_OUTPUT_BYTES = 16 << 20
MAX_PATH_CHARACTERS = 65536


def check_exec(request: ExecRequest) -> None:
    """Raise InvalidRequestError for a request with a field of the wrong type, size or content."""
    env = request.env or {}
    if not request.argv or not request.argv[0]:
        raise InvalidRequestError("argv is empty: give at least the program to run")
    for text in (*request.argv, *env, *env.values(), request.cwd or ""):
        if not isinstance(text, str):
            raise InvalidRequestError(f"argv, environment and cwd are text, not {type(text).__name__}")
        if "\0" in text:
            raise InvalidRequestError(f"{text[:80]!r} holds a NUL byte, which no program can be given")
        if not _encodes(text):
            raise InvalidRequestError(f"{text[:80]!r} holds half a character, which no program can be given")
    for name in env:
        if not name or "=" in name:
            raise InvalidRequestError(f"{name[:80]!r} cannot name an environment variable")
    if request.timeout_s is not None and not request.timeout_s > 0:
        raise InvalidRequestError(f"timeout_s must be above 0, not {request.timeout_s}")
    if not 0 <= request.max_output_bytes <= MAX_OUTPUT_BYTES:
        raise InvalidRequestError(f"max_output_bytes must be 0 to {MAX_OUTPUT_BYTES}, not {request.max_output_bytes}")


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def check_path(path: str) -> str:
    """``path``, if it can be sent. Raises InvalidRequestError, FileError."""
    if not isinstance(path, str):
        raise InvalidRequestError(f"a path is text, not {type(path).__name__}")
    if len(path) > MAX_PATH_CHARACTERS:
        raise FileError("too_long", f"a path of {len(path)} characters is too long")
    if not _encodes(path):
        raise FileError("invalid", f"{path!r}: a path cannot hold half a character")
    return path
