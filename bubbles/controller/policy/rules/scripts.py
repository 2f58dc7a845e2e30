"""Rules that name a whole script: ``["/bin/zsh", "-lc", "cargo test"]``.

What they speak of is the script, whatever shell it is run with (DEC-06).
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Sequence

from bubbles.controller.policy.contract import Context
from bubbles.controller.policy.rules.model import Pattern

_SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh"))
_SYSTEM = frozenset(("", "/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"))
_FLAGS = re.compile(r"-[elic]*c[elic]*|-[eli]+|--login|--noprofile|--norc")
_PLAIN = re.compile(r"[A-Za-z0-9_./:=@%+,-]+(?: +[A-Za-z0-9_./:=@%+,-]+)*")
_RESERVED = frozenset("if then else elif fi case esac for select while until do done in function time coproc".split())


def is_shell(program: str) -> bool:
    """By name, or by a path where the system keeps its programs: a file called ``sh`` elsewhere is anything."""
    return os.path.basename(program) in _SHELLS and os.path.dirname(program) in _SYSTEM


def script_of(words: Sequence[str]) -> str | None:
    """The script, if ``words`` are a shell that runs one and hands it nothing else."""
    if len(words) < 3 or not is_shell(words[0]):
        return None
    flags = words[1:-1]
    named = all(_FLAGS.fullmatch(flag) for flag in flags) and "c" in flags[-1] and not flags[-1].startswith("--")
    return words[-1] if named and not any(_has_c(flag) for flag in flags[:-1]) else None


def scripts_of(pattern: Pattern) -> tuple[str, ...]:
    """The scripts that a pattern names, if in all its forms it is a shell that runs one."""
    if len(pattern) < 3 or not all(is_shell(program) for program in pattern[0]):
        return ()
    *before, last = pattern[1:-1]
    if not all(_FLAGS.fullmatch(flag) and not _has_c(flag) for flags in before for flag in flags):
        return ()
    if not all(_FLAGS.fullmatch(flag) and _has_c(flag) for flag in last):
        return ()
    return tuple(dict.fromkeys(pattern[-1]))


def _has_c(flag: str) -> bool:
    return not flag.startswith("--") and "c" in flag


def plain_command(script: str) -> tuple[str, ...] | None:
    """The words of a script that is one command without any shell syntax but quotes."""
    script = script.strip(" ")
    if _PLAIN.fullmatch(script):
        words = tuple(script.split())
        return None if words[0] in _RESERVED or "=" in words[0] else words
    if len(script) > 2_000 or not script.strip() or script.startswith("!") or "~" in script or "$" in script:
        return None
    return _read(script)


def _read(script: str) -> tuple[str, ...] | None:
    from bubbles.controller.policy.shell import read  # slow to load, and few rules need it

    reading = read(script, Context(cwd="/", roots=("/",), home="/", person_home="/"))
    if reading.doubts or reading.broken or reading.hidden or len(reading.segments) != 1:
        return None
    segment = reading.segments[0]
    if segment.assignments or segment.redirects or segment.background or segment.core != segment.words:
        return None
    words = tuple(word.text for word in segment.words)
    return words if words and all(word.exact for word in segment.words) else None
