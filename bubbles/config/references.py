"""``${VAR}`` in the values of a file: what the environment variable holds. ``$${`` stands for ``${`` itself (CFG-01).
``keyring:SERVICE/NAME``, where it is the whole of a secret's value: what the keyring holds (SEC-03).

Only values of ``config.json`` are read like this. Names and variables are taken as they are, and so is a session's own
``config.json``: whoever may write ``/config`` in a chat must not be able to ask for the environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bubbles.config.fields import Names, Tree
from bubbles.config.keys import PREFIX, KeyReference, KeyringError, KeyringSilentError, Lookup, look_up, read_reference

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Of an environment variable."""
_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_UNSET = object()


@dataclass(slots=True)
class References:
    """What was found in one tree. Anything in a list is found under the list's names."""

    environment: Mapping[str, str] | None
    """None: no variable is known, no keyring asked, and every value that needs one counts as unset."""
    is_secret: Callable[[Names], bool] = lambda _: False
    """Whether what stands under these names is a secret: only such a value is looked for in the keyring."""
    look_up: Lookup = look_up
    used: dict[Names, str] = field(default_factory=dict)
    """Where a value came from a variable, and the variable: such a value is never shown."""
    missing: dict[Names, str] = field(default_factory=dict)
    """Where a value counts as unset, and the variable that is not set, or empty."""
    locked: dict[Names, KeyringError] = field(default_factory=dict)
    """Where a value counts as unset because the keyring did not give it, and why."""

    def resolve(self, tree: Tree) -> Tree:
        """A copy of ``tree`` with what the references stand for. A value that cannot be had is left out."""
        return self._inside(tree, ())

    def _inside(self, tree: Tree, above: Names) -> Tree:
        pairs = ((name, self._value(value, (*above, name))) for name, value in tree.items())
        return {name: value for name, value in pairs if value is not _UNSET}

    def _value(self, value: object, names: Names) -> object:
        if isinstance(value, str):
            if value.startswith(PREFIX) and (kept := read_reference(value)) is not None and self.is_secret(names):
                return self._kept(kept, names)
            return self._text(value, names) if "${" in value else value
        if isinstance(value, list):
            return [item for item in (self._value(each, names) for each in value) if item is not _UNSET]
        return self._inside(value, names) if isinstance(value, dict) else value

    def _kept(self, reference: KeyReference, names: Names) -> object:
        if self.environment is None:
            return _UNSET
        silent = next((error for error in self.locked.values() if isinstance(error, KeyringSilentError)), None)
        try:
            if silent is not None:
                raise silent  # it is waited for once, however many keys it has
            found = self.look_up(reference)
        except KeyringError as error:
            self.locked[names] = error
            return _UNSET
        self.used[names] = reference.text
        return found

    def _text(self, text: str, names: Names) -> object:
        pieces: list[str] = []
        end = 0
        for found in _REFERENCE.finditer(text):
            pieces.append(text[end : found.start()])
            end = found.end()
            variable = found[1]
            if variable is None:
                pieces.append("${")
                continue
            held = None if self.environment is None else self.environment.get(variable)
            if not held:  # an empty variable is an unset one: compose files pass them on like that
                self.missing[names] = variable
                return _UNSET
            self.used[names] = variable
            pieces.append(held)
        return "".join((*pieces, text[end:]))
