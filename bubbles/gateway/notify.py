"""Tells the service manager that started this program how it stands (sd_notify(3)); nobody else is told anything."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping

LEAST_PAUSE_S = 0.05


class Announcer:
    """By ``$NOTIFY_SOCKET``; without it every call does nothing. None blocks, raises or waits for an answer."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        named = environment.get("NOTIFY_SOCKET", "")
        # The name of an abstract socket (unix(7)) begins with a zero byte, for which @ stands.
        self._address = ("\0" + named[1:] if named.startswith("@") else named) if named[:1] in ("/", "@") else ""
        self._pause_s = _pause_s(environment)

    def ready(self) -> None:
        self._say("READY=1")

    def stopping(self) -> None:
        self._say("STOPPING=1")

    async def stay_alive(self) -> None:
        """Say again and again that the event loop turns, if that is asked for; until cancelled."""
        while self._address and self._pause_s is not None:
            self._say("WATCHDOG=1")
            await asyncio.sleep(self._pause_s)

    def _say(self, state: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.setblocking(False)
            try:
                told.sendto(state.encode(), self._address)
            except (OSError, ValueError):  # it is gone, or does not listen: the work goes on
                pass


def _pause_s(environment: Mapping[str, str]) -> float | None:
    """Half of what the manager waits, as sd_watchdog_enabled(3) advises; None if it does not, or means another."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        microseconds = int(environment.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return max(microseconds / 2_000_000, LEAST_PAUSE_S) if microseconds > 0 else None
