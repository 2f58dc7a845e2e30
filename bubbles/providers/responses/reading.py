"""Makes one reply of the events of OpenAI's Responses API. Nothing in them is trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bubbles.providers.assembly import DONE, decoded, fitting, number, taken_ids
from bubbles.providers.contract import NO_USAGE, AssistantMessage, Message, ModelReply, Stop, ToolCall, Usage
from bubbles.providers.failures import broken, of_error
from bubbles.providers.pieces import TextPieces
from bubbles.providers.responses.outline import BETWEEN, CALL, reasoning_of, text_of, vendor_of
from bubbles.providers.toolcalls import CallsInProgress

MAX_ITEMS = 1_000
"""Of one reply."""
TEXT, REASONING, FUNCTION = KINDS = ("message", "reasoning", "function_call")
"""What a reply is made of, as far as it was asked for."""


class _Item:
    """One of the reply, as far as it has come."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.text = TextPieces()
        self.phase: object = None
        self.reasoning: Mapping[str, Any] | None = None
        self.call: dict[str, str] = {"call_id": "", "name": "", "arguments": ""}
        self.pieces: list[str] = []
        """Of the arguments, until they come whole."""

    def add_call(self) -> dict[str, object]:
        arguments = self.call["arguments"] or "".join(self.pieces)
        return {"id": self.call["call_id"], "function": {"name": self.call["name"], "arguments": arguments}}


