"""Arguments of a call to an MCP server: read, looked at, and written once, as they are approved and sent (DEC-12)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from bubbles.controller.approvals.card import shown_line
from bubbles.mcp.contract import ServerTool
from bubbles.tools.contract import ToolError

MAX_ARGUMENTS = 1_000_000
"""Characters of one call's arguments. Nobody approves nearly as many; what is on an allow-list may be a document."""
MAX_NAME = 64
MAX_NAMES = 20
MAX_HINTED = 4
MAX_VALUE = 40
"""Characters of a value in a hint."""


def read_object(text: str) -> dict[str, Any]:
    """Raises ToolError for what is no JSON object."""
    if len(text) > MAX_ARGUMENTS:
        raise ToolError(
            f"The arguments have {len(text):,} characters, and a call of an MCP tool takes at most {MAX_ARGUMENTS:,}: "
            "do it in several steps."
        )
    try:
        found = json.loads(text.strip() or "{}", parse_constant=_no_json)
    except ValueError as error:
        raise ToolError(f"The arguments are no valid JSON object: {str(error)[:200]}.") from None
    except RecursionError:
        raise ToolError("The arguments are nested too deeply.") from None
    if not isinstance(found, dict):
        raise ToolError(f"The arguments must be a JSON object, not {type(found).__name__}.")
    return found


def _no_json(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def written(arguments: Mapping[str, Any], *, by_http: bool) -> str:
    """The text that is sent for them, so that what is approved is that and no other writing of it. The two transports
    of the SDK write numbers such as 1e-7 differently. Raises ToolError for what JSON, or UTF-8, cannot hold.
    """
    from pydantic_core import to_json

    try:
        text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        text.encode()
        return text if by_http else to_json(arguments).decode()
    except (ValueError, RecursionError):
        raise ToolError(
            "The arguments hold what cannot be sent: half a character, a number beyond all bounds, or too many levels."
        ) from None


def check(arguments: Mapping[str, Any], tool: ServerTool) -> None:
    """Raises ToolError for what the server would surely refuse: nobody need be asked about that.

    A server may say nonsense of its arguments; that must not keep its tool from being called.
    """
    properties, required = tool.schema.get("properties"), tool.schema.get("required")
    if not isinstance(properties, Mapping):
        return
    wanted = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    faults = [f"{_shown(name)} is missing" for name in wanted if name in properties and name not in arguments]
    if tool.schema.get("additionalProperties") is False and properties and "patternProperties" not in tool.schema:
        faults += [f"{_shown(name)} is no argument of it" for name in arguments if name not in properties]
    if faults:
        more = f"; and {len(faults) - MAX_NAMES} more" if len(faults) > MAX_NAMES else ""
        raise ToolError(
            f"The arguments are not right: {'; '.join(faults[:MAX_NAMES])}{more}. Expected: {signature(tool.schema)}."
        )


def signature(schema: Mapping[str, Any]) -> str:
    """Such as ``{"title": string, "labels"?: array}``; at most 20 names."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping) or not properties:
        return "{}"
    needed = required if isinstance(required, list) else ()
    shown = [
        f'"{_shown(name)}"{"" if name in needed else "?"}: {_kind(part)}'
        for name, part in islice(properties.items(), MAX_NAMES)
    ]
    if len(properties) > MAX_NAMES:
        shown.append("…")
    return f"{{{', '.join(shown)}}}"


def _kind(part: object) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return _shown(kind) if isinstance(kind, str) else "any"


def _shown(name: str) -> str:
    name = shown_line(name[: 2 * MAX_NAME])
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def hint(server: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """Such as ``github.create_issue(title: "…")``."""
    shown = [f"{name[:MAX_NAME]}: {_value(value)}" for name, value in islice(arguments.items(), MAX_HINTED)]
    if len(arguments) > MAX_HINTED:
        shown.append("…")
    return f"{server}.{tool}({', '.join(shown)})"


def _value(value: object) -> str:
    if isinstance(value, str):
        cut = value if len(value) <= MAX_VALUE else f"{value[: MAX_VALUE - 1]}…"
        return json.dumps(cut, ensure_ascii=not cut.isprintable())
    text = json.dumps(value)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"
