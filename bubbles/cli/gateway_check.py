"""``bubbles gateway --check``: what would hinder the gateway, without starting it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bubbles.cli.report import complain, run
from bubbles.errors import BubblesError

if TYPE_CHECKING:
    from bubbles.config.schema import Settings


def checked(settings: Settings) -> int:
    """Says each thing on stderr; 1 if there is more than warnings."""
    from bubbles.channels.registry import enabled, settings_of
    from bubbles.cli.channels_status import doubts, faults
    from bubbles.cli.unchosen import BY_ONBOARD, no_boundary

    on = {each: settings_of(settings.channels, each.name) for each in enabled(settings.channels)}
    problems = [*_gateway(settings), *(said for each, chosen in on.items() for said in faults(each, chosen))]
    notes = [*settings.warnings, *settings.provider_warnings, no_boundary(settings, mend=BY_ONBOARD)]
    notes += [said for each, chosen in on.items() for said in doubts(each.name, chosen)]
    for sentence in (*problems, *notes):
        if sentence:
            complain(sentence)
    if not problems:
        print(f"Nothing hinders the gateway. Channels that are on: {', '.join(each.name for each in on) or 'none'}.")
    return 1 if problems else 0


def _gateway(settings: Settings) -> Iterator[str]:
    from bubbles.app.workshop import enforced
    from bubbles.gateway.listening import listening_on, refuse_open
    from bubbles.gateway.lock import running
    from bubbles.providers.select import choose
    from sandbox_backends.contract import Enforces
    from sandbox_backends.errors import SandboxError

    try:
        choose(settings)
    except BubblesError as error:
        yield str(error)
    try:
        holds = enforced(settings, settings.tools.sandbox.backend)
        refuse_open(settings, Enforces.FILESYSTEM in holds)
    except (BubblesError, SandboxError) as error:
        yield str(error)
    if (pid := running(settings.data_dir)) is not None:
        yield f"A gateway runs for {settings.data_dir} already (process {pid}): stop that one first."
        return

    async def listen() -> None:
        for each in await listening_on(settings.gateway.host, settings.gateway.port):
            each.close()

    try:
        if settings.gateway.port:
            run(listen())
    except BubblesError as error:
        yield str(error)