class ResponsesReading:
    """As ``exchange.Reading``. Items are told apart by their place: Copilot gives each event another id."""

    def __init__(self, provider: str, messages: Sequence[Message] = (), secrets: Sequence[str] = ()) -> None:
        """As ``Assembly``."""
        self.finished = False
        self.done = False
        self._provider = provider
        self._messages = messages
        self._secrets = secrets
        self._items: list[_Item] = []
        self._open: dict[object, _Item] = {}
        """Those that are still coming, by their place."""
        self._shown = False
        self._stop: Stop | None = None
        self._usage = NO_USAGE

    def event(self, data: str) -> str:
        """One event of a stream; returns the text that it adds."""
        if data.strip() == DONE:
            self.done = True
            return ""
        return "".join([self._took(event) for event in decoded(data)])

    def whole(self, data: str) -> str:
        """The answer of a server that does not stream; returns its text."""
        text = "".join([self._took(event) for event in decoded(data)])
        self.done = True
        return text

    def reply(self) -> ModelReply:
        """What has come, if it is all of the reply."""
        if not self.finished:
            raise broken("the connection ended before the reply did")
        items = [item for item in self._items if item.kind != REASONING or item.reasoning]
        texts = [item.text.all() if item.kind == TEXT else "" for item in items]
        calls = self._calls(items)
        outline = [_entry(item, text) for item, text in zip(items, texts, strict=True)]
        message = AssistantMessage(
            text=BETWEEN.join(filter(None, texts)),
            tool_calls=calls,
            vendor=vendor_of(outline),
            provider=self._provider,
        )
        stop = self._stop or (Stop.TOOL_CALLS if calls else Stop.END)
        return ModelReply(message=fitting(message), stop=stop, usage=self._usage)

    def _calls(self, items: Sequence[_Item]) -> tuple[ToolCall, ...]:
        found = CallsInProgress()
        found.add([item.add_call() for item in items if item.kind == FUNCTION], whole=True)
        return tuple(found.all(lambda: taken_ids(self._messages)))

    def _took(self, event: object) -> str:
        if not isinstance(event, dict):
            raise broken("a piece of the reply is no object")
        kind = event.get("type")
        if kind == "error" or (not isinstance(kind, str) and (event.get("error") or event.get("detail"))):
            raise of_error(event, secrets=self._secrets)
        if not isinstance(kind, str):
            return self._ended({"response": event})  # it does not stream
        taking = _TAKEN.get(kind)
        return taking(self, event) if taking else ""

    def _item(self, event: Mapping[str, Any], kind: str, *, begins: bool = False) -> _Item:
        place = _place(event)
        known = self._open.get(place)
        if known is None or known.kind != kind or begins:
            if len(self._items) >= MAX_ITEMS:
                raise broken(f"the reply has more than {MAX_ITEMS} parts")
            known = self._open[place] = _Item(kind)
            self._items.append(known)
        return known

    def _added(self, event: Mapping[str, Any]) -> str:
        item = _object(event, "item")
        if (kind := item.get("type")) in KINDS:
            self._fill(self._item(event, kind, begins=True), item)
        return ""

    def _item_done(self, event: Mapping[str, Any]) -> str:
        item = _object(event, "item")
        if (kind := item.get("type")) not in KINDS:
            return ""
        known = self._item(event, kind)
        self._open.pop(_place(event), None)
        self._fill(known, item)
        said, whole = known.text.all(), _content(item) if kind == TEXT else ""
        return self._show(known, whole[len(said) :]) if whole.startswith(said) else ""

    def _fill(self, known: _Item, item: Mapping[str, Any]) -> None:
        if known.kind == TEXT:
            known.phase = item.get("phase") or known.phase
        elif known.kind == REASONING:
            known.reasoning = reasoning_of(item)
        else:
            known.call |= {name: text for name in known.call if (text := _text(item, name))}

    def _delta(self, event: Mapping[str, Any]) -> str:
        return self._show(self._item(event, TEXT), _text(event, "delta"))

    def _show(self, item: _Item, piece: str) -> str:
        begins = self._shown and not item.text.begun
        piece = item.text.add(piece)
        if not piece:
            return ""
        self._shown = True
        return BETWEEN + piece if begins else piece

    def _arguments(self, event: Mapping[str, Any]) -> str:
        self._item(event, FUNCTION).pieces.append(_text(event, "delta"))
        return ""

    def _arguments_done(self, event: Mapping[str, Any]) -> str:
        self._item(event, FUNCTION).call["arguments"] = _text(event, "arguments")
        return ""

    def _ended(self, event: Mapping[str, Any]) -> str:
        response = _object(event, "response")
        status = response.get("status")
        if event.get("type") == "response.failed" or status in ("failed", "cancelled") or response.get("error"):
            raise of_error(response.get("error") or {"code": "response_failed"}, secrets=self._secrets)
        if event.get("type") == "response.incomplete" or status == "incomplete":
            why = response.get("incomplete_details")
            reason = why.get("reason") if isinstance(why, dict) else None
            self._stop = Stop.CONTENT_FILTER if reason == "content_filter" else Stop.LENGTH
        elif not isinstance(response.get("output"), list | None) or (status is None and "type" not in event):
            raise broken("the reply is no response")
        self._count(response.get("usage"))
        output = response.get("output")
        text = ""
        if not self._items and isinstance(output, list):
            for place, item in enumerate(output[: MAX_ITEMS + 1]):
                text += self._item_done({"output_index": place, "item": item})
        self.finished = self.done = True
        return text

    def _count(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        details = usage.get("input_tokens_details")
        self._usage = Usage(
            input_tokens=number(usage.get("input_tokens")),
            output_tokens=number(usage.get("output_tokens")),
            cached_tokens=number(details.get("cached_tokens")) if isinstance(details, dict) else 0,
        )


_TAKEN: Mapping[str, Callable[[ResponsesReading, Mapping[str, Any]], str]] = {
    "response.output_item.added": ResponsesReading._added,
    "response.output_item.done": ResponsesReading._item_done,
    "response.output_text.delta": ResponsesReading._delta,
    "response.refusal.delta": ResponsesReading._delta,
    "response.function_call_arguments.delta": ResponsesReading._arguments,
    "response.function_call_arguments.done": ResponsesReading._arguments_done,
    "response.completed": ResponsesReading._ended,
    "response.done": ResponsesReading._ended,
    "response.incomplete": ResponsesReading._ended,
    "response.failed": ResponsesReading._ended,
    "response.cancelled": ResponsesReading._ended,
}
"""Anything else is news of how it goes on."""


def _entry(item: _Item, text: str) -> Mapping[str, Any]:
    if item.kind == TEXT:
        return text_of(text, item.phase)
    return CALL if item.reasoning is None else item.reasoning


def _place(event: Mapping[str, Any]) -> object:
    place, item_id = event.get("output_index"), event.get("item_id")
    return place if isinstance(place, int) else item_id if isinstance(item_id, str) else None


def _object(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = event.get(name)
    if not isinstance(value, dict):
        raise broken(f"{name} of a piece of the reply is no object")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str | None):
        raise broken(f"{name} of a piece of the reply is no text")
    return value or ""


def _content(item: Mapping[str, Any]) -> str:
    content = item.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "".join([_text(part, "refusal" if part.get("type") == "refusal" else "text") for part in parts])
