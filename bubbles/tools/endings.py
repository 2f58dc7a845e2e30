"""How commands end, in words for the model."""

from __future__ import annotations

from bubbles.controller.places import ExecResult, Outcome


def ending(result: ExecResult, timeout_s: float | None = None) -> str:
    """Empty for a plain success."""
    match result.outcome:
        case Outcome.EXITED:
            said = f"exit status {result.exit_code}" if result.exit_code else ""
        case Outcome.SIGNALED:
            said = f"ended by signal {-(result.exit_code or 0)}"
        case Outcome.TIMED_OUT:
            limit = "its time limit" if timeout_s is None else f"the time limit of {timeout_s:g} s"
            said = f"over {limit}: everything it started was ended"
        case Outcome.OOM:
            said = "killed: over the memory limit of the sandbox"
        case Outcome.LOST:
            said = (
                "the sandbox went away under it, so how it ended is not known; processes and temporary files are gone"
            )
    # What was killed for the time limit may take a moment to go, and hold the output for so long.
    left = result.detached and result.outcome is not Outcome.TIMED_OUT
    goes_on = "a background process that it started is still running, and its output is lost" if left else ""
    return "; ".join(filter(None, (said, goes_on)))


def decoded(data: bytes) -> str:
    """Bytes that are no UTF-8 are shown as ``\\xNN``."""
    return data.decode("utf-8", "backslashreplace")


def output(result: ExecResult) -> str:
    """What was printed, with a line in the middle for what was not kept."""
    data = result.stdout
    if not result.dropped_bytes:
        return decoded(data)
    half = len(data) - len(data) // 2
    return (
        f"{decoded(data[:half])}\n[… {result.dropped_bytes:,} bytes in between were not kept …]\n{decoded(data[half:])}"
    )
