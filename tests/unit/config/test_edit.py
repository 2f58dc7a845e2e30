"""One changed setting is one change of the file's text."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.config import files
from bubbles.config.edit import Change, change, change_several, check
from bubbles.config.jsontext import REMOVE, changed, parse
from bubbles.errors import BubblesError, ConfigError

pytestmark = pytest.mark.req("CFG-01")

MODEL = ("agents", "defaults", "model")
PLACES = ("agents", "concurrency")
KEY = ("providers", "openai", "api_key")

ODD = (
    '{ "providers" :{"openai":{ "apiKey":"${OPENAI_API_KEY}"}, "mine": {"kept": [1,2 ,3]} },\r\n'
    '\t"agents": {"defaults": {\t"max_retries" : 3.0e0, "model":"old" }},\r\n'
    '"retired": {"a": 1, "a": 2, "\\u0062": "\\u00e9"}, "tools": {"sandbox": {"allow": [ ]}}}\r\n\r\n'
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


def write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_bytes(text.encode())


def text_of(path: Path) -> str:
    return path.read_bytes().decode()


def test_b110_b111_one_change_leaves_every_other_byte(path: Path) -> None:
    write(path, ODD)
    assert change(path, MODEL, "new")
    assert text_of(path) == ODD.replace('"old"', '"new"')


def test_a_setting_that_is_so_already_changes_nothing(path: Path) -> None:
    write(path, ODD)
    before = path.stat()
    assert not change(path, MODEL, "old")
    assert not change(path, KEY, "${OPENAI_API_KEY}")
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino


@pytest.mark.parametrize(
    ("before", "names", "value", "after"),
    [
        ("{}", MODEL, "m", '{\n  "agents": {\n    "defaults": {\n      "model": "m"\n    }\n  }\n}'),
        ('{"agents": {}}', MODEL, "m", '{"agents": {"defaults": {"model": "m"}}}'),
        ('{"agents":{"concurrency":3}}', MODEL, "m", '{"agents":{"concurrency":3,"defaults":{"model":"m"}}}'),
        (
            '{\n "agents": {\n  "concurrency": 3\n }\n}\n',
            MODEL,
            "m",
            '{\n "agents": {\n  "concurrency": 3,\n  "defaults": {\n   "model": "m"\n  }\n }\n}\n',
        ),
        (
            '{\r\n\t"agents": {}\r\n}',
            MODEL,
            "m",
            '{\r\n\t"agents": {\r\n\t\t"defaults": {\r\n\t\t\t"model": "m"\r\n\t\t}\r\n\t}\r\n}',
        ),
        ('\ufeff{"agents": null}', PLACES, 2, '\ufeff{"agents": {"concurrency": 2}}'),
        ('{"tools": {"result_tokens": 300}}', KEY, "k", None),
        ('{"tools": {"resultTokens": 300}}', KEY, "k", None),
        ('{"agents": {"concurrency": 3, "a": 1}}', PLACES, REMOVE, '{"agents": {"a": 1}}'),
        ('{"agents": {"concurrency": 3}}', PLACES, REMOVE, '{"agents": {}}'),
        ('{"agents": { "a": {} ,"concurrency": 3 }}', PLACES, REMOVE, '{"agents": { "a": {} }}'),
        ('{"retired": 1, "agents": {}}', ("retired",), REMOVE, '{"agents": {}}'),
        ('{"a": 1}', MODEL, REMOVE, '{"a": 1}'),
    ],
)  # fmt: skip
def test_new_text_follows_the_manner_of_the_old(
    path: Path, before: str, names: tuple[str, ...], value: object, after: str | None
) -> None:
    write(path, before)
    change(path, names, value)
    snake = "result_tokens" in before
    assert text_of(path) == (
        after or f'{before[:-1]}, "providers": {{"openai": {{"{"api_key" if snake else "apiKey"}": "k"}}}}}}'
    )


def test_the_spelling_that_counts_is_changed_and_every_spelling_removed(path: Path) -> None:
    write(path, '{"tools": {"resultTokens": 300, "result_tokens": 400, "resultTokens": 500}}')
    change(path, ("tools", "result_tokens"), 600)
    assert text_of(path) == '{"tools": {"resultTokens": 300, "result_tokens": 400, "resultTokens": 600}}'
    change(path, ("tools", "result_tokens"), REMOVE)
    assert text_of(path) == '{"tools": {}}'


def test_an_entry_of_a_mapping_keeps_its_name_as_it_is(path: Path) -> None:
    change(path, ("channels", "identities", "anna_lena.x"), ["slack:U1"])
    change(path, ("channels", "identities", "annaLena"), ["slack:U2"])
    assert parse(text_of(path), "x")["channels"]["identities"] == {
        "anna_lena.x": ["slack:U1"],
        "annaLena": ["slack:U2"],
    }


@pytest.mark.parametrize(
    ("names", "value", "said"),
    [
        (PLACES, 0, "agents.concurrency is 0"),
        (PLACES, "many", 'agents.concurrency is "many"'),
        (("gateway", "port"), 70_000, "gateway.port is 70000"),
        (("agents", "colour"), "red", "agents.colour is not a setting"),
        (("agents", "defaults"), {}, "agents.defaults is not a setting"),
        (("tools", "sandbox", "allow", "0"), "x", "tools.sandbox.allow.0 is not a setting"),
        ((), 1, "is not a setting"),
    ],
)
def test_what_is_not_valid_is_refused_and_nothing_is_written(
    path: Path, names: tuple[str, ...], value: object, said: str
) -> None:
    write(path, ODD)
    with pytest.raises(ConfigError) as caught:
        change(path, names, value)
    assert said in str(caught.value)
    assert "nothing was changed" in str(caught.value)
    assert text_of(path) == ODD


@pytest.mark.parametrize(
    "damage",
    [
        b"", b"{", b'{"a": 1,}', b"[]", b'{"agents": 5}', b'{"agents": {"concurrency": 0}}', b'{"a": "\xff"}',
        b"[" * 70_000, b"{}" + b" " * (1 << 20),
    ],
)  # fmt: skip
def test_a_damaged_file_is_left_as_it_is(path: Path, damage: bytes) -> None:
    path.write_bytes(damage)
    with pytest.raises(ConfigError) as caught:
        change(path, MODEL, "m")
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == damage
    assert os.listdir(path.parent) == ["config.json"]


def test_a_change_can_mend_what_was_wrong(path: Path) -> None:
    write(path, '{"agents": {"concurrency": 0}}')
    change(path, PLACES, 2)
    assert text_of(path) == '{"agents": {"concurrency": 2}}'


def test_a_file_never_becomes_larger_than_can_be_read(path: Path) -> None:
    with pytest.raises(ConfigError, match="would be larger"):
        change(path, ("agents", "defaults", "system_prompt"), "x" * (1 << 20))
    assert not path.exists()


def test_several_changes_are_made_all_or_none(path: Path) -> None:
    with pytest.raises(ConfigError):
        change_several(path, (Change(names=MODEL, value="m"), Change(names=PLACES, value=-1)))
    assert not path.exists()


@pytest.mark.parametrize("text", ["snow ☃ \u2028 é", "half \ud800 pair", 'a "quoted" \\ \x00 \n text'])
def test_any_text_is_read_back_as_it_was_given(text: str) -> None:
    after = changed("{}", (("a",),), text)
    assert json.loads(after.encode()) == {"a": text}


@pytest.mark.req("SEC-03")
def test_b121_a_new_file_is_its_owners_only_and_a_wider_one_becomes_so(path: Path) -> None:
    before = os.umask(0)
    try:
        change(path, MODEL, "m")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    change(path, MODEL, "n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.needs("root")
def test_a_file_of_another_user_stays_theirs(path: Path) -> None:
    write(path, "{}")
    os.chown(path, 12_345, 12_346)
    change(path, MODEL, "m")
    assert (path.stat().st_uid, path.stat().st_gid) == (12_345, 12_346)


def test_a_linked_file_is_changed_where_it_lies_and_the_link_stays(path: Path) -> None:
    there = path.parent / "dotfiles" / "bubbles.json"
    there.parent.mkdir()
    write(there, ODD)
    path.symlink_to("dotfiles/bubbles.json")
    change(path, MODEL, "new")
    assert os.readlink(path) == "dotfiles/bubbles.json"
    assert text_of(there) == ODD.replace('"old"', '"new"')
    assert os.listdir(there.parent) == ["bubbles.json"]


def test_what_is_there_and_no_file_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(ConfigError, match="it is a directory"):
        change(path, MODEL, "m")
    with pytest.raises(BubblesError, match="cannot be written"):
        change(Path("/proc/self/nowhere/config.json"), MODEL, "m")


def test_references_and_homes_are_no_reason_to_refuse(path: Path) -> None:
    write(path, '{"tools": {"sandbox": {"toolDirs": ["~/x", "${D}"], "network": "${N}"}}, "gateway": {"port": "${P}"}}')
    assert change(path, MODEL, "m")
    assert check(path).warnings == ()


def test_two_writers_lose_nothing_of_each_other(path: Path) -> None:
    def work(name: str) -> None:
        for number in range(15):
            change(path, ("channels", "identities", f"{name}{number}"), ["slack:1"])

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(parse(text_of(path), "x")["channels"]["identities"]) == 45
    assert os.listdir(path.parent) == ["config.json"]


WRITER = """
import itertools, sys
from pathlib import Path
from bubbles.config.edit import change
for number in itertools.count():
    change(Path(sys.argv[1]), ("agents", "defaults", "system_prompt"), f"{number} " + "x" * 300_000)
    if number == 2:
        print("going", flush=True)
