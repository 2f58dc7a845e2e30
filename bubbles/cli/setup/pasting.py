"""A key that the person pastes: whose it is, and where it is kept."""

from __future__ import annotations

from dataclasses import replace

from bubbles.cli.setup import asking
from bubbles.cli.setup.contract import Offer
from bubbles.providers.registry import REGISTRY, Entry, of_prefix


def pasted(*, may_skip: bool) -> Offer | None:
    """An offer with a pasted key; None if the person would rather not. Raises EOFError, KeyboardInterrupt."""
    entries = [entry for entry in REGISTRY.values() if entry.key_variable and entry.default_model]
    if may_skip:
        question = f"Whose key? {', '.join(entry.name for entry in entries[:4])}, …; Enter goes on without a model:"
    else:
        question = f"Whose key? {', '.join(entry.name for entry in entries)}; Enter goes back:"
    while True:
        answer = asking.ask(question)
        if not answer:
            return None
        entry = of_prefix(answer)
        if entry in entries and entry is not None:
            key = asking.hidden(f"Key of {entry.name} (it is not shown):")
            return _offer(entry, key) if key else None
        print(f"Please take one of {', '.join(each.name for each in entries)}.")


def _offer(entry: Entry, key: str) -> Offer:
    assert entry.default_model is not None
    return Offer(provider=entry.name, model=entry.default_model, note="pasted key", secret=key)


def kept(offer: Offer) -> tuple[Offer, bool]:
    """The offer as its pasted key is to be kept, and whether the keyring has the key now.

    Asked last, so that nothing is kept for somebody who left before. Raises EOFError, KeyboardInterrupt.
    """
    from bubbles.config.keys import SERVICE, KeyReference, KeyringError, keep

    assert offer.secret is not None
    reference = KeyReference(service=SERVICE, name=offer.provider)
    try:
        keep(reference, offer.secret)
    except KeyringError as error:
        print(f"The key cannot go into a keyring: {error}.")
    else:
        print(f"The key is in the keyring of this system, as {SERVICE}/{offer.provider}.")
        return offer, True
    if asking.agrees("It would stand in config.json itself, which only you can read (mode 0600). Keep it there?"):
        return offer, False
    variable = REGISTRY[offer.provider].key_variable
    print(f"It is not kept: export {variable} where Bubbles is started.")
    return replace(offer, secret=None, variable=variable), False
