"""Logging in and out with a person at the terminal, or at a browser somewhere else."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from bubbles.cli.report import run, spinner, styled, visible

if TYPE_CHECKING:
    import webbrowser

    from bubbles.config.schema import Settings
    from bubbles.providers.logins.contract import Login
    from bubbles.providers.logins.store import LoginStore

MAX_LINE = 16 * 1024
"""Bytes of a line that is pasted."""
IN_A_TERMINAL = frozenset({"www-browser", "links", "elinks", "lynx", "w3m"})
"""Browsers that would take the terminal that we talk on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    login: Login
    problem: str | None = None
    """Why it cannot be used, though it is made: one sentence."""


def log_in(settings: Settings, provider: str, *, browser: bool, out: TextIO) -> Made:
    """Raises ``LoginError`` and ``ConfigError``; KeyboardInterrupt for Ctrl-C. What there is to do goes to ``out``."""
    chosen = _browser(settings) if browser and out.isatty() else None
    return run(_logged_in(settings, provider, Terminal(out, chosen)))


async def _logged_in(settings: Settings, provider: str, terminal: Terminal) -> Made:
    from bubbles.providers.contract import ProviderError
    from bubbles.providers.logins.codex import CodexVendor
    from bubbles.providers.logins.contract import LoginError
    from bubbles.providers.logins.source import source_for, vendor_for
    from bubbles.providers.logins.store import LoginStore
    from bubbles.providers.logins.web import Web

    vendor = vendor_for(settings, provider)
    store = LoginStore(settings.data_dir)
    async with store.alone(provider):
        pass  # where a login cannot be kept, nobody need make one
    async with Web(settings.host_env) as web:
        now = datetime.now(UTC)
        with terminal:
            login = await vendor.log_in(web, terminal, now)
        try:
            async with store.alone(provider):
                before = await asyncio.to_thread(_before, store, provider)
                await asyncio.to_thread(store.write, login)
        except LoginError:
            if isinstance(vendor, CodexVendor):
                with suppress(ProviderError):  # nobody has it, and nobody else could end it
                    await vendor.revoked(web, login)
            raise
        if isinstance(vendor, CodexVendor):
            spent = before is not None and before.refresh_token != login.refresh_token
            if before is not None and spent and before.more.get("issuer") == vendor.issuer:
                with suppress(ProviderError):  # it ends by itself some day
                    await vendor.revoked(web, before)
            return Made(login=login)
    try:
        await source_for(settings, provider).access()
    except (LoginError, ProviderError) as error:
        return Made(login=login, problem=str(error))
    renewed = await asyncio.to_thread(store.read, provider)
    return Made(login=login if renewed is None else renewed)


async def log_out(settings: Settings, provider: str) -> str | None:
    """None if there was no login; else what the person should still know, or nothing.

    Raises ``LoginError`` and ``ConfigError``. The login is removed even if the provider cannot be told.
    """
    from bubbles.providers.contract import ProviderError
    from bubbles.providers.logins.contract import ISSUER, NotLoggedInError
    from bubbles.providers.logins.source import vendor_for
    from bubbles.providers.logins.store import LoginStore
    from bubbles.providers.logins.web import Web

    store = LoginStore(settings.data_dir)
    vendor = vendor_for(settings, provider)
    async with store.alone(provider):
        try:
            login = await asyncio.to_thread(store.read, provider)
        except NotLoggedInError:  # damaged, and kept aside
            await asyncio.to_thread(store.remove, provider)
            return (
                "Its file was damaged, so that the provider could not be told, and may know it until it ends by itself"
            )
        if login is None:
            return "" if await asyncio.to_thread(store.remove, provider) else None
        left = ""
        try:
            async with Web(settings.host_env) as web:
                if login.more.get(ISSUER, vendor.issuer) == vendor.issuer:
                    left = await vendor.revoked(web, login)
                else:
                    left = f"It was made at {login.more[ISSUER]}, which was not told"
        except ProviderError as error:
            left = f"The provider could not be told, and may know it until it ends by itself: {error}"
        await asyncio.to_thread(store.remove, provider)
        return left


def _before(store: LoginStore, provider: str) -> Login | None:
    from bubbles.providers.logins.contract import LoginError

    try:
        return store.read(provider)
    except LoginError:  # whatever it was, it is replaced
        return None


class Terminal:
    """Says what there is to do, opens a browser, takes what is pasted. A context manager, for what moves."""

    def __init__(self, out: TextIO, browser: webbrowser.BaseBrowser | None) -> None:
        self._out = out
        self._browser = browser
        self._stack = ExitStack()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def say(self, line: str) -> None:
        print("\n".join(map(visible, line.split("\n"))), file=self._out, flush=True)

    def code(self, url: str, code: str) -> None:
        self.say("Open this page, on any device, and enter the code there:")
        self.say(f"\n  {url}\n")
        print(f"  {styled(visible(code), 'bold', self._out)}\n", file=self._out, flush=True)
        self.say("Enter no code that somebody else has sent you.")
        self._stack.enter_context(spinner("waiting for GitHub"))

    def opened(self, url: str) -> bool:
        import threading

        if self._browser is None:
            return False
        # Some do not return before they are closed; nothing waits for them.
        threading.Thread(target=self._browser.open, args=(url,), name="browser", daemon=True).start()
        return True

    async def pasted(self) -> AsyncGenerator[str, None]:
        """Lines of standard input, until it ends; overlong ones are left out."""
        if sys.stdin is None:
            return
        rest = b""
        fd = sys.stdin.fileno()
        while True:
            await _readable(fd)
            data = os.read(fd, 4_096)
            *lines, rest = (rest + data).split(b"\n")
            if not data and rest:
                lines, rest = [rest], b""
            for line in lines:
                if len(line) <= MAX_LINE:
                    yield line.decode("utf-8", "replace")
            if not data:
                return
            rest = rest[: MAX_LINE + 1]


async def _readable(fd: int) -> None:
    """When there is something to read, or the end. What cannot be waited for, such as a file, always can be read."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def arrived() -> None:
        if not ready.done():
            ready.set_result(None)

    try:
        loop.add_reader(fd, arrived)
    except OSError:
        return
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _browser(settings: Settings) -> webbrowser.BaseBrowser | None:
    """A browser with a window of its own, if this terminal has a display."""
    import webbrowser

    env = settings.host_env
    if sys.platform != "darwin" and not (env.get("DISPLAY") or env.get("WAYLAND_DISPLAY")):
        return None
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return None
    return None if os.path.basename(getattr(found, "name", "")) in IN_A_TERMINAL else found
