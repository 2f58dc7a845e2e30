"""Mentions, and what is code. A renderer of Markdown is the judge of the latter."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bubbles.channels.markup import is_mentioned, mentions_out, outside_code, strip_leading_mention

RENDERER = MarkdownIt("commonmark").disable(["html_block", "html_inline", "reference"])


def code_of(text: str) -> list[str]:
    """What of it is code, by us."""
    return [part for is_code, part in outside_code(text) if is_code]


def shown_as_code(text: str) -> str:
    """What a renderer shows as code, without white space."""
    found = []
    for token in RENDERER.parse(text):
        if token.type == "fence":
            found.append(token.content)
        found += [child.content for child in token.children or () if child.type == "code_inline"]
    return "".join("".join(found).split())


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("no code", []),
        ("`a` and `b`", ["`a`", "`b`"]),
        ("``a ` b`` c", ["``a ` b``"]),
        ("`a and ``b``", ["``b``"]),
        ("`not closed", []),
        (r"\`a` and `b`", ["` and `"]),
        (r"\\`a` and \`b", ["`a`"]),
        (r"`a\` b", ["`a\\`"]),
        (r"\``a` b", ["`a`"]),
        ("`over\na line`", ["`over\na line`"]),
        ("`not over\n\na paragraph`", []),
        ("- `not over\n- an item`", []),
        ("# `not over\na heading`", []),
        ("`not into\n> a quote`", []),
        ("```\ncode\n```\ntext", ["```\ncode\n```\n"]),
        ("text\n~~~ py\ncode", ["~~~ py\ncode"]),
        ("```\ncode\n~~~\n``\n````\ntext", ["```\ncode\n~~~\n``\n````\n"]),
        ("````\n```\n````\ntext", ["````\n```\n````\n"]),
        ("``` a`b\ntext", []),
        ("    ```\ntext", []),
        ("   ```\ncode\n   ``` \ntext", ["   ```\ncode\n   ``` \n"]),
        ("> ```\n> code\ntext", ["> ```\n> code\n"]),
        ("- a\n\n  ```\n  code\n  ```\ntext", ["  ```\n  code\n  ```\n"]),
        ("1. a\n   - b\n\n     ```\n     code\ntext", ["     ```\n     code\n"]),
        ("- a\n\ntext\n\n    ```\n    `b`", ["`b`"]),
        ("a `b`\n```\n`c`\n```\n`d`", ["`b`", "```\n`c`\n```\n", "`d`"]),
        ("```\r\ncode\r\n```\r\ntext", ["```\r\ncode\r\n```\r\n"]),
        ("```", ["```"]),
    ],
)
def test_code_is_what_a_renderer_takes_for_it(text: str, code: list[str]) -> None:
    assert code_of(text) == code
    assert "".join(part for _, part in outside_code(text)) == text


LINES = st.lists(
    st.sampled_from("```|~~~|````|``` PY|a `b` c|`` d ` e ``|words||> ```|> f `g`|- ```|  h|  ```|1. i".split("|")),
    max_size=9,
).map("\n".join)


@given(text=LINES)
@settings(max_examples=200, deadline=None)
def test_whatever_fences_there_are_a_renderer_finds_the_same(text: str) -> None:
    marks = r"[\s`~>A-Z-]"  # of fences and quotes, and names of languages
    assert re.sub(marks, "", "".join(code_of(text))) == re.sub(marks, "", shown_as_code(text))


@given(text=st.text(alphabet="`~\\ \nab>-<@#", max_size=80))
@settings(max_examples=200, deadline=None)
def test_the_parts_are_the_whole_text(text: str) -> None:
    assert "".join(part for _, part in outside_code(text)) == text


@pytest.mark.req("CHAN-06")
def test_mentions_become_what_the_platform_has_for_them_outside_of_code() -> None:
    known = {"42": "[Ann](tg://user?id=42)", "@ann:server.example": "ANN", "ann@mail.example": "Ann"}
    text = "<@42>, <@@ann:server.example> and <@ann@mail.example>: see `<@42>`\n```\n<@42>\n```\n<@42>!"
    assert mentions_out(text, known.get) == (
        "[Ann](tg://user?id=42), ANN and Ann: see `<@42>`\n```\n<@42>\n```\n[Ann](tg://user?id=42)!"
    )


@pytest.mark.req("CHAN-06")
def test_who_is_not_known_is_named_and_not_called() -> None:
    assert mentions_out("ask <@7> and <@> and <@a b>", lambda _: None) == "ask @7 and <@> and <@a b>"
    assert mentions_out("<@everyone> <@Here> <@!channel> <@here2>", lambda _: None) == "everyone Here !channel @here2"


@pytest.mark.req("CHAN-06")
@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<@1> hi", "hi"),
        (" <@1>, hi", "hi"),
        ("<@1><@2>: hi", "hi"),
        ("<@1>", ""),
        ("<@3> hi <@1>", "<@3> hi <@1>"),
        ("hi <@1>", "hi <@1>"),
        ("<@1> <@3> hi", "<@3> hi"),
        ("<@1>\n/new", "/new"),
        ("<@1>.", "."),
    ],
)
def test_only_the_assistants_own_mention_at_the_beginning_is_left_out(text: str, left: str) -> None:
    assert strip_leading_mention(text, {"1", "2"}) == left


@pytest.mark.req("CHAN-03")
@pytest.mark.parametrize(
    "text",
    [
        "@bub hi",
        "@bub.",
        "@BUB hi",
        "hi @bub",
        "(@bub)",
        "hi,@bub!",
        "@bub's turn",
        "你好@bub你好",
        "@bub: see @other",
        "bub, see what @Other wrote",
        "<@77> bub: hi",
        "Bub?",
        "bub",
        "@Bubble Bot, hi",
        "`code` @bub",
    ],
)
def test_who_is_spoken_to_wakes(text: str) -> None:
    """B103, B104."""
    assert is_mentioned(text, ("bub", "Bubble Bot"))


@pytest.mark.req("CHAN-03")
@pytest.mark.parametrize(
    "text",
    [
        "@bubbles2 hi",
        "me@bub.example",
        "@bub.example is a host",
        "mail to @bub@server.example",
        "@bub-2 hi",
        "@bub_bot hi",
        "@bub/room",
        "https://a.example/@bub",
        "https://a.example/?to=@bub",
        "a.@bub",
        "@@bub",
        "a bub is no bubble",
        "I met bub, the cat",
        "bubbles, hi",
        "bub.example is a host",
        "bub-2, hi",
        "`@bub`",
        "```\n@bub hi\n```",
        "",
    ],
)
def test_who_is_not_spoken_to_sleeps_on(text: str) -> None:
    """B103."""
    assert not is_mentioned(text, ("bub", ""))


def test_nobody_has_no_name() -> None:
    assert not is_mentioned("@ hi", ("",))
    assert not is_mentioned(", hi", ())


@pytest.mark.parametrize(
    "text",
    ["`" * 300_000, "".join("`" * number + "a" for number in range(1, 800)), "<@" * 150_000, "@bub" * 75_000]
    + ["\\" * 300_000 + "`a`", "> " * 150_000, "- ```\n" * 20_000, "<@a>" * 75_000 + "bub"],
    ids=["backticks", "runs", "openings", "names", "backslashes", "quotes", "lists", "mentions"],
)
def test_no_text_takes_more_than_time_in_proportion(text: str) -> None:
    began_s = time.process_time()
    assert "".join(part for _, part in outside_code(text)) == text
    mentions_out(text, lambda _: None)
    is_mentioned(text, ("bub",))
    strip_leading_mention(text, {"a"})
    assert time.process_time() - began_s < 2
