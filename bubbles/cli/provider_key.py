"""``bubbles provider key``: puts a provider's key into the keyring of the operating system."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bubbles.cli import completing
from bubbles.cli.report import ended_like_by_ctrl_c, visible


def set_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The provider.", autocompletion=completing.providers)],
    remove: Annotated[
        bool, typer.Option("--remove", help="Forget the key, and take it out of the configuration.")
    ] = False,
) -> int:
    """Keep a provider's key in the keyring of this system.

    It is read without being shown; off a terminal, from standard input. The configuration then holds a reference to
    it and not the key.
    """
    from bubbles.config.edit import REMOVE, change, check
    from bubbles.config.keys import SERVICE, KeyReference, KeyringError, forget, keep
    from bubbles.config.load import find_places
    from bubbles.errors import BubblesError
    from bubbles.providers.registry import REGISTRY, Kind, spelled

    entry = REGISTRY.get(spelled(name))
    if entry is None or entry.kind is Kind.LOGIN:
        known = ", ".join(each.name for each in REGISTRY.values() if each.kind is not Kind.LOGIN)
        hint = f"'bubbles provider login {entry.name}' is its way in" if entry else f"take one of {known}"
        raise typer.BadParameter(f"{visible(name[:80])!r} has no key: {hint}")
    reference = KeyReference(service=SERVICE, name=entry.name)
    config = find_places().config
    setting = ("providers", entry.name, "api_key")
    where = f"providers.{entry.name}.apiKey"
    check(config)  # where nothing can be set, no key is put in the place of another, or taken out
    try:
        if remove:
            there = forget(reference)
            changed = config.exists() and change(config, setting, REMOVE)
            said = "The key is forgotten" if there else "The keyring had no such key"
            print(f"{said}; {where} {'is unset now' if changed else 'was not set'}.")
            return 0
        keep(reference, _read_key(entry.name))
    except KeyringError as error:
        variable = entry.key_variable or "API_KEY"
        mend = f"'bubbles onboard --provider {entry.name} --api-key-env {variable}' takes it from the environment"
        raise BubblesError(f"The key was not {'forgotten' if remove else 'kept'}: {error}; {mend}.") from None
    try:
        change(config, setting, reference.text)
    except BubblesError as error:
        raise BubblesError(
            f"The key is in the keyring as {reference.service}/{reference.name}, but not in use: {error}"
        ) from None
    print(f"The key is in the keyring as {reference.service}/{reference.name}, and {where} refers to it.")
    return 0


def _read_key(provider: str) -> str:
    """One line, not shown while it is typed. Raises typer.BadParameter, typer.Abort."""
    from bubbles.config.keys import MAX_KEY, is_key

    if sys.stdin is None:
        raise typer.BadParameter("standard input is closed: give the key there, or run it in a terminal")
    if sys.stdin.isatty():
        import getpass

        try:
            with ended_like_by_ctrl_c():
                text = getpass.getpass(f"Key of {provider} (it is not shown): ")
        except EOFError as error:
            print()
            raise typer.Abort from error
    else:
        text = sys.stdin.readline(MAX_KEY + 2)
    key = text.strip()
    if not key:
        raise typer.BadParameter("the key is empty: paste it, or give it on standard input")
    if not is_key(key):
        raise typer.BadParameter("that is no key: it must be one line of ASCII characters, as the provider gave it")
    return key
