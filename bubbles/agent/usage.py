"""Tokens of several requests together."""

from __future__ import annotations

from bubbles.providers.contract import Usage


def total(one: Usage, other: Usage) -> Usage:
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
    )
