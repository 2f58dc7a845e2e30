"""What a first run can offer, and what it came to. Open this file first."""

from __future__ import annotations

from dataclasses import dataclass, field

from bubbles.providers.contract import Category


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A model that could answer, and what the configuration would have to say for it."""

    provider: str
    """The registry's name."""
    model: str
    """As the provider knows it. Empty: its server has to be asked first, which is not on this machine."""
    note: str
    """Why it is offered: a phrase for the person."""
    variable: str | None = None
    """The environment variable whose reference is to be written as the key."""
    secret: str | None = field(default=None, repr=False)
    """A key that the person pasted."""
    base_url: str | None = None
    """To be written; None leaves what is there."""
    context_tokens: int | None = None
    """What the server gives it, if it said so."""
    settled: bool = False
    """The settings say all of it already: nothing is to be written."""

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}" if self.model else self.provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The one request was answered."""

    seconds: float
    context_tokens: int | None = None
    """What the server gives the model, where it can be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """It was not."""

    category: Category | None
    """None: the request could not even be made."""
    words: str
    """Of the vendor, without secrets; for the owner's own terminal only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """What the person wants written."""

    offer: Offer | None = None
    """None: the model stays as it is."""
    in_keyring: bool = False
    """Where the pasted key is kept."""
    sandbox: str | None = None
    """None: the backend stays as it is."""
