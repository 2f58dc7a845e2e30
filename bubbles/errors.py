"""The root of what Bubbles raises on purpose.

BubblesError
└── ConfigError            a setting is wrong; names its source, the field, the value and the mend

Errors of the sandbox layer have a root of their own, ``sandbox_backends.errors.SandboxError``.
"""

from __future__ import annotations


class BubblesError(Exception):
    """The message is one sentence for the person: what, with which value, and the mend."""

    exit_code = 1
    """What the command line ends with when this error reaches it."""


class ConfigError(BubblesError):
    """A setting is wrong, wherever it came from."""

    exit_code = 2
