"""An MCP server over stdio that does what its first argument says, and whose tools do what they are called.

Plain Python and one file, so that it runs in any sandbox. Without an argument it is a server like any other.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]

MODE = sys.argv[1] if len(sys.argv) > 1 else "plain"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
MODERN = "io.modelcontextprotocol/protocolVersion"
QUESTIONS = ("sampling/createMessage", "elicitation/create", "roots/list", "ping", "made/up")

given_up: list[object] = []
answers: Row = {}


def say(message: Row) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def tool(name: object, description: object = "", schema: object = TEXT, **more: object) -> Row:
    return {"name": name, "description": description, "inputSchema": schema, **more}


def text(value: object, **more: object) -> Row:
    return {"content": [{"type": "text", "text": value}], **more}


# -- what its tools do: each gets the request's id and the arguments; None is no answer --


def cwd(_: object, arguments: Row) -> Row:
    return text(os.getcwd())


def large(_: object, arguments: Row) -> Row:
    return text(json.dumps([{"row": number, "value": "v" * 80} for number in range(3_000)]))


def huge(_: object, arguments: Row) -> Row:
    return text("h" * (20 << 20))


def crowd(request: object, arguments: Row) -> None:
    head = f'{{"jsonrpc": "2.0", "id": {json.dumps(request)}, "result": {{"content": ['
    sys.stdout.write(head + "[]," * 4_000_000 + "1]}}\n")
    sys.stdout.flush()


def silent(_: object, arguments: Row) -> None:
    return


def hang(_: object, arguments: Row) -> None:
    time.sleep(1_000)


def die(_: object, arguments: Row) -> None:
    complain("I must go.")
    os._exit(3)


def refuse(request: object, arguments: Row) -> None:
    say({"id": request, "error": {"code": -32602, "message": f"no such thing, {os.environ.get('API_KEY')}"}})


def pictures(_: object, arguments: Row) -> Row:
    kinds: list[tuple[str, object]] = [
        ("image/png", PNG),
        ("image/png", "!!!"),
        ("image/svg+xml", "PHN2Zz4="),
        ("image/png", 7),
    ]
    return {"content": [{"type": "image", "mimeType": kind, "data": data} for kind, data in kinds]}


def odd(_: object, arguments: Row) -> Row:
    return {
        "content": [
            {"type": "hologram"},
            "no part",
            {"type": "audio", "mimeType": "audio/wav", "data": ""},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
            {"type": "resource_link", "uri": "file:///b.txt", "name": "b"},
        ]
    }


def wrong(request: object, arguments: Row) -> None:
    say({"id": request, "result": "a text"})


def ask(_: object, arguments: Row) -> Row:
    for method in QUESTIONS:
        say({"id": f"about {method}", "method": method, "params": {}})
    return text("asked")


def more(_: object, arguments: Row) -> Row:
    TOOLS["new"] = TOOLS["echo"]
    for _number in range(20):
        say({"method": "notifications/tools/list_changed"})
    return text("there is more")


def flood(_: object, arguments: Row) -> None:
    while True:
        say({"method": "notifications/message", "params": {"level": "info", "data": "x" * 100}})


def questions(_: object, arguments: Row) -> None:
    for number in range(100_000):
        say({"id": f"q{number}", "method": "ping"})


def complaint(_: object, arguments: Row) -> Row:
    complain(str(arguments.get("text")))
    return text("done")


def child(_: object, arguments: Row) -> Row:
    started = subprocess.Popen(["sleep", "1000"], start_new_session=True, env={})
    return text(str(started.pid))


TOOLS: dict[str, Callable[[object, Row], Row | None]] = {
    "echo": lambda _, arguments: text(str(arguments.get("text"))),
    "pid": lambda _, arguments: text(str(os.getpid())),
    "env": lambda _, arguments: text(json.dumps(dict(os.environ))),
    "cwd": cwd,
    "large": large,
    "huge": huge,
    "crowd": crowd,
    "silent": silent,
    "hang": hang,
    "given_up": lambda _, arguments: text(json.dumps(given_up)),
    "die": die,
    "fail": lambda _, arguments: text("it did not work", isError=True),
    "refuse": refuse,
    "pictures": pictures,
    "odd": odd,
    "wrong": wrong,
    "lie": lambda _, arguments: text("n is seven", structuredContent={"m": 7}),
    "structured": lambda _, arguments: {"content": [], "structuredContent": {"n": 7, "ü": "ö"}},
    "ask": ask,
    "answers": lambda _, arguments: text(json.dumps(answers)),
    "more": more,
    "flood": flood,
    "questions": questions,
    "complain": complaint,
    "child": child,
}


# -- what it says that it has --


def bad_tools() -> list[object]:
    deep: Row = {}
    for _ in range(40):
        deep = {"type": "object", "properties": {"a": deep}}
    return [
        tool("good"),
        tool("good", "a second one of that name"),
        tool("no schema", schema=None),
        tool("text schema", schema="object"),
        tool("an array", schema={"type": "array"}),
        tool("far", schema={"type": "object", "properties": {"a": {"$ref": "https://evil.example/s.json"}}}),
        tool("deep", schema=deep),
        tool("long", schema={"type": "object", "description": "x" * 50_000}),
        tool(7),
        tool(""),
        tool("x" * 500),
        "no tool",
        tool("odd/name with ünïcode"),
        tool("n" * 100),
        tool("described", "d" * 100_000),
        tool("null\0byte"),
    ]


def many(count: int) -> list[Row]:
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string", "description": "d" * 50} for n in range(9)}}
    return [tool(f"tool_{number}", f"Does thing {number}. " * 10, schema) for number in range(count)]


def listed(params: Row) -> Row:
    at = int(params.get("cursor", 0)) if MODE != "same-cursor" else 0
    if MODE == "bad-tools":
        return {"tools": bad_tools()}
    if MODE == "no-list":
        return {"tools": "none"}
    if MODE.startswith("many-"):
        return {"tools": many(int(MODE[5:]))}
    if MODE == "endless-pages":
        return {"tools": [tool(f"tool_{at}")], "nextCursor": str(at + 1)}
    if MODE == "leaks":
        return {"tools": [tool("leak", f"The key is {os.environ['API_KEY']}.", {"type": "object", "title": KEYED})]}
    named = [tool(name, f"It is called {name}.", outputSchema={"required": ["n"]}) for name in TOOLS]
    if MODE == "pages":
        return {"tools": named[at : at + 1], **({"nextCursor": str(at + 1)} if at + 1 < len(named) else {})}
    return {"tools": named, **({"nextCursor": "0"} if MODE == "same-cursor" else {})}


KEYED = os.environ.get("API_KEY", "")


# -- the protocol --


def initialize(request: object, params: Row) -> None:
    if MODE == "modern":
        error = {"code": -32022, "message": "too old", "data": {"supported": ["2026-07-28"]}}
        return say({"id": request, "error": error})
    version = "1999-01-01" if MODE == "strange-version" else params["protocolVersion"]
    server = {"name": "hostile", "version": "1"}
    return say(
        {"id": request, "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}}
    )


def discover(request: object, params: Row) -> None:
    result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
    say({"id": request, "result": {**result, "ttlMs": 0, "cacheScope": "private"}})


def call(request: object, params: Row) -> None:
    if MODE == "modern" and MODERN not in params.get("_meta", {}):
        return say({"id": request, "error": {"code": -32600, "message": "no envelope"}})
    result = TOOLS[params["name"]](request, params.get("arguments") or {})
    return say({"id": request, "result": result}) if result is not None else None


METHODS: dict[str, Callable[[object, Row], None]] = {
    "initialize": initialize,
    "server/discover": discover,
    "tools/list": lambda request, params: say({"id": request, "result": listed(params)}),
    "tools/call": call,
    "ping": lambda request, params: say({"id": request, "result": {}}),
    "notifications/cancelled": lambda _, params: given_up.append(params["requestId"]),
}


def handle(message: Row) -> None:
    method = message.get("method")
    if method is None:
        answers[str(message["id"])] = message.get("error", {}).get("message", "answered")
    elif method in METHODS:
        METHODS[method](message.get("id"), message.get("params") or {})


# -- what it does instead --


def endlessly(stream: Any, piece: str) -> None:
    while True:
        stream.write(piece)


def crash() -> None:
    complain("Traceback (most recent call last):\nModuleNotFoundError: No module named 'x'")
    sys.exit(3)


def greet() -> None:
    sys.stdout.write("Welcome to the server!\n\n{not json\n[1, 2]\n\xff\0\n")
    sys.stdout.flush()


BEGINNINGS: dict[str, Callable[[], object]] = {
    "hang": lambda: time.sleep(1_000),
    "die": crash,
    "stubborn": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "endless-line": lambda: endlessly(sys.stdout, "x" * 65536),
    "garbage-flood": lambda: endlessly(sys.stdout, "not json\n" * 1_000),
    "stderr-flood": lambda: endlessly(sys.stderr, "e" * 65536 + "\n"),
    "greets": greet,
}


def main() -> None:
    if MODE in BEGINNINGS:
        BEGINNINGS[MODE]()
    for line in sys.stdin:
        handle(json.loads(line))
    while MODE == "stubborn":
        time.sleep(1_000)


if __name__ == "__main__":
    main()
