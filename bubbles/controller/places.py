"""The words of the sandboxes that tools need: only the gate imports ``sandbox_backends`` itself."""

from sandbox_backends.contract import (
    MAX_READ_BYTES,
    BackgroundProcess,
    DirEntry,
    DirListing,
    ExecRequest,
    ExecResult,
    FileStat,
    Outcome,
    OutputChunk,
)
from sandbox_backends.errors import FileError, PathRefusedError, SandboxError, SandboxLostError

__all__ = [
    "MAX_READ_BYTES",
    "BackgroundProcess",
    "DirEntry",
    "DirListing",
    "ExecRequest",
    "ExecResult",
    "FileError",
    "FileStat",
    "Outcome",
    "OutputChunk",
    "PathRefusedError",
    "SandboxError",
    "SandboxLostError",
]
