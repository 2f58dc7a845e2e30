"""What of a server's tools is put before a model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bubbles.mcp.client.catalogue import Catalogue, clean_text, offered_name, rows_of
from bubbles.mcp.client.schemas import MAX_CHARACTERS, SchemaError, usable

STRING = {"type": "string"}
JSON = some.recursive(
    some.none() | some.booleans() | some.floats() | some.text(max_size=8),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
KEYWORDS = some.sampled_from(
    "type properties required items $ref $defs anyOf allOf enum not description additionalProperties".split()
)
ALMOST: some.SearchStrategy[Any] = some.recursive(
    some.sampled_from(["object", "string", [], {}, True, None, "#", "#/$defs/a", ["a"], 7]),
    lambda inner: some.dictionaries(KEYWORDS | some.just("a"), inner, max_size=4),
    max_leaves=12,
)


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def chain(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = STRING
    for _ in range(depth):
        inner = schema(a=inner)
    return inner


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({}, schema()),
        ({"type": ["object", "null"]}, schema()),
        ({**schema(a=STRING), "$schema": "https://json-schema.org/x", "$id": "urn:x"}, schema(a=STRING)),
        ({**schema(a=STRING), "anyOf": [{"required": ["a"]}]}, schema(a=STRING)),
        (
            {"$ref": "#/$defs/A", "$defs": {"A": schema(a=STRING)}},
            {**schema(a=STRING), "$defs": {"A": schema(a=STRING)}},
        ),
        (schema(a={"$ref": "#/properties/b"}, b=STRING), schema(a={"$ref": "#/properties/b"}, b=STRING)),
        (schema(a={"$ref": "#"}), schema(a={"$ref": "#"})),
        (schema(a=True), schema(a=True)),
        (schema(a={"type": "array", "items": [STRING]}), schema(a={"type": "array", "items": [STRING]})),
        (schema(**{"$ref": STRING}) | {"properties": {"type": STRING}}, schema(type=STRING)),
    ],
)
def test_a_schema_that_models_take_is_kept(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert usable(found)[0] == wanted


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        "object",
        {"type": "string"},
        {"type": ["string", "null"]},
        {"type": 7},
        {"type": "thing"},
        {"properties": []},
        {"properties": {"a": "string"}},
        {"properties": {"a": {"type": "text"}}},
        {"properties": {"a b": STRING}},
        {"properties": {"a" * 65: STRING}},
        {"required": "a"},
        {"required": [7]},
        schema(a={"enum": "x"}),
        schema(a={"anyOf": STRING}),
        schema(a={"anyOf": ["x"]}),
        schema(a={"items": "x"}),
        schema(a={"description": 7}),
        schema(a={"$ref": "#/$defs/missing"}),
        schema(a={"$ref": "https://evil.example/s.json"}),
        schema(a={"$ref": "other.json#/a"}),
        schema(a={"unknown": {"$ref": "file:///etc/passwd"}}),
        schema(a={"$dynamicRef": "https://evil.example/s.json"}),
        schema(a={"default": float("nan")}),
        schema(a={"default": "\ud800"}),
        schema(a={"description": "d" * MAX_CHARACTERS}),
        chain(40),
        chain(5_000),
    ],
    ids=lambda found: repr(found)[:60] if not isinstance(found, dict) or len(found) < 2 else "",
)
def test_a_schema_that_some_model_would_refuse_is_not(found: object) -> None:
    with pytest.raises(SchemaError):
        usable(found)


@given(JSON | ALMOST)
def test_whatever_a_server_says_gives_a_schema_or_a_reason(found: object) -> None:
    before = json.dumps(found)
    try:
        kept, text = usable(found)
    except SchemaError:
        pass
    else:
        assert json.loads(text) == kept
        assert usable(kept)[1] == text
    assert json.dumps(found) == before


@given(JSON)
def test_whatever_a_server_says_is_taken_without_an_error(found: object) -> None:
    catalogue = Catalogue("one")
    catalogue.take(found)
    catalogue.take([found, {"name": "a", "inputSchema": found}, {"name": found, "inputSchema": {}}])
    again = Catalogue("one")
    again.take(json.loads(json.dumps(rows_of(catalogue.tools))))
    assert again.tools == catalogue.tools
    assert not again.problem


def test_names_are_those_that_vendors_take_and_no_two_are_alike() -> None:
    pairs = [
        ("a", "b__c"),
        ("a__b", "c"),
        ("a_", "b"),
        ("a", "_b"),
        ("a", "b"),
        ("a", "b c"),
        ("a", "b.c"),
        ("a", "b_c"),
        ("s" * 30, "t" * 100),
        ("s" * 30, "t" * 101),
        ("a", "ü"),
        ("a", "ö"),
    ]
    names = [offered_name(server, tool) for server, tool in pairs]
    assert len(set(names)) == len(pairs)
    assert all(
        len(name) <= 64 and name.isascii() and name.replace("_", "a").replace("-", "a").isalnum() for name in names
    )
    assert names[4] == "mcp__a__b"
    assert names[0] == "mcp__a__b__c"


def test_what_cannot_be_seen_is_taken_out_of_a_description() -> None:
    assert clean_text("a\x00b\u202ec\U000e0041d\x1b[1me\n\tf\ud800", 100) == "abcd[1me\n\tf"
    assert clean_text("d" * 3_000, 2_000) == "d" * 1_999 + "…"
    assert clean_text(7, 100) == ""


def test_a_tool_whose_name_holds_a_secret_is_left_out() -> None:
    catalogue = Catalogue("one", mask=lambda text: text.replace("sk-owner-1", "[redacted]"))
    catalogue.take([{"name": name, "inputSchema": {}} for name in ("leak-sk-owner-1", "fine")])
    assert [tool.name for tool in catalogue.tools] == ["fine"]
    assert catalogue.problem == "1 of its tools is left out (its name holds a secret of yours)"


def test_there_is_an_end_to_how_many_there_are() -> None:
    catalogue = Catalogue("one")
    for page in range(11):
        catalogue.take([{"name": f"t{page}_{n}", "inputSchema": {}} for n in range(1_000)])
    assert len(catalogue.tools) == 10_000
    assert catalogue.problem == "1000 of its tools are left out (there are too many)"
