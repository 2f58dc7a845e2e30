"""For the shell's Tab: names that options take. Nothing is made, and nothing heavy is imported."""

from __future__ import annotations


def backends(incomplete: str) -> list[str]:
    """Of sandboxes."""
    from sandbox_backends.registry import backend_names

    return [name for name in backend_names() if name.startswith(incomplete)]


def providers(incomplete: str) -> list[str]:
    """Of those that can be chosen today."""
    from bubbles.providers.registry import names

    return [name for name in names() if name.startswith(incomplete)]
