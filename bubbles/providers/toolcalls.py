"""Puts tool calls together out of the pieces in which servers send them, each in its own way."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bubbles.providers.contract import ToolCall
from bubbles.providers.failures import broken
from bubbles.providers.vendor import OF_CALLS, VendorFields, mended

MAX_CALLS = 128
"""Of one reply."""
MAX_NAME_CHARS = 256
MAX_LOOKS = 64
"""How often all of a call's arguments are looked at while they come: each time costs as much as there is of them."""
_USABLE_ID = re.compile(r"[!-~]{1,256}")


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.vendor = VendorFields(OF_CALLS)
        self._looks = 0

    def is_whole(self) -> bool:
        if self._looks >= MAX_LOOKS or not self.arguments or not self.arguments[-1].rstrip().endswith("}"):
            return False
        self._looks += 1
        return _is_object("".join(self.arguments))


class CallsInProgress:
    """Most servers number calls and send an id and a name once, then pieces of the arguments. Some number them all 0,
    or not at all, send whole calls, repeat the name or the id in each piece, give each piece an id of its own, or give
    no ids.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, pieces: object, *, whole: bool) -> None:
        """The value of ``tool_calls``; ``whole``: of a reply that was not streamed."""
        if not isinstance(pieces, list):
            raise broken("the tool calls of the reply are no list")
        for piece in pieces:
            self._add(piece, whole=whole)

    def all(self, taken: Callable[[], set[str]]) -> Iterator[ToolCall]:
        """``taken`` gives the ids that the history has; it is asked only if there are calls."""
        used = taken() if self._calls else set()
        for call in self._calls:
            if not call.name.strip():
                raise broken("a tool call of the reply has no name")
            known = call.id if _USABLE_ID.fullmatch(call.id) and call.id not in used else f"call_{os.urandom(12).hex()}"
            used.add(known)
            arguments = mended("".join(call.arguments))
            yield ToolCall(
                id=known,
                name=mended(call.name),
                arguments=arguments if arguments.strip() else "{}",
                vendor=call.vendor.all(),
            )

    def _add(self, piece: object, *, whole: bool) -> None:
        if not isinstance(piece, dict):
            raise broken("a tool call of the reply is no object")
        function = piece.get("function")
        if not isinstance(function, dict | None):
            raise broken("the function of a tool call is no object")
        function = function or {}
        name, arguments = _text(function.get("name"), "name"), _arguments(function.get("arguments"))
        call = self._call_of(piece, name, arguments, whole=whole)
        _name(call, name)
        call.arguments.append(arguments)
        call.vendor.add(piece)
        call.vendor.add(function)

    def _call_of(self, piece: Mapping[str, Any], name: str, arguments: str, *, whole: bool) -> _Call:
        index, call_id = piece.get("index"), _text(piece.get("id"), "id")
        if not isinstance(index, int | None):
            raise broken("the index of a tool call is no number")
        if index is not None:
            known = self._by_index.get(index)
        else:
            same = [call for call in self._calls if call_id and call.id == call_id]
            known = same[0] if same else (self._calls[-1] if self._calls else None)
        if known is None or (whole and index is None) or _is_another(known, call_id, name, arguments):
            known = self._new(index)
        known.id = known.id or call_id
        return known

    def _new(self, index: int | None) -> _Call:
        if len(self._calls) >= MAX_CALLS:
            raise broken(f"the reply has more than {MAX_CALLS} tool calls")
        call = _Call()
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call


def _is_another(known: _Call, call_id: str, name: str, arguments: str) -> bool:
    """Whether a piece in the place of a known call begins a call of its own."""
    if not name:
        return False
    if call_id and known.id:
        return call_id != known.id
    return arguments.lstrip().startswith("{") and known.is_whole()


def _name(call: _Call, name: str) -> None:
    """A name may come once, in every piece, growing, or in pieces."""
    if not name or name == call.name:
        return
    call.name = name if name.startswith(call.name) else call.name + name
    if len(call.name) > MAX_NAME_CHARS:
        raise broken("the name of a tool call is too long")


def _text(value: object, what: str) -> str:
    if not isinstance(value, str | None):
        raise broken(f"the {what} of a tool call is no text")
    return value or ""


def _arguments(value: object) -> str:
    """Text, or the object itself where a server does not quote it."""
    if not isinstance(value, dict):
        return _text(value, "arguments")
    try:
        return json.dumps(value)
    except RecursionError:
        raise broken("the arguments of a tool call are too deep") from None


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
