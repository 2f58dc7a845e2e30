"""The rules that Codex has, and how many of them count here (DEC-05)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bubbles.config.schema import Settings


def said_of_rules(settings: Settings, program: str) -> str | None:
    """One sentence on the rules of Codex on this machine; None if there are no files of them."""
    from bubbles.controller.policy.contract import Effect, Layer
    from bubbles.controller.rulefiles import load_rulebook, rule_layers

    loaded = load_rulebook([layer for layer in rule_layers(settings) if layer[0] is Layer.GLOBAL])
    (layer,) = loaded.layers
    if not layer.files and not layer.warnings:
        return None
    rules = loaded.rulebook.rules
    honoured = [rule for rule in rules if rule.grants or rule.effect is not Effect.ALLOW]
    counts = ", ".join(f"{sum(rule.effect is effect for rule in honoured)} {effect}" for effect in Effect)
    said = (
        f"Found {_counted(len(rules), 'rule')} in {_counted(len(layer.files), 'file')} of Codex ({layer.path}): "
        f"{len(honoured)} {'is' if len(honoured) == 1 else 'are'} honoured ({counts})"
    )
    if warned := len({(warning.file, warning.line) for warning in layer.warnings}):
        said += f"; there {'is a warning' if warned == 1 else 'are warnings'} on {_counted(warned, 'statement')}"
    return f"{said}. '{program} rules list' shows them."


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
