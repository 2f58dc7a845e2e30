"""What a running gateway says of itself, for commands that look."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bubbles.gateway.listening import authority

if TYPE_CHECKING:
    from bubbles.config.schema import Settings
    from bubbles.gateway.lock import Holder

TIMEOUT_S = 2.0
MAX_BYTES = 1_000_000
LOG_SAYS = "its log says how the channels are"


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What the gateway of a data directory says. Texts are not yet fit for a terminal."""

    holder: Holder | None = None
    """None: none runs."""
    answer: Mapping[str, Any] = field(default_factory=dict)
    """What ``/readyz`` says (``bubbles.gateway.health.as_json``)."""
    problem: str | None = None
    """Why it says nothing, though it runs."""

    @property
    def url(self) -> str | None:
        return f"http://{authority(*self.holder.near)}" if self.holder is not None and self.holder.port else None

    def of(self, channel: str) -> Mapping[str, Any] | None:
        """What it says of a channel; None: nothing, for it was not on when the gateway was started."""
        return next((each for each in self.answer.get("channels", ()) if each.get("name") == channel), None)


def live(settings: Settings) -> Live:
    """Asks the gateway that runs, if one does; at most two seconds long."""
    from bubbles.gateway.lock import held

    holder = held(settings.data_dir)
    if holder is None:
        return Live()
    if not holder.port:
        return Live(holder=holder, problem=f"the gateway listens nowhere, {LOG_SAYS}.")
    try:
        status, text = _asked(holder, settings)
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        return Live(holder=holder, problem=f"the gateway does not answer ({why}), {LOG_SAYS}.")
    if status == 401:
        return Live(holder=holder, problem="the gateway was started with another gateway.token: start it again.")
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or "ready" not in answer:
        return Live(holder=holder, problem=f"what answers in the gateway's place is something else, {LOG_SAYS}.")
    return Live(holder=holder, answer=answer)


def _asked(holder: Holder, settings: Settings) -> tuple[int, bytes]:
    """Raises OSError."""
    from http.client import HTTPConnection, HTTPException

    token = settings.gateway.token
    headers = {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}"}
    connection = HTTPConnection(*holder.near, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/readyz", headers=headers)
        said = connection.getresponse()
        return said.status, said.read(MAX_BYTES)
    except HTTPException as error:
        raise OSError(f"no proper answer: {type(error).__name__}") from error
    finally:
        connection.close()
