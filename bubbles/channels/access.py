"""Who is let in, and as what (CHAN-02, CHAN-03). Pure; the one check that all channels have.

A button and a slash command are messages like any other here: nothing gets past this by another way.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from bubbles.bus import Trigger
from bubbles.channels.contract import Incoming
from bubbles.config.channels import ChannelSettings

EVERYBODY = "*"


class Refusal(enum.StrEnum):
    """Why a message is turned away."""

    STRANGER = "stranger"
    """``allow_from`` does not name its sender."""
    NOT_ADDRESSED = "not_addressed"
    """It was not said to the assistant, and only what is said to it is answered in groups."""
    GROUPS_OFF = "groups_off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Exactly one of both is there."""

    trigger: Trigger | None = None
    """As what it is let in: ``USER``, or ``BYSTANDER`` for what nobody said to the assistant."""
    refusal: Refusal | None = None


def judge(incoming: Incoming, settings: ChannelSettings) -> Verdict:
    """What the group does not want at all comes first: allowing its sender would change nothing."""
    policy = settings.group_policy if incoming.is_group else "all"
    spoken_to = not incoming.is_group or incoming.addressed or incoming.press
    if policy == "off":
        return Verdict(refusal=Refusal.GROUPS_OFF)
    if policy == "mention" and not spoken_to:
        return Verdict(refusal=Refusal.NOT_ADDRESSED)
    if not _let_in(incoming, settings.allow_from):
        return Verdict(refusal=Refusal.STRANGER)
    return Verdict(trigger=Trigger.USER if spoken_to else Trigger.BYSTANDER)


def _let_in(incoming: Incoming, allow_from: tuple[str, ...]) -> bool:
    """By whole ids, letter for letter. What has no sender is let in by nothing: ``*`` means people."""
    ids = {ident for ident in (incoming.sender, *incoming.aliases) if ident}
    return bool(ids) and (EVERYBODY in allow_from or not ids.isdisjoint(allow_from))
