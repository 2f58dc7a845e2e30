"""Brings a terminal, a conversation and the assistant together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from bubbles import __version__
from bubbles.cli.chat.asking import ConversationApprover
from bubbles.cli.chat.conversation import Conversation
from bubbles.cli.chat.lines import LineTerminal
from bubbles.cli.chat.options import Options
from bubbles.cli.chat.past import Past
from bubbles.cli.chat.screen import MIN_WIDTH, colours, rendered

if TYPE_CHECKING:
    from bubbles.app.workshop import Workshop
    from bubbles.cli.chat.contract import Terminal

PAST = "cli_history"
PLAIN_TERMS = frozenset({"", "dumb", "unknown", "emacs"})
"""Terminals without cursor movements."""
WELCOME = f"Bubbles {__version__}. /help shows the commands, Ctrl-D leaves."


async def talk(shop: Workshop, options: Options) -> int:
    """Until the person leaves; what still runs is stopped then."""
    from bubbles.app.assistant import assistant

    conversation = Conversation(options)
    async with _opened(shop, conversation) as terminal, _warm():
        conversation.attach(terminal, coloured=colours(shop.settings.host_env, terminal=True))
        screen = conversation.screen(options.session)
        screen.remark(WELCOME)
        for warning in (*shop.settings.warnings, *shop.settings.provider_warnings):
            screen.notice(warning)
        approver = ConversationApprover(terminal)
        loop = asyncio.get_running_loop()
        if options.log is not None:
            options.log.write = lambda text: _later(loop, terminal, text)
        async with assistant(
            shop,
            approver_for=lambda _: approver,
            send=conversation.send,
            observer_for=conversation.observer_for,
            project=options.project,
            backend=options.backend,
            on_warning=screen.notice,
            on_secret=options.learn,
        ) as opened:
            await conversation.hold(opened, terminal)
    return 0


def _opened(shop: Workshop, conversation: Conversation) -> AbstractAsyncContextManager[Terminal]:
    settings = shop.settings
    if settings.host_env.get("TERM", "") in PLAIN_TERMS:
        return LineTerminal(conversation)
    from bubbles.app.parts import known_values
    from bubbles.cli.chat.completion import CommandCompleter
    from bubbles.cli.chat.prompting import PromptTerminal
    from bubbles.config.schema import SessionSettings
    from bubbles.config.secrets import secrets_of
    from bubbles.controller.redaction import Redactor

    values = known_values()
    return PromptTerminal(
        conversation,
        toolbar=conversation.toolbar,
        completer=CommandCompleter(conversation.names, SessionSettings.model_fields, lambda name: values.get(name, ())),
        past=Past(
            file=settings.data_dir / PAST,
            redact=Redactor.of_environment(settings.host_env, secrets_of(settings)).redact,
        ),
    )


def _later(loop: asyncio.AbstractEventLoop, terminal: Terminal, text: str) -> None:
    loop.call_soon_threadsafe(terminal.write, text)


@asynccontextmanager
async def _warm() -> AsyncIterator[None]:
    """What shows Markdown takes a moment to import: meanwhile the person types."""
    tasks = asyncio.TaskGroup()
    await tasks.__aenter__()
    tasks.create_task(asyncio.to_thread(rendered, "`warm`", MIN_WIDTH))
    try:
        yield
    finally:
        await tasks.__aexit__(None, None, None)  # not told of an error: it would be wrapped in a group
