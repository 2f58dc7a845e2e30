"""What a person is told of a model's failure: at the owner's terminal how to mend it, elsewhere only the kind."""

from __future__ import annotations

import pytest

from bubbles.bus import Address, Origin, Trigger
from bubbles.dispatch.notices import of_provider
from bubbles.providers.contract import Category, ProviderError


@pytest.mark.req("PROV-03", "PROV-08")
@pytest.mark.parametrize("channel", ["cli", "telegram"])
def test_how_a_login_is_mended_is_told_at_the_terminal_only(channel: str) -> None:
    error = ProviderError(Category.AUTHENTICATION, "status 401")
    error.mend = "openai_codex: there is no login. Log in: bubbles provider login openai_codex"
    origin = Origin(session_key="s", address=Address(channel=channel, chat_id="1"), sender="me", trigger=Trigger.USER)
    said = of_provider(error, origin)
    assert said.startswith("The model gave no answer: authentication (tried once). ")
    assert ("bubbles provider login" in said) == (channel == "cli")
    assert "status" not in said
