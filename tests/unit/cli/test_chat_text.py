"""What a conversation does with text: safe to show, cut into blocks, commands told from messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.cli.chat import commands
from bubbles.cli.chat.blocks import MAX_CHARACTERS, MAX_FENCE_LINES, Blocks
from bubbles.cli.chat.naming import name_of
from bubbles.cli.chat.screen import Screen, rendered
from bubbles.cli.chat.text import fitting, one_line, shown
from bubbles.dispatch.commands import NAMES, START
from bubbles.sessions.key import named

pytestmark = pytest.mark.req("CLI-02")


def cut(text: str, size: int = 1) -> list[str]:
    blocks, found = Blocks(), []
    for start in range(0, len(text), size):
        found += blocks.feed(text[start : start + size])
    return [*found, *blocks.end()]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("\x1b]0;title\x07\x1b[2J", "\\x1b]0;title\\x07\\x1b[2J"),
        ("a\rb\r\nc", "a\\rb\nc"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("\x9b31m", "\\x9b31m"),
        ("half \ud800", "half \\ud800"),
        ("👩\u200d👧 東京\u3000é\u00a0!", "👩\u200d👧 東京\u3000é\u00a0!"),
    ],
)
def test_nothing_that_drives_a_terminal_is_shown_as_it_is(text: str, safe: str) -> None:
    assert shown(text) == safe


@given(st.text())
def test_what_is_shown_never_holds_a_control_character(text: str) -> None:
    assert not {c for c in shown(text) if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0}


def test_one_line_of_a_long_text_is_one_short_line() -> None:
    assert one_line("\n\n first \x1b[m line\nsecond", 40) == "first \\x1b[m line"
    assert one_line("x" * 10**6, 10) == "x" * 9 + "…"
    assert fitting("é日", "latin-1") == "é\\u65e5"


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("one\ntwo\n\nthree", ["one\ntwo", "three"]),
        ("# Head\ntext\n## Next\n", ["# Head", "text", "## Next"]),
        ("a\n```py\nx\n\ny\n```\nb", ["a", "```py\nx\n\ny\n```", "b"]),
        ("~~~~\n```\n~~~\n~~~~\nb", ["~~~~\n```\n~~~\n~~~~", "b"]),
        ("- a\n\n- b\n  more\n\nafter", ["- a\n\n- b\n  more", "after"]),
        ("1. a\n   ```\n   x\n\n   y\n   ```\n2. b\n", ["1. a\n   ```\n   x\n\n   y\n   ```\n2. b"]),
        ("- a\n```\nx\n```\n", ["- a", "```\nx\n```"]),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n\n", ["| a | b |\n|---|---|\n| 1 | 2 |"]),
        ("``` not ` a fence\nb\n\nc", ["``` not ` a fence\nb", "c"]),
        ("```\nnever closed\n\n", ["```\nnever closed"]),
        ("\n\n \n", []),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_reply_is_cut_where_markdown_ends_a_block(text: str, blocks: list[str], size: int) -> None:
    assert cut(text, size) == blocks


def test_long_code_is_shown_in_parts_that_are_code_each() -> None:
    parts = cut("```py\n" + "x = 1\n" * (2 * MAX_FENCE_LINES) + "```\n", 100)
    assert len(parts) == 3
    assert all(part.startswith("```py\n") and part.endswith("\n```") for part in parts)
    assert sum(part.count("x = 1") for part in parts) == 2 * MAX_FENCE_LINES


@given(st.text(alphabet="ab \n`~-#1.*>|", max_size=300), st.integers(1, 50))
def test_no_word_is_lost_however_a_reply_is_cut(text: str, size: int) -> None:
    assert "".join("".join(cut(text, size)).split()) == "".join(text.split())


def test_a_reply_without_any_end_of_line_is_shown_before_it_fills_the_memory() -> None:
    blocks = Blocks()
    for _ in range(100):
        blocks.feed("word " * 100)
        assert len(blocks.rest) <= MAX_CHARACTERS + 500


def test_markdown_is_rendered_and_links_show_where_they_lead() -> None:
    page = rendered("**bold** [good](https://evil.example/)", 60)
    assert "\x1b[1mbold" in page
    assert "https://evil.example/" in page
    assert "\x1b]8" not in page


def test_escape_sequences_of_a_model_do_not_survive_rendering() -> None:
    said: list[str] = []
    screen = Screen(out=said.append, aside=said.append, coloured=True, columns=lambda: 60)
    screen.block("```\n\x1b[2Jx\n```\n\x1b]0;t\x07")
    screen.hint("read_file(\x1b[2J)")
    screen.result("\x1b]52;c;x\x07\nmore", is_error=True, duration_s=0.1)
    screen.notice("\x1b[2J")
    assert not [part for text in said for part in ("\x1b[2J", "\x1b]", "\x07") if part in text]


def test_html_and_what_entities_stand_for_is_text_b100() -> None:
    page = rendered("Use List<int> and <name>, not &#x202e;this&lrm;.\n\n<script>\nx\n</script>\n\n<!-- y -->", 80)
    for part in ("List<int>", "<name>", "<script>", "<!-- y -->"):
        assert part in page
    assert not set(page) & {"\u202e", "\u200e"}
    assert "\\u202e" in page


def test_the_commands_that_are_offered_are_those_that_the_dispatcher_knows() -> None:
    assert {*commands.OF_SESSION, START} == set(NAMES)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/status", "/status"),
        ("/config a b", "/config"),
        (" \n/stop", "/stop"),
        ("/etc/hosts is what?", None),
        ("a /b", None),
        ("//status", None),
    ],
)
def test_a_path_is_no_command(text: str, command: str | None) -> None:
    assert commands.command_of(text) == command


def test_an_unknown_command_is_explained_and_not_sent() -> None:
    said = commands.unknown("/hlep me")
    assert said is not None
    assert "Did you mean /help?" in said
    assert "//hlep" in said
    assert commands.unknown("/xyzzy") is not None
    assert all(commands.unknown(name) is None for name in commands.ALL)
    assert commands.unknown("/usr/bin/env") is None


def test_a_second_slash_sends_a_text_as_it_is() -> None:
    assert commands.literal("//frobnicate x") == "/frobnicate x"
    assert commands.literal("//status") == "//status"
    assert commands.literal("/status") == "/status"


@given(st.text(min_size=1, max_size=20).filter(str.isprintable))
def test_the_name_of_a_session_leads_back_to_it(text: str) -> None:
    key = named(text) if "." not in text else "telegram.42"
    assert named(name_of(key)) == key
