"""A key names one conversation and nothing else, on every file system."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubbles.bus import Address, InboundMessage, Trigger
from bubbles.sessions.contract import SessionError
from bubbles.sessions.key import GLOBAL, Mode, chat_key, cli_key, display, is_key, key_of, named, person_key
from sandbox_backends.owner import check_key

TEXT = st.text(st.characters(exclude_categories=()), max_size=140) | st.text(
    "ab-_.A9h\N{LATIN SMALL LETTER E WITH ACUTE}"
)
NAME = TEXT.filter(bool)
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
INPUTS = st.one_of(
    st.tuples(st.just("cli"), NAME, st.just("")),
    st.tuples(st.just("chat"), NAME | st.just("person"), TEXT),
    st.tuples(st.just("person"), TEXT, st.just("")),
)


def key(what: tuple[str, str, str]) -> str:
    kind, first, second = what
    return {
        "cli": lambda: cli_key(first),
        "chat": lambda: chat_key(first, second),
        "person": lambda: person_key(first),
    }[kind]()


def shapes(text: str) -> set[str]:
    """What a file system may make of a name."""
    return {form(text) for form in (str, str.casefold, str.lower, str.upper)} | {
        unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD")
    }


@pytest.mark.req("SESS-02")
@unhurried
@given(INPUTS, INPUTS)
def test_different_conversations_have_different_keys_whatever_the_file_system_makes_of_them(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (one == other) == (not shapes(key(one)).isdisjoint(shapes(key(other))))


@pytest.mark.req("SESS-02")
@unhurried
@given(st.integers(0, 3), NAME, NAME)
def test_names_that_differ_by_case_or_normal_form_have_keys_that_do_not_meet(which: int, one: str, other: str) -> None:
    related = [one.swapcase(), unicodedata.normalize("NFD", one), unicodedata.normalize("NFC", one), one + other][which]
    assert (one == related) == (cli_key(one).casefold() == cli_key(related).casefold())
    assert (one == related) == (chat_key("slack", one) == chat_key("slack", related))


@unhurried
@given(INPUTS)
def test_key_is_a_file_name_that_sandboxes_take_and_is_known_as_a_key(what: tuple[str, str, str]) -> None:
    made = key(what)
    assert check_key(made) == made
    assert len(made.encode()) <= 100
    assert made == made.lower()
    assert made[0] not in ".-"
    assert made.count(".") == (what[0] != "cli")
    assert is_key(made)
    if "." in made:
        assert named(made) == made


@unhurried
@given(st.text("abcdefh0123456789-_.", max_size=110))
def test_what_is_taken_for_a_key_is_the_only_spelling_of_its_conversation(text: str) -> None:
    if is_key(text) and re.search("_h[0-9a-f]{32}", text) is None:
        first, dot, second = map(plain, text.partition("."))
        if not dot:
            assert first == "" or cli_key(first) == text
        elif text.startswith("person."):
            assert person_key(second) == text
        else:
            assert chat_key(first, second) == text


def plain(part: str) -> str:
    if part == "_":
        return ""
    raw = re.sub(
        b"__|_[0-9a-f]{2}", lambda m: b"_" if m[0] == b"__" else bytes.fromhex(m[0][1:].decode()), part.encode()
    )
    return raw.decode("utf-8", "surrogatepass")


@pytest.mark.req("SESS-02")
def test_ordinary_keys_can_be_read() -> None:
    assert cli_key("work") == "work"
    assert cli_key("web-shop2") == "web-shop2"
    assert chat_key("telegram", "12345") == "telegram.12345"
    assert person_key("anna") == "person.anna"
    assert display(chat_key("slack", "C0_x")) == "slack.C0_x"
    assert display(cli_key("Büro 2")) == "Büro 2"
    assert display(cli_key("\x1b[2J")) == "\N{REPLACEMENT CHARACTER}[2J"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (cli_key("A"), cli_key("a")),
        (cli_key("_41"), cli_key("A")),
        (cli_key("a_b"), cli_key("a__b")),
        (chat_key("telegram", "-100"), chat_key("telegram", "100")),
        (chat_key("a.b", "c"), chat_key("a", "b.c")),
        (chat_key("person", "anna"), person_key("anna")),
        (chat_key("x", ""), chat_key("x", "_")),
        (cli_key("a" * 101), cli_key("a" * 102)),
        (cli_key("é"), cli_key("e\u0301")),
    ],
)
def test_close_neighbours_are_kept_apart(one: str, other: str) -> None:
    assert one != other
    assert is_key(one)
    assert is_key(other)


def test_no_name_can_be_made_to_look_like_a_cut_one() -> None:
    cut = cli_key("a_" * 100)
    assert len(cut) <= 100
    assert cut != cli_key(display(cut)) != cut
    assert cli_key(cut) != cut


@pytest.mark.parametrize(
    "wrong", ["telegram.A", "a.b.c", ".a", "a.", "telegram.-1", "x._41x", "../../etc", "a.b/c", "."]
)
def test_what_has_a_dot_and_is_no_key_is_refused_in_words(wrong: str) -> None:
    if wrong == "x._41x":
        assert named(wrong) == wrong
        return
    with pytest.raises(SessionError, match=r"There is no session .*: a plain name has no"):
        named(wrong)


def test_session_without_a_name_is_refused() -> None:
    with pytest.raises(SessionError, match="needs a name"):
        named("")


MESSAGE = InboundMessage(address=Address(channel="telegram", chat_id="-77"), sender="5", text="hi", is_group=True)
IDENTITIES = {"anna": ("telegram:5", "discord:9"), "5": ("slack:U1",)}


@pytest.mark.req("SESS-02")
@pytest.mark.parametrize(
    ("message", "mode", "expected"),
    [
        (MESSAGE, "channel", "telegram._2d77"),
        (MESSAGE, "global", GLOBAL),
        (MESSAGE, "user", "person.anna"),
        (replace(MESSAGE, address=Address(channel="discord", chat_id="1"), sender="9"), "user", "person.anna"),
        (replace(MESSAGE, sender="6"), "user", "telegram.6"),
        (replace(MESSAGE, address=Address(channel="slack", chat_id="U1"), sender="U1"), "user", "person.5"),
        (
            replace(MESSAGE, address=Address(channel="telegram", chat_id="5"), sender="job", trigger=Trigger.CRON),
            "user",
            "person.anna",
        ),
        (replace(MESSAGE, session_key="work"), "global", "work"),
    ],
)
def test_session_follows_from_the_message_and_the_mode(message: InboundMessage, mode: Mode, expected: str) -> None:
    assert key_of(message, mode, IDENTITIES) == expected


def test_keys_can_stand_side_by_side_in_a_folder(tmp_path: Path) -> None:
    names = ["A", "a", "é", "e\u0301", "a" * 300, "/", "..", "\0", "a.b", "CON"]
    for name in names:
        (tmp_path / cli_key(name)).mkdir()
    assert len(list(tmp_path.iterdir())) == len(names)
