"""What a person is told when a turn breaks (ERR-01 to ERR-04, PROV-08): never a type, a stack or a path."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bubbles.bus import CLI, Origin
from bubbles.controller.places import SandboxError
from bubbles.errors import BubblesError, ConfigError
from bubbles.providers.contract import Category, ProviderError
from bubbles.sessions.contract import SessionBusyError
from bubbles.tools.services import TaskInfo

__all__ = ["CLI", "Notices", "going_on", "of_failure", "of_provider"]

QUIET_S = 60.0
"""One notice a session in this time (ERR-03)."""
MAX_REMEMBERED = 1_000
BROKEN = "Something went wrong on this side. The log says what; please try again."
BUSY = "Another program is at work on this conversation just now. Try again when it is done."
UNSET = "This assistant is not set up as it should be. On its machine, 'bubbles status' says what is wrong."
MEND = {
    Category.RATE_LIMIT: "Wait a little and try again.",
    Category.UNAVAILABLE: "Wait a little and try again.",
    Category.CONTEXT_TOO_LONG: "Send less at once, or begin a new session.",
    Category.AUTHENTICATION: "Look at the API key, or at the login.",
    Category.REJECTED: "Put it differently, or look at the model's name.",
}

USED_UP = "The quota, or the credit, is used up: look at the account with the provider."
"""Of a rate limit that does not pass."""


def of_provider(error: ProviderError, origin: Origin) -> str:
    tries = "once" if error.attempts == 1 else f"{error.attempts} times"
    if error.mend and origin.address.channel == CLI:
        return f"The model gave no answer: {error.category} (tried {tries}). {error.mend}"
    if error.resets:
        mend = f"It is available again {error.resets}."
    elif error.category is Category.RATE_LIMIT and not error.retryable:
        mend = USED_UP
    else:
        mend = MEND[error.category]
    more = " 'bubbles agent --logs' shows what the provider said." if origin.address.channel == CLI else ""
    return f"The model gave no answer: {error.category} (tried {tries}). {mend}{more}"


def of_failure(error: BaseException, origin: Origin) -> str:
    """At the owner's own terminal our errors say what they say; anywhere else nothing of the machine is shown."""
    if isinstance(error, ProviderError):
        return of_provider(error, origin)
    if isinstance(error, BubblesError | SandboxError) and origin.address.channel == CLI:
        return str(error)
    if isinstance(error, ConfigError):
        return UNSET
    return BUSY if isinstance(error, SessionBusyError) else BROKEN


def going_on(tasks: Sequence[TaskInfo]) -> str:
    """What still runs in the background, and how it is ended; empty for nothing."""
    if not tasks:
        return ""
    named = ", ".join(f"{task.id} ({task.label})" for task in tasks)
    ways = f"/stop {tasks[0].id} ends it" if len(tasks) == 1 else "/stop ID ends one of them, /stop all all"
    return f"In the background {'goes' if len(tasks) == 1 else 'go'} on: {named}. {ways}."


class Notices:
    """Decides whether one is sent: somebody must be waiting, and must not have had one in the last minute."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds, such as ``time.monotonic``."""
        self._clock = clock
        self._last: dict[str, float] = {}

    def wanted(self, origin: Origin) -> bool:
        if not origin.trigger.by_person:
            return False
        now = self._clock()
        last = self._last.get(origin.session_key)
        if last is not None and now - last < QUIET_S:
            return False
        self._last.pop(origin.session_key, None)
        self._last[origin.session_key] = now
        while len(self._last) > MAX_REMEMBERED:
            del self._last[next(iter(self._last))]
        return True
