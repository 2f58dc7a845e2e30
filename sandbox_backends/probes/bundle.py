"""The probes as text: how they get into a place that need not have this package."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

INSIDE = "sandbox_backends.probes.inside"
MODULES = ("frame", "surroundings", "powers", "limits")
"""In the order in which they import each other."""

BOOT = f"""
import json, sys, types
given = json.load(sys.stdin)
for name in {[".".join(INSIDE.split(".")[:depth]) for depth in (1, 2, 3)]}:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, text in given.pop("modules"):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
sys.modules["{INSIDE}.frame"].main(given)
"""

ARGV = ("python3", "-I", "-S", "-B", "-c", BOOT)


def stdin_for(probes: Sequence[str], planted: Mapping[str, object]) -> bytes:
    """What ``ARGV`` reads: the modules, what was planted, and the probes to run.

    By stdin and not by argv, so that no process inside carries a canary's token in its command line.
    """
    here = Path(__file__).parent / "inside"
    modules = [(f"{INSIDE}.{name}", (here / f"{name}.py").read_text(encoding="utf-8")) for name in MODULES]
    return json.dumps({"modules": modules, "run": list(probes), **planted}).encode()