"""


def test_a_writer_killed_at_any_instant_leaves_a_whole_file_and_its_rest_goes_with_the_next(path: Path) -> None:
    write(path, ODD)
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"going\n"
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert check(path).warnings
        assert "${OPENAI_API_KEY}" in text_of(path)
    (path.parent / ".config.json.new").write_text("half")  # as if it had been in the middle
    change(path, MODEL, "last")
    assert os.listdir(path.parent) == ["config.json"]


def test_a_full_disk_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, ODD)
    (path.parent / ".config.json.new").mkdir()  # what cannot be removed stands in the way of the new text
    with pytest.raises(BubblesError, match="nothing was changed"):
        change(path, MODEL, "m")
    assert text_of(path) == ODD
    assert files.read(path) is not None


# Any object in any manner of writing, and any one change.

NAMES = st.sampled_from(["a", "b", "cD", "e_f", "", "ü", 'q"', "}", "{"])
NUMBERS = st.integers(-9, 10**20) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TREES = st.dictionaries(NAMES, VALUES, max_size=4)
BLANKS = st.sampled_from(["", "", " ", "\n", "\n  ", "\r\n\t", "  "])


@st.composite
def written(draw: st.DrawFn, tree: object) -> str:
    """``tree`` as JSON with blanks wherever they may be, and characters escaped or not."""

    def text(value: object) -> str:
        if isinstance(value, dict):
            pairs = [f"{blank()}{text(name)}{blank()}:{blank()}{text(each)}{blank()}" for name, each in value.items()]
            return "{" + (",".join(pairs) or blank()) + "}"
        if isinstance(value, list):
            return "[" + (",".join(f"{blank()}{text(each)}{blank()}" for each in value) or blank()) + "]"
        return json.dumps(value, ensure_ascii=draw(st.booleans()))

    def blank() -> str:
        return draw(BLANKS)

    return draw(st.sampled_from(["", "\ufeff"])) + blank() + text(tree) + blank()


def reached(tree: Any, names: list[str]) -> bool:
    """Whether ``names`` can be put into ``tree``: there is nothing but an object, nothing or null on the way."""
    for name in names[:-1]:
        if not isinstance(tree, dict):
            return tree is None
        tree = tree.get(name)
    return tree is None or isinstance(tree, dict)


def put(tree: dict[str, Any], names: list[str], value: object) -> dict[str, Any]:
    tree = deepcopy(tree)
    here = tree
    for name in names[:-1]:
        if not isinstance(here.get(name), dict):
            if value is REMOVE:
                return tree
            here[name] = {}
        here = here[name]
    if value is REMOVE:
        here.pop(names[-1], None)
    else:
        here[names[-1]] = value
    return tree


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_change_of_any_tree_changes_that_member_and_no_other_text(data: st.DataObject) -> None:
    tree = data.draw(TREES)
    before = data.draw(written(tree))
    names = data.draw(st.lists(NAMES, min_size=1, max_size=3))
    value = data.draw(st.just(REMOVE) | SCALARS | st.lists(SCALARS, max_size=2))
    if value is not REMOVE and not reached(tree, names):
        with pytest.raises(ConfigError):
            changed(before, [(name,) for name in names], value)
        return
    after = changed(before, [(name,) for name in names], value)
    assert json.dumps(parse(after, "x")) == json.dumps(put(tree, names, value))
    begin = shared(before, after)
    end = shared(before[begin:][::-1], after[begin:][::-1])
    old, new = before[begin : len(before) - end], after[begin : len(after) - end]
    if value is REMOVE:
        assert new == "", "removing takes out one piece and writes nothing"
    elif null_on_the_way(tree, names):
        assert "{" in new, "an object stands where null stood"
    elif not there(tree, names):
        blank = re.search(rf"\{{\s*{re.escape(old)}\s*\}}", before)
        assert old == "" or blank, "adding takes out nothing but the blank of an empty object"
    else:
        texts = (tight(json.dumps(value)), tight(json.dumps(value, ensure_ascii=False)))
        assert any(tight(new) in text for text in texts), "a new value stands where the old one stood"


def there(tree: dict[str, Any], names: list[str]) -> bool:
    """Whether something stands under these names already."""
    return at(tree, names) is not NOWHERE


def null_on_the_way(tree: dict[str, Any], names: list[str]) -> bool:
    """An object then has to come where null is."""
    return any(at(tree, names[:end]) is None for end in range(1, len(names)))


NOWHERE = object()


def at(tree: dict[str, Any], names: list[str]) -> object:
    here: Any = tree
    for name in names:
        if not isinstance(here, dict) or name not in here:
            return NOWHERE
        here = here[name]
    return here


def tight(text: str) -> str:
    """As it is but for blanks: how a list is laid out is not looked at here."""
    return "".join(text.split())


def shared(one: str, other: str) -> int:
    """Characters that both begin with."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
