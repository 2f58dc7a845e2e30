"""How a value or a name that a person wrote is shown in a sentence, such that no key is shown with it (SEC-03).

Fields that hold keys are known by the schema and never come here. This is for keys in a wrong place.
"""

from __future__ import annotations

import json
import re

MAX_SHOWN = 80
"""Characters of a value."""
MAX_READ = 1_000
"""Characters that are looked at for it."""
HIDDEN = "…"

_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:sk|pk|rk|hf|gsk|tvly|npm|pypi|xai|pplx|nvapi|gh[a-z]|github_pat|glpat|xox[a-z]|xapp)[_-][\w-]{6,}"
    r"|(?:AKIA|ASIA|AIza|ya29|eyJ)[\w.-]{12,}"
    r"|\b(?=[A-Za-z_+=]{0,200}\d)(?=[\d_+=]{0,200}[A-Za-z])[\w+=]{20,}|\b[0-9a-fA-F-]{30,}",
    re.ASCII,
)
_USERINFO = re.compile(r"://[^\s/@\"]{1,512}@")


def careful(text: str) -> str:
    """``text`` without what looks like a key, or like a user and password in an address."""
    return _KEY.sub(HIDDEN, _USERINFO.sub(f"://{HIDDEN}@", text))


def looks_secret(text: str) -> bool:
    return careful(text) != text


def shown(value: object) -> str:
    """A value as JSON, cut to a readable length."""
    return _cut(json.dumps(value, default=str, ensure_ascii=False))


def shown_name(name: str) -> str:
    """A name as it is in the file: a key may have been put in the place of one."""
    return _cut(name)


def _cut(text: str) -> str:
    text = careful(text[:MAX_READ])
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def kind_of(value: object) -> str:
    """What a value is, for one that is not shown."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names = {str: "a text", int: "a number", float: "a number", dict: "an object", list: "a list"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "a value")
