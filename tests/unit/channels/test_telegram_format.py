"""Markdown as Telegram's HTML: read back by a reader as strict as Telegram's own."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.channels.split import split
from bubbles.channels.telegram.format import LIMIT, MAX_TEXT, render, utf16_length
from tests.channel_servers.telegram_html import Markup, parsed, units

pytestmark = pytest.mark.req("CHAN-08")

NAMES = {"7": "Ann <b>", "8": "Bob"}


def shown(markdown: str) -> Markup:
    rendered = render(markdown, NAMES)
    markup = parsed(rendered.html)
    assert markup.text == rendered.plain
    return markup


def test_b100_angle_brackets_are_text_and_the_rest_is_formatted() -> None:
    assert render("Reply: `List<int>` and <name> with **bold**", {}).html == (
        "Reply: <code>List&lt;int&gt;</code> and &lt;name&gt; with <b>bold</b>"
    )


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("a *i **b** ~~s~~* & <b>no</b>", "a <i>i </i><b><i>b</i></b><i> <s>s</s></i> &amp; &lt;b&gt;no&lt;/b&gt;"),
        ("**a `c` b**", "<b>a </b><code>c</code><b> b</b>"),
        ("# One `x`\ntext\n\n## Two", "<b>One </b><code>x</code>\ntext\n\n<b>Two</b>"),
        ("Then:\n- one\n  - two\n- three\n\nEnd", "Then:\n• one\n  • two\n• three\n\nEnd"),
        ("3. a\n4. b", "3. a\n4. b"),
        ("> a\n> > b\n\nc", "<blockquote>a\n\nb</blockquote>\n\nc"),
        (
            "```py\nif a < b:\n    pass\n```\nend",
            '<pre><code class="language-py">if a &lt; b:\n    pass</code></pre>\nend',
        ),
        ('```x"><b>\n1\n```', '<pre><code class="language-x">1</code></pre>'),
        ("```\n```\nx", "x"),
        ('[a **b**](https://x.y/?q=1&r="2)', '<a href="https://x.y/?q=1&amp;r=%222">a <b>b</b></a>'),
        ("[`code`](https://x.y)", '<a href="https://x.y">code</a>'),
        ("<https://x.y>", '<a href="https://x.y">https://x.y</a>'),
        ("![a cat](https://x.y/c.png)", '<a href="https://x.y/c.png">a cat</a>'),
        ("[x](docs/a.md) [y](javascript:alert)", "x (docs/a.md) [y](javascript:alert)"),
        ("[m](mailto:a@b.c)", '<a href="mailto:a@b.c">m</a>'),
        ("a\n\n---\n\nb", "a\n\n———\n\nb"),
        ("| a | bc |\n|---|---|\n| 中 | `<d>` |", "<pre>a  | bc\n---+----\n中 | &lt;d&gt;</pre>"),
        ("see [1]\n\n[1]: https://x.y", "see [1]\n\n[1]: https://x.y"),
        ("a  \nb\nc", "a\nb\nc"),
    ],
)
def test_each_kind_of_markdown_has_its_tags(markdown: str, html: str) -> None:
    assert render(markdown, {}).html == html
    shown(markdown)


@pytest.mark.req("CHAN-06")
def test_a_mention_of_somebody_known_calls_them_and_any_other_calls_nobody() -> None:
    markup = shown("<@7>, **<@8>** and <@9>, <@bobby>: `<@7>`\n```\n<@7>\n```\n[see <@7>](https://x.y)")
    assert [
        (entity["user"], text)
        for entity, text in zip(
            [each for each in markup.entities if each["type"] == "text_mention"], markup.of("text_mention"), strict=True
        )
    ] == [({"id": 7}, "Ann <b>"), ({"id": 8}, "Bob")]
    assert markup.text == "Ann <b>, Bob and @9, bobby: <@7>\n<@7>\nsee Ann <b>"


@pytest.mark.req("CHAN-06")
@pytest.mark.parametrize(
    "target", ["tg://user?id=9", "TG://USER?id=9", "tg://user?x=1&id=9", "tg://user/?id=9", "tg:user?id=9"]
)
def test_a_link_cannot_call_who_could_not_be_mentioned(target: str) -> None:
    markup = shown(f"[come here]({target})")
    assert (markup.text, markup.entities) == ("come here", [])
    assert shown("[come here](tg://user?id=7)").of("text_mention") == ["come here"]


def test_what_shows_nothing_is_sent_as_it_is_written() -> None:
    assert render("#", {}).plain == "#"
    assert render("[](<>)", {}).plain == "[](<>)"
    assert render(" \n\t", {}).plain == ""


def test_characters_that_cannot_be_sent_are_left_out() -> None:
    assert render("a\x00b\x1bc\ud800d&#13;\r\ne", {}).plain == "abcd\ne"


def test_a_table_that_would_not_fit_is_not_padded() -> None:
    table = f"|{'a' * 900}|b|\n|-|-|\n" + "|c|d|\n" * 400
    rendered = render(table, {})
    assert utf16_length(rendered.plain) <= LIMIT
    assert rendered.html.startswith("<pre>aaa")


def test_what_grows_beyond_the_limit_goes_as_it_is_written() -> None:
    many = "<@7> " * 799
    assert render(many, {"7": "A name of many letters"}).plain == many.strip()


MARKDOWN = st.lists(
    st.one_of(
        st.sampled_from(
            ["*", "**", "_", "~~", "`", "```\n", "```py\n", "> ", "- ", "\n- ", "1. ", "# ", "\n\n", "\n", "    ",
             "\t", "[", "](https://x.y)", "](", ")", "![", "<@7>", "<@9>", "<b>", "</b>", "&lt;", "&#0;", "&", "|",
             "\n|-|-|\n", "---\n", "<https://x.y>", "\\", "\U0001f600", "中", '"', "[^1]: ", "===\n"]
        ),
        st.text(max_size=8),
    ),
    max_size=60,
).map("".join)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(MARKDOWN, st.text(max_size=80))
def test_whatever_a_model_writes_telegram_can_read_it_and_it_fits(markdown: str, name: str) -> None:
    for piece in split(markdown * 20, MAX_TEXT, utf16_length)[:3]:
        rendered = render(piece, {"7": name})
        assert parsed(rendered.html).text == rendered.plain
        assert units(rendered.plain) <= LIMIT


WORDS = st.lists(
    st.sampled_from(["**", "*", "`", "> ", "- ", "\n", "\n\n", "# ", "1. ", "~~", "```\n", "    ", "|", "<@9>", "<w>"]),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(WORDS)
def test_no_word_is_lost(marks: list[str]) -> None:
    source = "".join(f"{mark}word{number} " for number, mark in enumerate(marks))
    plain = render(source, {}).plain
    assert [f"word{number}" for number in range(len(marks)) if f"word{number}" not in plain] == []


LONG = ["*" * 4000, "[" * 4000, "`" * 3999, "> " * 2000, "- " * 2000, "<@" * 2000, "![" * 2000, "**a " * 1000,
        "~" * 4000, "[a](" * 1000, "|" * 4000 + "\n" + "|-" * 500]  # fmt: skip


@pytest.mark.parametrize("text", LONG, ids=lambda text: text[:4].strip())
def test_no_text_takes_long(text: str) -> None:
    begun = time.perf_counter()
    rendered = render(text, {})
    assert time.perf_counter() - begun < 2
    assert parsed(rendered.html).text == rendered.plain
