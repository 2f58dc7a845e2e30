"""The gate: every command and every file operation of a session passes it. Open this file first.

``Controller`` (``controller.py``) decides outside the sandbox, asks if need be, acts inside, and records. What it was
asked to run is what it runs, byte for byte, in the directory that it decided on (DEC-12).

GateError (a BubblesError)
└── DeclinedError          the command was not run: a rule, the blacklist or a person says no, or nobody could be asked
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType

from bubbles.controller.policy.contract import Context, Decision, Mode
from bubbles.errors import BubblesError
from sandbox_backends.contract import Enforces, ExecResult, Network, SandboxSpec

GIT_SETTINGS = {"core.fsmonitor": "false", "core.pager": "cat", "protocol.ext.allow": "never"}
"""Settings by which a repository's own file would have a plain ``git status`` or ``git log`` start a program of its
choice. Set by the environment, which outranks every file: the command itself is never changed. Source: git-config(1).
``diff.external``, filters, hooks and signing programs have no neutral value: they stay (SECURITY.md).
"""

LANE_ENV = MappingProxyType(
    {
        "GIT_CONFIG_COUNT": str(len(GIT_SETTINGS)),
        **{f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(GIT_SETTINGS)},
        **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(GIT_SETTINGS.values())},
        "GIT_NO_LAZY_FETCH": "1",
        "npm_config_yes": "false",
    }
)
"""What the lane counts on: git as above, which fetches no missing objects by itself (git 2.45), and npx that fetches
nothing unasked."""


class GateError(BubblesError):
    """The root of what the gate raises by itself; sandboxes raise ``sandbox_backends.errors.SandboxError``."""


class DeclinedError(GateError):
    """Nothing was run. The message tells the model, or the person at a terminal, why."""

    exit_code = 126
    """What a shell reports for a command that it may not run."""

    def __init__(self, told: str, decision: Decision) -> None:
        super().__init__(told)
        self.decision = decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Where the commands of one session run: which sandbox, with what demands, and what it holds."""

    backend: str
    spec: SandboxSpec
    enforces: Enforces
    home: str
    """HOME of the commands, as they see it."""
    person_home: str

    @property
    def contained(self) -> bool:
        return Enforces.FILESYSTEM in self.enforces

    @property
    def offline(self) -> bool:
        """Nothing but what the owner listed can be reached."""
        return Enforces.NETWORK in self.enforces and self.spec.network is not Network.FULL

    @property
    def network(self) -> str:
        """As a card says it."""
        return str(self.spec.network or (Network.NONE if self.offline else Network.FULL))

    def directory(self, cwd: str | None) -> str:
        """The absolute directory that ``cwd`` of a request means."""
        path = os.path.normpath(os.path.join(self.spec.cwd, cwd or ""))
        return "/" + path.lstrip("/")  # normpath leaves two slashes in front as they are (POSIX)

    def context(self, directory: str, mode: Mode, resolve: Callable[[str], str]) -> Context:
        """What the decision must know of this place."""
        return Context(
            cwd=directory,
            roots=tuple(str(root.path) for root in self.spec.roots),
            home=self.home,
            person_home=self.person_home,
            contained=self.contained,
            offline=self.offline,
            mode=mode,
            resolve=resolve,
        )

    def with_lane_env(self) -> Workplace:
        """The same place, with the environment that the lane counts on."""
        return replace(self, spec=replace(self.spec, env={**self.spec.env, **LANE_ENV}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """A command that ran."""

    result: ExecResult
    decision: Decision
    reset: str | None
    """Why the state of an earlier sandbox of the session is gone, the first time it is: to be told to the model."""
    warnings: tuple[str, ...] = ()
    """What the sandbox cannot hold here, in sentences for the person."""
    lost: str | None = None
    """Why the sandbox went away under the command, if it did."""
