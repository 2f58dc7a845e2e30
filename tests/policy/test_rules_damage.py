"""Damage to a statement of a rule file never permits more than the file without it, and spares its neighbours."""

from __future__ import annotations

import starlark
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bubbles.controller.policy.contract import Effect, Layer
from bubbles.controller.policy.rules import Parsed, Rulebook, bind, parse_rules, resolve_precedence

STATEMENTS = (
    'prefix_rule(pattern=["git", "push"], decision="forbidden", justification="no; never (really)")',
    'prefix_rule(pattern=["curl"], decision="allow")',
    'prefix_rule(pattern=["curl"], decision="prompt")',
    "prefix_rule(pattern=['wget', ['a', \"b's\"]], decision='forbidden')  # don't \"do\" it",
    'prefix_rule(\n    pattern=["npm", ["publish", "login"]],\n    decision="forbidden",\n    match=["npm login"],\n)',
    'prefix_rule(\n    pattern=["npm", "test"],\n    justification="it\'s fine",\n)',
    '"""\nprefix_rule(pattern=["curl"])\n"""',
    '# prefix_rule(pattern=["wget"])',
    'x = "git"\ny = [x, "pull"]',
    'prefix_rule(pattern=["rm"] + ["-i"], decision="prompt")',
    'if True:\n    prefix_rule(pattern=["rm"], decision="forbidden")\nelse:\n    prefix_rule(pattern=["rm"])',
    'for p in ["a", "b"]:\n    prefix_rule(pattern=["make", p], decision="prompt")',
    'def deny(name):\n    prefix_rule(pattern=[name], decision="forbidden")\ndeny("dd")',
    '[prefix_rule(pattern=[p]) for p in ["ls", "cat"]]',
    'host_executable(name="git", paths=["/usr/bin/git"])',
    'prefix_rule(pattern=["dd"], decision="prompt", justification="""of\nmany lines""")',
    'UNUSED = [\n    "prefix_rule(pattern=[\'dd\'])",\n    "x",\n]',
)
COMMANDS = [
    tuple(command.split())
    for command in (
        "git push|git pull|curl x|wget a|wget b's|wget|npm publish|npm login|npm test|rm -i|rm|make a|make|dd|ls|cat|x"
    ).split("|")
]
WORLD = "".join(f"prefix_rule(pattern={[name]!r}, decision='forbidden')\n" for name in ("curl", "rm", "make", "npm"))
PIECES = (
    *"()[]{}\"'\\#,:;=+*% \n\r\tabx0\0é\ud800",
    '"""',
    "prefix_rule(",
    "pattern=",
    "if ",
    "for ",
    "\n    ",
    "def f():",
)
GLOBAL = bind(parse_rules(WORLD, file="world.rules", layer=Layer.GLOBAL).rules)
LENIENCY = {Effect.ALLOW: 0, None: 1, Effect.PROMPT: 2, Effect.FORBIDDEN: 3}


def read(statements: list[str]) -> Parsed:
    return parse_rules("\n".join((*statements, "")), file="my.rules", layer=Layer.SESSION)


def verdicts(*books: Rulebook) -> list[int]:
    found = []
    for command in COMMANDS:
        matches = [match for book in books for match in (*book.allows(command), *book.restrictions(command))]
        found.append(LENIENCY[resolve_precedence(matches)[0]])
    return found


def valid(text: str) -> bool:
    dialect = starlark.Dialect.extended()
    dialect.enable_f_strings = True
    try:
        starlark.parse("x", text + "\n", dialect)
    except starlark.StarlarkError:
        return False
    return True


@st.composite
def damaged(draw: st.DrawFn, statement: str) -> str:
    start = draw(st.integers(0, len(statement)))
    gone = draw(st.integers(0, 6))
    put: str = draw(st.sampled_from([*"()[]{}\"'\\#,:=+ ax\r\0é", "", "", "\n", "))", '"""', "'''", "\\\n"]))
    if draw(st.integers(0, 5)) == 0:
        return statement[:start] + draw(st.sampled_from(["", "\\"]))
    return statement[:start] + put + statement[start + gone :]


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_damage_never_permits_more_and_no_restriction_of_a_neighbour_is_lost(data: st.DataObject) -> None:
    statements = data.draw(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=6))
    index = data.draw(st.integers(0, len(statements) - 1))
    broken = data.draw(damaged(statements[index]))
    before, after = statements[:index], statements[index + 1 :]
    assume(not valid(broken))
    assume(not valid("\n".join((*before, broken, *after))))  # else it is another file, and says so itself
    # Without its header the body of a condition is a statement like any other: nothing tells them apart.
    assume(not (statements[index].startswith(("if", "for", "def")) and not broken.startswith(("if", "for", "def"))))
    result, without = read([*before, broken, *after]), read([*before, *after])
    assert result.warnings
    assert all(has >= had for has, had in zip(verdicts(bind(result.rules)), verdicts(bind(without.rules)), strict=True))
    both, one = verdicts(bind(result.rules), GLOBAL), verdicts(bind(without.rules), GLOBAL)
    assert all(has >= had for has, had in zip(both, one, strict=True))
    restrictions = {(rule.pattern, rule.effect) for rule in result.rules}
    assert restrictions >= {(rule.pattern, rule.effect) for rule in without.rules if rule.effect is not Effect.ALLOW}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60))
def test_no_text_at_all_is_an_exception(pieces: list[str]) -> None:
    parse_rules("".join(pieces), file="my.rules", layer=Layer.GLOBAL)
