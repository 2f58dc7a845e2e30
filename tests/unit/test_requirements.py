"""Promises and proofs: every ID that a test or a document names is a requirement of the product."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENT_IDS = (ROOT / "tests" / "requirement_ids.txt").read_text().split()
FAMILIES = "|".join(sorted({name.split("-")[0] for name in REQUIREMENT_IDS}))
MENTION = re.compile(rf"(?<![A-Z0-9-])(?:{FAMILIES})-\d\d(?!\d)")


def texts() -> list[Path]:
    documents = list(ROOT.glob("*.md"))
    code = [path for folder in ("bubbles", "sandbox_backends", "tests") for path in (ROOT / folder).rglob("*.py")]
    return sorted(documents + code)


def test_the_list_names_each_requirement_once() -> None:
    assert len(REQUIREMENT_IDS) == len(set(REQUIREMENT_IDS)) > 100
    assert all(MENTION.fullmatch(name) for name in REQUIREMENT_IDS)


def test_only_requirements_that_exist_are_named() -> None:
    unknown = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in texts()
        for name in set(MENTION.findall(path.read_text(encoding="utf-8"))) - set(REQUIREMENT_IDS)
    }
    assert not unknown
