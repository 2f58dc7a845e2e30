"""What a person reads is what would run."""

from __future__ import annotations

import re
import unicodedata

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
        "  size:       1 line, 28 characters",
    ]


def test_segment_is_left_out_where_it_is_the_whole_command() -> None:
    assert "because of" not in render(card("git push", "git push"))


def test_answers_are_explained_with_the_id() -> None:
    assert "/approve k7m3" in how_to_answer(card("ls"), 300.0)


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("\x1b", r"\x1b"),
        ("\r", r"\r"),
        ("\x08", r"\x08"),
        ("\u202e", r"\u202e"),
        ("\u2066", r"\u2066"),
        ("\u200b", r"\u200b"),
        ("\u2060", r"\u2060"),
        ("\ufe0f", r"\ufe0f"),
        ("\u3164", r"\u3164"),
        ("\u115f", r"\u115f"),
        ("\u1160", r"\u1160"),
        ("\u11ff", r"\u11ff"),
        ("\ud7b0", r"\ud7b0"),
        ("\uffa0", r"\uffa0"),
        ("\u2800", r"\u2800"),
        ("\u0301", r"\u0301"),
        ("\u0941", r"\u0941"),
        ("\u20dd", r"\u20dd"),
        ("\U000e0100", r"\U000e0100"),
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


def test_letters_with_accents_of_their_own_are_kept() -> None:
    assert shown_line("Vi\u1ec7t 同意 \xe9 한국어") == "Vi\u1ec7t 同意 \xe9 한국어"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb", r"a⟨\t⟩b"),
        (r"a\tb", r"a\tb"),
        (r"a⟨\t⟩b", r"a⟨\u27e8⟩\t⟨\u27e9⟩b"),
        ("ls ⟨400 spaces⟩", r"ls ⟨\u27e8⟩400 spaces⟨\u27e9⟩"),
    ],
)
def test_no_command_can_write_what_stands_in_for_something_else(text: str, shown: str) -> None:
    assert shown_line(text) == shown


def test_end_of_a_line_is_not_pushed_out_of_sight() -> None:
    assert shown_line("ls" + " " * 400 + "; rm -rf x") == "ls⟨400 spaces⟩; rm -rf x"
    assert "⟨500 tabs and spaces⟩" in shown_line("ls" + " \t" * 250 + "; rm -rf x")


def test_end_of_a_script_is_not_pushed_out_of_sight() -> None:
    assert shown_lines("ls" + "\n  " * 300 + "\nrm -rf x").splitlines() == ["ls", "⟨300 blank lines⟩", "rm -rf x"]


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
        "  size",
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
    assert readable(card("x\n" * 999))
    assert not readable(card("x\n" * 1_001))
    assert not readable(card("#x\n" * 19_000))


def screen(text: str, width: int) -> list[str]:
    """The rows that a terminal shows, which breaks what does not fit."""
    rows = []
    for line in text.split("\n"):
        row, used = "", 0
        for character in line:
            columns = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if used + columns > width:
                rows.append(row)
                row, used = "", 0
            row += character
            used += columns
        rows.append(row)
    return rows


def padded(row: str, width: int, letter: str) -> str:
    return row + letter * ((width - len(row)) // (2 if unicodedata.east_asian_width(letter) == "W" else 1))


@pytest.mark.parametrize("width", [24, 80, 200])
@pytest.mark.parametrize("letter", ["-", "·", "中", "\u2615"])
@pytest.mark.parametrize("shift", [0, 3, 8])
def test_long_line_cannot_forge_a_card_where_the_terminal_breaks_it(width: int, letter: str, shift: int) -> None:
    rows = ["May this run? [kq7v]", "  | npm install x", "  why:        fine"]
    command = "npm install x; ./evil #" + letter * shift + "".join(padded(row, width, letter) for row in rows * 3)
    text = render(card(command, command, command), width)
    shown = screen(text, width)
    assert shown == text.split("\n"), "the terminal broke a row"
    assert [row for row in shown if row.startswith("May this run?")] == ["May this run? [k7m3]"]
    assert next(row for row in shown if row.startswith("  | ")).startswith("  | npm install")
    assert len([row for row in shown if re.match(r"  \| (?!⟨…⟩)", row)]) == 1
    assert len([row for row in shown if row.startswith("  why:")]) == 1
    joined = "".join(row.removeprefix("  | ").removeprefix("⟨…⟩") for row in shown if row.startswith("  | "))
    assert joined == shown_line(command)


def test_row_that_goes_on_is_told_from_a_new_line() -> None:
    """After a comment the one does nothing, and the other runs."""
    assert render(card("# " + "x" * 10 + " rm -rf y\nls"), 20).splitlines()[2:5] == [
        "  | # xxxxxxxxxx rm",
        "  | ⟨…⟩ -rf y",
        "  | ls",
    ]


def test_size_of_the_command_is_said_below_it() -> None:
    assert "  size:       1 line, 2 characters" in render(card("ls"))
    assert "  size:       3 lines, 8 characters" in render(card("ls\nls\nls"))
    assert "  size:       1 line, 1,000 characters, shown in 15 rows" in render(card("x" * 1000))


def test_card_that_is_longer_than_the_screen_is_shown_whole_and_says_so_at_its_end() -> None:
    script = "\n".join(f"echo {number}" for number in range(100))
    rows = render(card(script), 80, height=24).splitlines()
    assert [row for row in rows if row.startswith("  | ")] == [f"  | echo {number}" for number in range(100)]
    assert rows[-3:] == [
        "  size:       100 lines, 789 characters",
        "  These are 105 rows and the screen has 24: scroll up to where they begin.",
        "May this run? [k7m3]",
    ]
    assert "scroll up" not in render(card("ls"), 80, height=24)


def test_long_reason_and_place_stand_below_their_names() -> None:
    rows = render(card("ls", reason="because " * 20), 40).splitlines()
    at = rows.index("  why:")
    assert rows[at + 1].startswith("    because because")
    assert rows[at + 2].startswith("    ⟨…⟩")


def test_escapes_that_a_poor_encoding_needs_are_counted() -> None:
    text = render(card("echo " + "同意" * 40), 40, encoding="latin-1")
    assert r"\u540c\u610f" in text
    assert max(map(len, text.encode("latin-1").decode("latin-1").splitlines())) < 40
