"""Who is let in, and as what: every case of SPEC 7.1."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.bus import Trigger
from bubbles.channels.access import Refusal, Verdict, judge
from bubbles.channels.contract import Incoming
from bubbles.config.channels import ChannelSettings

Policy = Literal["mention", "all", "off"]
USER = Verdict(trigger=Trigger.USER)
BYSTANDER = Verdict(trigger=Trigger.BYSTANDER)
STRANGER = Verdict(refusal=Refusal.STRANGER)
NOT_ADDRESSED = Verdict(refusal=Refusal.NOT_ADDRESSED)
GROUPS_OFF = Verdict(refusal=Refusal.GROUPS_OFF)


def came(sender: str = "123", **rest: Any) -> Incoming:
    return Incoming(chat_id="c", message_id="m", sender=sender, **rest)


def verdict(incoming: Incoming, *allow_from: str, policy: Policy = "mention") -> Verdict:
    return judge(incoming, ChannelSettings(allow_from=allow_from, group_policy=policy))


@pytest.mark.req("CHAN-02")
def test_nobody_is_let_in_until_somebody_is_named() -> None:
    assert verdict(came()) == STRANGER
    assert verdict(came(), "124") == STRANGER
    assert verdict(came(), "124", "123") == USER
    assert verdict(came(), "*") == USER


@pytest.mark.req("CHAN-02")
@pytest.mark.parametrize(
    "entry", ["12", "1234", " 123", "123 ", "0123", "１２３", "12*", "*3", "**", "ann", "Ann", "123\n"]
)
def test_an_id_is_the_whole_id_and_only_a_single_star_is_everybody(entry: str) -> None:
    assert verdict(came(name="Ann"), entry) == STRANGER


@pytest.mark.req("CHAN-02")
def test_an_id_is_told_from_one_in_other_letters() -> None:
    assert verdict(came("aBc"), "abc") == STRANGER
    assert verdict(came("aBc"), "aBc") == USER


@pytest.mark.req("CHAN-02")
def test_each_stable_id_of_a_person_counts_and_a_display_name_never_does() -> None:
    assert verdict(came(aliases=("lid-9", "+49")), "+49") == USER
    assert verdict(came(aliases=("lid-9",)), "+49") == STRANGER
    assert verdict(came(name="+49"), "+49") == STRANGER


@pytest.mark.req("CHAN-02")
def test_what_has_no_sender_is_nobodys() -> None:
    assert verdict(came(""), "*") == STRANGER
    assert verdict(came("", aliases=("",)), "*") == STRANGER
    assert verdict(came("*"), "123") == STRANGER


@pytest.mark.req("CHAN-03", "CHAN-04")
@pytest.mark.parametrize(
    ("policy", "addressed", "let_in", "expected"),
    [
        ("mention", True, True, USER),
        ("mention", True, False, STRANGER),
        ("mention", False, True, NOT_ADDRESSED),
        ("mention", False, False, NOT_ADDRESSED),
        ("all", True, True, USER),
        ("all", True, False, STRANGER),
        ("all", False, True, BYSTANDER),
        ("all", False, False, STRANGER),
        ("off", True, True, GROUPS_OFF),
        ("off", True, False, GROUPS_OFF),
        ("off", False, True, GROUPS_OFF),
    ],
)
def test_a_group_is_answered_as_its_policy_says(
    policy: Policy, addressed: bool, let_in: bool, expected: Verdict
) -> None:
    message = came(is_group=True, addressed=addressed)
    assert verdict(message, "123" if let_in else "9", policy=policy) == expected


@pytest.mark.req("CHAN-03")
@pytest.mark.parametrize("policy", ["mention", "all", "off"])
def test_in_a_private_chat_everything_of_an_allowed_person_is_for_the_assistant(policy: Policy) -> None:
    assert verdict(came(addressed=False), "123", policy=policy) == USER


@pytest.mark.req("APPR-01")
def test_a_button_gets_nobody_past_the_check() -> None:
    press = came(press=True, is_group=True, addressed=False, text="/approve bcdf")
    assert verdict(press, "123") == USER
    assert verdict(press, "9") == STRANGER
    assert verdict(press, "123", policy="off") == GROUPS_OFF


@given(sender=st.text(max_size=4), allow=st.lists(st.text(min_size=1, max_size=4).filter(lambda text: text != "*")))
def test_whoever_is_let_in_is_named(sender: str, allow: list[str]) -> None:
    let_in = verdict(came(sender), *allow).trigger is not None
    assert let_in is (sender in allow)
