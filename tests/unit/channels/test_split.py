"""How long texts are cut. A renderer of Markdown is the judge of what is code in a piece."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bubbles.channels.split import split

Measure = Callable[[str], int]
RENDERER = MarkdownIt("commonmark").disable(["html_block", "reference"])
LIMIT = 120


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf8(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def code_in(*texts: str) -> str:
    """All that a renderer shows as a fenced block, without white space."""
    fences = [token.content for text in texts for token in RENDERER.parse(text) if token.type == "fence"]
    return "".join("".join(fences).split())


def languages_in(text: str) -> list[str]:
    return [token.info.strip() for token in RENDERER.parse(text) if token.type == "fence"]


def without_fences(text: str) -> str:
    """Fences, quote marks, languages (in capitals) and white space may be added or taken away at a cut."""
    return re.sub(r"[`~>A-Z\s]+", "", text)


def is_in_order(wanted: str, there: str) -> bool:
    letters = iter(there)
    return all(letter in letters for letter in wanted)


def assert_fits(pieces: list[str], limit: int, measure: Measure = len) -> None:
    assert all(piece.strip() for piece in pieces)
    assert all(measure(piece) <= limit for piece in pieces)


# -- what is generated --

WORDS = st.lists(
    st.sampled_from(["some", "word", "<@42>", "`a b`", "end.", "你好。", "👩‍👩‍👧", "e\u0301", "x" * 50, "[l](u)"]),
    min_size=1,
).map(" ".join)
LINES_OF_CODE = st.lists(
    st.sampled_from(["x = 1", "    y()", "", "``", "~~~", "z" * 130, "\ta b c", "# c"]), max_size=9
)
MARKERS = st.sampled_from(["```", "````", "~~~~", "```PY", "~~~~ C"])


def fenced(marker: str, code: Iterable[str], first: str, lead: str) -> str:
    closing = re.sub(r"[ A-Z]", "", marker)
    lines = [first + marker, *(lead + line for line in code), lead + closing]
    return "\n".join(lines)


FENCES = st.builds(fenced, MARKERS, LINES_OF_CODE.filter(lambda code: "~~~" not in code[-1:]), st.just(""), st.just(""))
QUOTED = st.builds(fenced, MARKERS, LINES_OF_CODE, st.just("> "), st.just("> "))
LISTED = st.builds(fenced, MARKERS, LINES_OF_CODE, st.just("- "), st.just("  "))
NESTED = st.builds(fenced, MARKERS, LINES_OF_CODE, st.just("10. a\n    - "), st.just("      "))
DEEP = st.builds(fenced, MARKERS, LINES_OF_CODE, st.just("1. a\n   - b\n\n     c\n\n     "), st.just("     "))
HEADINGS = st.sampled_from(["# title", "## another title"])
TEXTS = st.lists(st.one_of(WORDS, FENCES, QUOTED, LISTED, NESTED, DEEP, HEADINGS), max_size=6).map("\n\n".join)
ATOMS = st.lists(
    st.sampled_from(
        [
            "```",
            "~~~",
            "`",
            "```PY\n",
            "\n",
            "\n\n",
            " ",
            "- ",
            "> ",
            "1. ",
            "word",
            "<@",
            ">",
            "\t",
            "    ",
            "# ",
            "é",
            "\r\n",
        ]
    )
    | st.text(max_size=60),
    max_size=60,
).map("".join)


@pytest.mark.req("CHAN-08")
@given(text=ATOMS, limit=st.integers(40, 120), measure=st.sampled_from([len, utf16, utf8]))
@settings(max_examples=150, deadline=None)
def test_whatever_it_is_every_piece_fits_and_nothing_is_lost(text: str, limit: int, measure: Measure) -> None:
    pieces = split(text, limit, measure)
    assert_fits(pieces, limit, measure)
    assert is_in_order(re.sub(r"[`~>\s]+", "", text), "".join(pieces))
    assert bool(pieces) is bool(text.strip())


@pytest.mark.req("CHAN-08")
@given(text=TEXTS, limit=st.integers(60, 200), measure=st.sampled_from([len, utf16]))
@settings(max_examples=150, deadline=None)
def test_what_was_code_is_code_in_every_piece_and_nothing_else_is(text: str, limit: int, measure: Measure) -> None:
    pieces = split(text, limit, measure)
    assert_fits(pieces, limit, measure)
    assert without_fences("".join(pieces)) == without_fences(text)
    assert code_in(*pieces) == code_in(text)
    assert all(set(languages_in(piece)) <= set(languages_in(text)) for piece in pieces)
    for whole in ("`a b`", "<@42>", "[l](u)", "👩‍👩‍👧", "e\u0301"):
        assert sum(piece.count(whole) for piece in pieces) == text.count(whole)


# -- one at a time --


def test_a_text_that_fits_is_one_piece_as_it_is() -> None:
    text = "    indented code\n\nand\n\n```\nmore\n```"
    assert split(text, LIMIT) == [text]
    assert split(f"\n \n{text}\n\n", LIMIT) == [text]
    assert split("", LIMIT) == split(" \n\t\n", LIMIT) == []


def test_a_limit_that_no_fence_fits_into_is_refused() -> None:
    with pytest.raises(ValueError, match="max_text is 39, it must be 40 at least"):
        split("a", 39)


def test_the_best_place_for_a_cut_is_between_paragraphs_then_lines_sentences_clauses_words() -> None:
    first, second = "Some words, and a few more. Even more.\nA line.", "x" * 61
    assert split(f"{first}\n\n{second}\n{second}", LIMIT) == [first, second, second]
    assert split("A line. Sentence.\nAnother line of " + "x" * 30, 50) == [
        "A line. Sentence.",
        "Another line of " + "x" * 30,
    ]
    assert split("One sentence is here. Another " + "x" * 30, 50) == ["One sentence is here.", "Another " + "x" * 30]
    assert split("Here, before the comma, there is " + "x" * 30, 50) == [
        "Here, before the comma,",
        "there is " + "x" * 30,
    ]
    assert split("only words are here with " + "x" * 30, 50) == ["only words are here with", "x" * 30]
    assert split("这是第一句话。" * 10, 45) == ["这是第一句话。" * 6, "这是第一句话。" * 4]
    assert split("x" * 100, 45) == ["x" * 45, "x" * 45, "x" * 10]


def test_a_good_place_far_too_early_is_not_taken() -> None:
    text = "Hi.\n\n" + "word " * 40
    pieces = split(text, 100)
    assert len(pieces[0]) > 90
    assert len(pieces) == 3


def test_a_heading_stays_with_what_it_is_about() -> None:
    before, after = "word " * 12, "other " * 15
    assert split(f"{before}\n\n## Title\n\n{after}", 80)[1].startswith("## Title\n\nother")


@pytest.mark.req("CHAN-08")
def test_a_fence_with_one_very_long_line_is_cut_and_opened_again() -> None:
    """B097."""
    line = "".join(chr(ord("a") + number % 26) for number in range(10_000))
    pieces = split(f"Look:\n\n```json\n{line}\n```\n\nThat was it.", 4_096)
    assert [len(piece) for piece in pieces[1:3]] == [4_096, 4_096]
    assert_fits(pieces, 4_096)
    assert all(piece.startswith("```json\n") for piece in pieces[1:])
    assert code_in(*pieces) == line
    assert pieces[0] == "Look:"
    assert pieces[-1].endswith("\n```\n\nThat was it.")


@pytest.mark.req("CHAN-08")
def test_a_code_block_that_fits_into_one_piece_is_not_cut() -> None:
    code = "```py\n" + "x = 1\n" * 10 + "```"
    assert split(f"Words before it, enough of them.\n{code}\n{'and after ' * 8}", 100) == [
        "Words before it, enough of them.",
        code,
        ("and after " * 8).strip(),
    ]


@pytest.mark.req("CHAN-08")
def test_code_keeps_its_indent_over_a_cut() -> None:
    code = [f"    line_{number}()" for number in range(12)]
    pieces = split("\n".join(["~~~py", *code, "~~~"]), 80)
    assert len(pieces) == 3
    for piece in pieces:
        opening, *lines, closing = piece.split("\n")
        assert (opening, closing) == ("~~~py", "~~~")
        assert set(lines) <= set(code)


def test_a_fence_in_a_quote_is_opened_again_in_a_quote() -> None:
    text = "> ```py\n" + "> some_code()\n" * 5 + "> ```\n> words"
    for piece in split(text, 60):
        assert all(line.startswith("> ") for line in piece.split("\n"))


def test_a_fence_in_a_list_is_no_longer_far_right_when_its_list_is_in_another_piece() -> None:
    text = "1. Do:\n   - this:\n\n     ```sh\n" + "     echo something\n" * 5 + "     ```\n     and on"
    pieces = split(text, 64)
    assert pieces[0] == "1. Do:\n   - this:\n\n     ```sh\n     echo something\n     ```"
    assert pieces[-1] == "and on"
    assert all(re.fullmatch(r"```sh\n(echo something\n)+```", piece) for piece in pieces[1:-1])
    assert code_in(*pieces) == code_in(text)


def test_a_fence_that_ends_with_its_list_is_closed_when_its_list_is_in_another_piece() -> None:
    text = (
        f"- {'words ' * 11}\n\n      ```\n".replace("      ", "  ")
        + "  code()\n\nThe list is over, and so is the code."
    )
    assert code_in(text) == "code()"
    assert split(text, 80)[1:] == ["```\ncode()\n```\nThe list is over, and so is the code."]


def test_pieces_of_code_are_as_full_as_they_can_be() -> None:
    text = "```\n" + "nine_char\n" * 20 + "```"
    assert [piece.count("nine_char") for piece in split(text, 75)] == [6, 6, 6, 2]
    whole = "```\n" + "x" * 15 + "\n" + "y" * 16 + "\n```"
    assert split(f"{whole}\nmore", len(whole)) == [whole, "more"]


def test_a_long_line_of_code_in_a_quote_stays_in_it() -> None:
    pieces = split("> ~~~\n> " + "x" * 100 + "\n> ~~~", 50)
    assert [piece.count("\n> x") for piece in pieces] == [1] * len(pieces)
    assert code_in(*pieces) == "x" * 100


def test_a_fence_longer_than_others_holds_them() -> None:
    inner = "```\nnot the end\n```\n" * 6
    pieces = split(f"`````md\n{inner}`````\nwords", 60)
    assert code_in(*pieces) == "".join(inner.split())
    assert all(piece.startswith("`````md\n") for piece in pieces)


def test_an_absurd_fence_is_plain_text() -> None:
    for fence in ("`" * 500, "```" + "x" * 500):
        pieces = split(f"{fence}\ncode\n{fence[:500]}", 100)
        assert_fits(pieces, 100)
        assert "".join(pieces).count("code") == 1


def test_mentions_code_and_links_are_not_cut_but_if_they_fit_nowhere() -> None:
    for whole in ("<@someone@server.example>", "`a piece of code`", "[some words](https://a.example/b)"):
        for before in range(60):
            text = "y" * before + " " + whole + " and more words that follow it"
            assert any(whole in piece for piece in split(text, 50)), before
    long = "`" + "code " * 50 + "`"
    assert without_fences("".join(split(long, 50))) == without_fences(long)


def test_a_word_is_not_put_where_it_would_begin_a_list_or_a_fence() -> None:
    for marker in ("-", "#", ">", "1.", "~~~", "```"):
        text = f"{'word ' * 8}{marker} {'word ' * 8}"
        assert not any(piece.startswith(marker) for piece in split(text, 41))


@pytest.mark.parametrize(
    "cluster", ["👍🏽", "🇩🇪", "👩‍👩‍👧", "e\u0301", "각", "\u1112\u1161\u11ab", "❤️", "\ud83d\ude00"]
)
def test_characters_that_are_seen_as_one_are_not_separated(cluster: str) -> None:
    for before in range(12):
        pieces = split("x" * before + cluster * 60, 40, utf16)
        assert_fits(pieces, 40, utf16)
        assert all(len(piece.replace("x", "")) % len(cluster) == 0 for piece in pieces)


def test_a_letter_under_a_thousand_accents_is_cut_somewhere() -> None:
    zalgo = "a" + "\u0301" * 1_000
    pieces = split(zalgo, 50)
    assert "".join(pieces) == zalgo
    assert all(unicodedata.combining(letter) for letter in "".join(pieces)[1:])


def test_a_measure_that_counts_more_than_the_parts_still_gets_what_fits() -> None:
    def with_escapes(text: str) -> int:
        return len(text) + 4 * text.count("&") + (30 if "```" in text else 0)

    pieces = split("a & b && c\n```\n&&&&&&&&&&&&&&&&&&&&&&&\n&& d\n```\n" * 5, 90, with_escapes)
    assert_fits(pieces, 90, with_escapes)


HOSTILE = {
    "words": "some words and a sentence. " * 15_000,
    "one letter": "a" * 400_000,
    "line ends": "\n" * 400_000 + "a",
    "dots": "." * 400_000,
    "backticks": "`" * 400_000,
    "runs of backticks": "".join("`" * number + "a" for number in range(1, 900)),
    "backslashes": "\\`" * 200_000,
    "brackets": "[" * 200_000 + "](" * 100_000,
    "mentions that do not end": "<@" * 200_000,
    "quotes": ">" * 400_000,
    "deep lists": ("- " * 49 + "x\n") * 4_000,
    "fences": "```\na\n```\n" * 40_000,
    "code without end": "```\n" + "\n" * 200_000 + "x" * 200_000,
    "a fence in a quote": "> ```\n" + "> x\n" * 100_000,
    "accents": "a" + "\u0301" * 400_000,
    "spaces": " " * 400_000 + "x",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_takes_more_than_time_in_proportion(name: str) -> None:
    text = HOSTILE[name]
    began_s = time.process_time()
    pieces = split(text, 4_096, utf16)
    assert time.process_time() - began_s < 1.5
    assert_fits(pieces, 4_096, utf16)
