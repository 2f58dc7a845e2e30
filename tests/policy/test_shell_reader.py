"""What the reader sees in a text: the commands in plain sight, the hidden ones, and its doubts."""

from __future__ import annotations

import pytest

from bubbles.controller.policy.contract import Context
from bubbles.controller.policy.shell import read, read_argv
from bubbles.controller.policy.shell.reading import UNKNOWN, Hole, Reading

CONTEXT = Context(cwd="/r", roots=("/r",), home="/home/p", person_home="/home/p")


def look(script: str) -> Reading:
    return read(script, CONTEXT)


def plain(script: str) -> list[list[str]]:
    """The argvs in plain sight of a text that must be understood."""
    reading = look(script)
    assert not reading.doubts, reading.doubts
    return [[word.text for word in segment.words] for segment in reading.segments]


@pytest.mark.parametrize(
    ("script", "argvs"),
    [
        ("pytest -q", [["pytest", "-q"]]),
        ("  pytest\t-q  # note", [["pytest", "-q"]]),
        ("pytest -q;", [["pytest", "-q"]]),
        ("a && b || c; d\ne", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("a | b |& c", [["a"], ["b"], ["c"]]),
        ("(a; b) && { c; }", [["a"], ["b"], ["c"]]),
        ("! a", [["a"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a $'x\\x41\\n\\'' 'it'\\''s'", [["a", "xA\n'", "it's"]]),
        ('a "\\$5 \\q \\"x\\""', [["a", '$5 \\q "x"']]),
        ("a t_{b,c}.py {x} HEAD@{1} {,}", [["a", "t_b.py", "t_c.py", "{x}", "HEAD@{1}", "", ""]]),
        ("a {b,{c,d}}e", [["a", "be", "ce", "de"]]),
        ("a ~ ~/b x=~/c --y=~/d '~'", [["a", "/home/p", "/home/p/b", "x=/home/p/c", "--y=~/d", "~"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a '' \"\"", [["a", "", ""]]),
        ("a x#y", [["a", "x#y"]]),
        ("a é日本", [["a", "é日本"]]),
        ("a &&\n\nb", [["a"], ["b"]]),
        ("bash -lc 'a b && c'", [["a", "b"], ["c"]]),
        ("sh -c 'a b'", [["a", "b"]]),
    ],
)
def test_a_plain_text_is_cut_as_bash_cuts_it(script: str, argvs: list[list[str]]) -> None:
    assert plain(script) == argvs


@pytest.mark.parametrize(
    "script",
    [
        "git diff README\n\\rm -rf x",
        "a ;; b",
        "a )",
        "a &&",
        "a\n&& b",
        "'a",
        '"a',
        "a `b",
        "a $(b",
        "{ a }",
        "()",
        "a; ; b",
        "| a",
        "a > ",
        "",
        "   ",
        "# only a comment",
    ],
)
def test_what_is_no_script_for_certain_is_broken(script: str) -> None:
    assert look(script).broken


@pytest.mark.parametrize(
    "script",
    [
        "if a; then b; fi",
        "for x in a b; do c $x; done",
        "while a; do b; done",
        "until a; do b; done",
        "case x in y) a;; *) b;; esac",
        "f() { a; }; f",
        "function f { a; }",
        "f() ( a )",
        "[[ -v a ]] && b",
        "x=(1 2); a",
        "a[1]=2 b",
        "coproc a",
        "cat <<E\nx\nE",
        "cat <<'E'\nx\nE",
        "((x = 1))",
        "alias a=b",
        "eval a",
        "shopt -s extglob",
        "hash -p /tmp/e a",
        "set -o allexport",
        "trap 'a' EXIT",
        "read x",
        "exec 3>f",
        "select x in a; do b; done",
        "a\\\nb",
        'a "$\\\nb"',
        "HOME=/; a ~",
        "CDPATH=sub; cd a",
        "unset HOME; a ~",
        "a ${A@P}",
        "[ -v 'a[$(b)]' ]",
        "test -v 'a[$(b)]'",
        "time alias a=b",
        "printf 'x%n' PATH",
        "a 99999999999>x",
        "a ${A:-b}",
    ],
)
def test_a_construct_that_is_not_read_for_certain_is_a_doubt(script: str) -> None:
    assert look(script).doubts


@pytest.mark.parametrize("character", ["\r", "\x1b", "\u202e", "\u200b", "\x7f", "\u00a0", "\ufeff", "\ud800"])
def test_a_character_that_a_card_cannot_show_is_named(character: str) -> None:
    reading = look(f"pytest -q{character}x")
    assert f"U+{ord(character):04X}" in reading.doubts[0]
    assert reading.broken


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("echo $(rm -rf x)", ("rm", "-rf", "x")),
        ("echo `rm -rf x`", ("rm", "-rf", "x")),
        ('echo "a $(b "$(rm -rf x)")"', ("rm", "-rf", "x")),
        ("cat <(rm -rf x)", ("rm", "-rf", "x")),
        ("echo ${A:-$(rm -rf x)}", ("rm", "-rf", "x")),
        ("echo $((a[$(rm -rf x)]))", ("rm", "-rf", "x")),
        ("A=$(rm -rf x) b", ("rm", "-rf", "x")),
        ("b > $(rm -rf x)", ("rm", "-rf", "x")),
        ("cat <<E\n$(rm -rf x)\nE", ("rm", "-rf", "x")),
        ("bash <<E\nrm -rf x\nE", ("rm", "-rf", "x")),
        ("bash <<< 'rm -rf x'", ("rm", "-rf", "x")),
        ("echo 'rm -rf x' | sh", ("rm", "-rf", "x")),
        ("sudo -u bob env A=1 nice -n 5 rm -rf x", ("rm", "-rf", "x")),
        ("bash -c 'bash -c \"rm -rf x\"'", ("rm", "-rf", "x")),
        ("zsh -ic 'rm -rf x'", ("rm", "-rf", "x")),
        ("bash -o pipefail -c 'rm -rf x'", ("rm", "-rf", "x")),
        ("sh -c '$0 \"$@\"' rm -rf x", ("rm", "-rf", "x")),
        ("eval rm -rf x", ("rm", "-rf", "x")),
        ("env -S 'rm -rf x'", ("rm", "-rf", "x")),
        ("xargs -0 rm -rf x < l", ("rm", "-rf", "x")),
        ("find . -exec rm -rf x \\;", ("rm", "-rf", "x")),
        ("git -c alias.s='!rm -rf x' s", ("rm", "-rf", "x")),
        ("git submodule foreach 'rm -rf x'", ("rm", "-rf", "x")),
        ("tar xf a --to-command='rm -rf x'", ("rm", "-rf", "x")),
        ("watch -n 1 rm -rf x", ("rm", "-rf", "x")),
        ("trap 'rm -rf x' EXIT", ("rm", "-rf", "x")),
        ("alias a='rm -rf x'", ("rm", "-rf", "x")),
        ("su - bob -c 'rm -rf x'", ("rm", "-rf", "x")),
        ("uv run rm -rf x", ("rm", "-rf", "x")),
        ("ssh h 'rm -rf x'", ("rm", "-rf", "x")),
        ("docker exec c sh -c 'rm -rf x'", ("rm", "-rf", "x")),
        ("timeout -k 5 10 setsid rm -rf x", ("rm", "-rf", "x")),
    ],
)
def test_a_command_behind_another_is_found(script: str, command: tuple[str, ...]) -> None:
    assert command in [segment.guess for segment in look(script).everything]


@pytest.mark.parametrize(
    ("script", "guess"),
    [
        ("A=rm B=-rf; $A $B x", ("rm", "-rf", "x")),
        ("A='rm -rf'; $A x", ("rm", "-rf", "x")),
        ("A=r; A+=m; $A x", ("rm", "x")),
        ("A={a,b} rm -rf x", ("rm", "-rf", "x")),
        ("A='$(rm x)'; echo ${A@P}", ("rm", "x")),
        ("rm$IFS-rf$IFS~", ("rm", "-rf", "/home/p")),
        ("rm${IFS}-rf${IFS}x", ("rm", "-rf", "x")),
        ("r''m -rf x", ("rm", "-rf", "x")),
        ("$'\\162\\155' x", ("rm", "x")),
        ("{rm,-rf,x}", ("rm", "-rf", "x")),
        ("for f in a b; do rm $f; done", ("rm", "a", "b")),
        ("if a; then rm x; fi", ("rm", "x")),
        ("case a in b) rm x;; esac", ("rm", "x")),
        ("f() { rm x; }", ("rm", "x")),
        ("rm ${Q:-x}", ("rm", "x")),
        ("rm $UNSET", ("rm", UNKNOWN)),
        ("pytest -q #\\\nrm -rf ~", ("rm", "-rf", "/home/p")),
    ],
)
def test_what_an_argv_may_become_is_guessed(script: str, guess: tuple[str, ...]) -> None:
    assert guess in [segment.guess for segment in look(script).everything]


@pytest.mark.parametrize(
    ("script", "directories"),
    [
        ("cd sub && x", {"/r/sub"}),
        ("cd sub; x", {"/r", "/r/sub"}),
        ("cd sub || cd /tmp; x", {"/r/sub", "/tmp", "/r"}),
        ("(cd sub); x", {"/r"}),
        ("cd sub | cat; x", {"/r"}),
        ("cd sub & x", {"/r"}),
        ("time -p cd sub && x", {"/r/sub"}),
        ("timeout 5 cd sub; x", {"/r"}),
        ("[ -d sub ] && x", {"/r"}),
        ("{ cd sub; } && x", {"/r/sub"}),
        ("! cd sub || x", {"/r/sub"}),
        ("cd a && cd ../b && x", {"/r/b"}),
        ("cd .. && x", {"/"}),
        ("cd && x", {"/home/p"}),
        ("cd -- sub && x", {"/r/sub"}),
        ("bash -c 'cd sub'; x", {"/r"}),
        ("cd sub && bash -c x", {"/r/sub"}),
    ],
)
def test_the_directory_of_a_command_is_known(script: str, directories: set[str]) -> None:
    last = look(script).segments[-1]
    assert last.words[0].text == "x"
    assert last.directories == frozenset(directories)


@pytest.mark.parametrize(
    "script", ["cd - && x", "cd $A && x", "popd && x", "pushd a && x", ". ./e && x", "cd -P a && x"]
)
def test_a_directory_that_cannot_be_known_is_unknown(script: str) -> None:
    assert look(script).segments[-1].directories is None


def test_wrappers_that_change_nothing_are_stepped_over() -> None:
    (segment,) = look("timeout -k 5 60s nice -n 5 pytest -q").segments
    assert [word.text for word in segment.core] == ["pytest", "-q"]
    assert segment.guess == ("pytest", "-q")
    assert segment.words[0].text == "timeout"


def test_what_runs_on_in_the_background_is_marked() -> None:
    assert [segment.background for segment in look("a; b && c & d").segments] == [False, True, True, False]


def test_redirects_and_assignments_belong_to_their_command() -> None:
    (segment,) = look("A=1 B+='x y' cmd 2>&1 >out.log <in arg &>> all").segments
    assert [(one.name, one.value.text, one.append) for one in segment.assignments] == [
        ("A", "1", False),
        ("B", "x y", True),
    ]
    assert [(one.descriptor, one.operator, one.target.text) for one in segment.redirects] == [
        ("2", ">&", "1"),
        ("", ">", "out.log"),
        ("", "<", "in"),
        ("", "&>>", "all"),
    ]
    assert [word.text for word in segment.words] == ["cmd", "arg"]


@pytest.mark.parametrize(
    ("word", "hole"),
    [
        ("$?", Hole.INTEGER),
        ('"exit=$?"', Hole.INTEGER),
        ("*.py", Hole.GLOB),
        ("$A", Hole.VARIABLE),
        ('"$A"', Hole.VARIABLE),
        ("${A@P}", Hole.VARIABLE),
        ("$(a)", Hole.SUBSTITUTION),
        ("$((1+1))", Hole.SUBSTITUTION),
        ("~root", Hole.TILDE),
        ("~:x", Hole.TILDE),
        ("{~,x}/y", Hole.BRACE),
        ("~{a,b}'x'", Hole.TILDE),
        ("$!", Hole.VARIABLE),
        ("{1..3}{a,b}", Hole.BRACE),
        ("log>(a)", Hole.SUBSTITUTION),
        ("{1..3}", Hole.BRACE),
    ],
)
def test_what_is_not_known_of_a_word_is_marked(word: str, hole: Hole) -> None:
    (segment,) = look(f"echo {word}").segments
    assert segment.words[1].holes & hole


def test_an_argv_is_taken_as_it_is() -> None:
    reading = read_argv(("git", "commit", "-m", "a; rm -rf / $(x)"), CONTEXT)
    assert not reading.doubts
    assert [word.text for word in reading.segments[0].words] == ["git", "commit", "-m", "a; rm -rf / $(x)"]


def test_a_shell_as_argv_is_read_like_one_in_a_text() -> None:
    reading = read_argv(("bash", "-lc", "a && b"), CONTEXT)
    assert [segment.guess for segment in reading.segments] == [("a",), ("b",)]
    assert reading.sole == "a && b"


def test_nesting_without_end_is_given_up_on() -> None:
    assert look("$(" * 50 + "a" + ")" * 50).doubts


def test_a_fork_bomb_shows_its_function() -> None:
    reading = look(":(){ :|:& };:")
    inside = [segment for segment in reading.everything if "function :" in segment.via]
    assert [segment.guess for segment in inside] == [(":",), (":",)]
