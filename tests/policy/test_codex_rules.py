"""The language and the matching of rules, held against what codex-cli 0.171.0 answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bubbles.controller.policy.contract import Layer
from bubbles.controller.policy.rules import bind, parse_rules, resolve_precedence

CASES = Path(__file__).parents[1] / "cases" / "codex_rules.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]


def named(rows: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(row, id=f"{row['id']}-{row.get('label', '')}") for row in rows]


@pytest.mark.req("DEC-04", "DEC-07")
@pytest.mark.parametrize("row", named([row for row in ROWS if row["status"] == "ok"]))
def test_a_file_that_codex_accepts_has_the_same_matches_and_decision(row: dict[str, Any]) -> None:
    parsed = parse_rules(row["rules"], file="cases.rules", layer=Layer.GLOBAL)
    matches = bind(parsed.rules).exact_matches(row["argv"])
    found = [
        {"prefix": list(match.prefix), "decision": str(match.effect)}
        | ({"justification": match.justification} if match.justification else {})
        for match in matches
    ]
    effect, _ = resolve_precedence(matches)
    assert found == row["matched"]
    assert (effect and str(effect)) == row["decision"]


@pytest.mark.req("DEC-04")
@pytest.mark.parametrize("row", named([row for row in ROWS if row["status"] == "error"]))
def test_a_file_that_codex_refuses_has_a_warning_with_its_line(row: dict[str, Any]) -> None:
    warnings = parse_rules(row["rules"], file="cases.rules", layer=Layer.GLOBAL).warnings
    assert warnings
    assert all(str(warning).startswith(f"cases.rules:{warning.line}: ") and warning.line > 0 for warning in warnings)
