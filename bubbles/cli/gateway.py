"""``bubbles gateway``: the long-running form (OPS-02)."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from bubbles.cli.report import complain, run, visible
from bubbles.cli.unchosen import BY_ONBOARD, no_boundary
from bubbles.errors import BubblesError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any

    from bubbles.app.workshop import Workshop
    from bubbles.cli.logs import Log
    from bubbles.config.schema import Settings
    from bubbles.gateway.notify import Announcer

    OnReady = Callable[[str], None]

OVER_S = 9.5
"""From being told to end until it has."""
BROKEN = "Something went wrong on this side. {log} says what."


def gateway(
    debug: Annotated[bool, typer.Option("--debug", help="Also the prompt, and calls and results whole.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only say what would hinder it.")] = False,
    systemd_unit: Annotated[
        bool, typer.Option("--systemd-unit", help="Print a unit for systemctl --user, which says how to use it.")
    ] = False,
) -> int:
    """Answer in chats, and run jobs and heartbeats, until it is stopped by Ctrl-C or SIGTERM.

    What happens goes to standard error and to logs/gateway.log. Exit status 0 once it was stopped, 1 for what hinders
    it, 2 for settings that are wrong.
    """
    if systemd_unit:
        from bubbles.cli.gateway_unit import unit
        from bubbles.config.load import find_places

        print(unit(find_places()), end="")
        return 0
    from bubbles.config.load import load_settings

    settings = load_settings()
    if check:
        from bubbles.cli.gateway_check import checked

        return checked(settings)
    for warning in (*settings.warnings, *settings.provider_warnings, no_boundary(settings, mend=BY_ONBOARD)):
        if warning:
            complain(warning)
    return _logged(settings, logging.DEBUG if debug else logging.INFO)


def _logged(settings: Settings, level: int) -> int:
    from bubbles.cli.logs import GATEWAY, logging_for
    from sandbox_backends.errors import SandboxError

    with logging_for(settings, level, GATEWAY) as log:
        try:
            return _run(settings, log)
        except (BubblesError, SandboxError, OSError):
            raise  # a sentence for the person each
        except Exception:
            logging.getLogger(__name__).exception("bubbles gateway broke off")
            complain(BROKEN.format(log=log.path))
            return 1


def _run(settings: Settings, log: Log) -> int:
    from bubbles.gateway.lock import gateway_lock

    where = settings.gateway
    with gateway_lock(settings.data_dir, where.host, where.port):  # a second one is told before anything is loaded
        from bubbles.app.workshop import workshop

        with workshop(settings) as shop:
            try:
                run(_served(shop, log))
            except KeyboardInterrupt:
                pass  # that is how it ends: a clean stop is no failure
    return 0


async def _served(shop: Workshop, log: Log) -> None:
    from bubbles.app.gateway import run_gateway
    from bubbles.gateway.notify import Announcer

    announcer = Announcer(shop.settings.host_env)
    with over_in_time() as begins:
        await watched(lambda on_ready: run_gateway(shop, on_ready=on_ready, on_secret=log.learn), announcer, begins)


@contextmanager
def over_in_time(limit_s: float = OVER_S) -> Iterator[Callable[[], None]]:
    """What it yields is called when the end begins. What hangs then ends as by ``kill -9``, by which nothing is lost,
    and a service manager need not wait for it.
    """
    import os
    import threading

    def give_up() -> None:
        logging.getLogger(__name__).error("the end takes longer than %g s: it is over now", limit_s)
        os._exit(1)

    limit = threading.Timer(limit_s, give_up)
    limit.daemon = True
    try:
        yield limit.start
    finally:
        limit.cancel()


async def watched(
    serve: Callable[[OnReady], Coroutine[Any, Any, None]],
    manager: Announcer,
    ends: Callable[[], None] = lambda: None,
) -> None:
    """Serve, and tell the service manager how that stands. Cancelled, it says so at once, and calls ``ends``: ending
    takes a while.

    Raises what ``serve`` does.
    """
    import asyncio

    def on_ready(said: str) -> None:
        print(visible(f"bubbles gateway: ready, {said}"), file=sys.stderr, flush=True)
        manager.ready()

    async def told() -> None:
        try:
            await manager.stay_alive()
            await asyncio.Event().wait()
        finally:
            print("bubbles gateway: stopping", file=sys.stderr, flush=True)
            manager.stopping()
            ends()

    async def served() -> None:
        try:
            await serve(on_ready)
        finally:
            beside.cancel()

    try:
        async with asyncio.TaskGroup() as group:
            beside = group.create_task(told())
            group.create_task(served())
    except BaseExceptionGroup as failed:
        raise _only(failed) from None


def _only(failed: BaseException) -> BaseException:
    """What it is about, if it is about one thing: a sentence for the person may be deep in groups."""
    while isinstance(failed, BaseExceptionGroup) and len(failed.exceptions) == 1:
        failed = failed.exceptions[0]
    return failed
