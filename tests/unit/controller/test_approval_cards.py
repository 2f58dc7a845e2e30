"""What a person reads is what would run."""

from __future__ import annotations

import pytest

from bubbles.controller.approvals.card import command_text, how_to_answer, readable, render, shown_line, shown_lines
from bubbles.controller.approvals.contract import ApprovalCard
from bubbles.controller.policy.contract import Command

pytestmark = pytest.mark.req("APPR-01", "DEC-08")


def card(command: str, segment: str = "", reason: str = "No rule allows it.") -> ApprovalCard:
    return ApprovalCard(
        id="k7m3",
        command=command,
        segment=segment,
        reason=reason,
        directory="/work/project",
        sandbox="bubblewrap",
        network="none",
    )


def test_card_shows_command_cause_reason_place_and_sandbox() -> None:
    assert render(card("make && git push origin main", "git push origin main")).splitlines() == [
        "May this run? [k7m3]",
        "  | make && git push origin main",
        "  because of: git push origin main",
        "  why:        No rule allows it.",
        "  where:      /work/project",
        "  sandbox:    bubblewrap, network: none",
    ]


def test_segment_is_left_out_where_it_is_the_whole_command() -> None:
    assert "because of" not in render(card("git push", "git push"))


def test_answers_are_explained_with_the_id() -> None:
    assert "/approve k7m3" in how_to_answer(card("ls"), 300.0)


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("\x1b[2K", r"\x1b[2K"),
        ("\r", r"\r"),
        ("\x08", r"\x08"),
        ("\u202e", r"\u202e"),
        ("\u2066", r"\u2066"),
        ("\u200b", r"\u200b"),
        ("\u2060", r"\u2060"),
        ("\ufe0f", r"\ufe0f"),
        ("\u3164", r"\u3164"),
        ("\u00a0", r"\xa0"),
        ("\u2028", r"\u2028"),
        ("\U000e0041", r"\U000e0041"),
        ("\udcff", r"\udcff"),
        ("\x00", r"\x00"),
        ("\t", r"\t"),
    ],
)
def test_what_cannot_be_seen_is_written_out(hidden: str, shown: str) -> None:
    for text in (shown_line(f"ls {hidden}; rm x"), render(card(f"ls {hidden}; rm x"))):
        assert shown in text
        assert hidden not in text


def test_accents_are_kept_and_piles_of_them_are_not() -> None:
    assert shown_line("Việt 同意 é") == "Việt 同意 é"
    assert r"\u0301" in shown_line("e" + "\u0301" * 5)


def test_end_of_a_line_is_not_pushed_out_of_sight() -> None:
    assert shown_line("ls" + " " * 400 + "; rm -rf x") == "ls[… 400 spaces …]; rm -rf x"
    assert "[… 500 tabs and spaces …]" in shown_line("ls" + " \t" * 250 + "; rm -rf x")


def test_end_of_a_script_is_not_pushed_out_of_sight() -> None:
    assert shown_lines("ls" + "\n  " * 300 + "\nrm -rf x").splitlines() == ["ls", "[… 300 blank lines …]", "rm -rf x"]


def test_lines_and_indents_of_a_script_stay() -> None:
    script = "if true; then\n    ls\n\n    pwd\nfi"
    assert shown_lines(script) == script


def test_command_cannot_write_lines_that_look_like_the_cards_own() -> None:
    text = render(card("rm x\n  why:        It is harmless.\n  sandbox:    docker", reason="a\n  sandbox: docker"))
    assert [line.split(":")[0] for line in text.splitlines() if not line.startswith("  | ")] == [
        "May this run? [k7m3]",
        "  why",
        "  where",
        "  sandbox",
    ]


def test_right_to_left_writing_is_announced() -> None:
    assert "right-to-left" in render(card("rm -rf שלום / x"))
    assert "right-to-left" not in render(card("rm -rf 同意"))


def test_argv_is_shown_with_the_quotes_it_needs_and_a_script_as_it_is() -> None:
    assert command_text(Command(argv=("git", "commit", "-m", "a b"))) == "git commit -m 'a b'"
    assert command_text(Command.of_script("ls | wc")) == "ls | wc"


def test_long_command_is_readable_up_to_a_limit_of_what_is_shown() -> None:
    assert readable(card("x" * 60_000))
    assert not readable(card("x" * 60_001))
    assert not readable(card("\x01" * 20_000))
    assert readable(card("a" + " " * 50_000 + "b"))
