"""What stands around a command in the lane: folders, patterns, credentials, assignments, redirects, odd letters."""

from __future__ import annotations

import pytest

from bubbles.controller.policy.contract import Context
from bubbles.controller.policy.lane import harmless, inert, judge
from bubbles.controller.policy.shell.reading import UNKNOWN, Assignment, Hole, Redirect, Segment, Word
from tests.policy.lane_trial import ROOT, place, refusal

pytestmark = pytest.mark.req("DEC-03", "DEC-13")


def command(*words: str | Word, **more: object) -> Segment:
    made = tuple(Word(word) if isinstance(word, str) else word for word in words)
    return Segment(
        words=made,
        core=made,
        guess=tuple(word.text for word in made),
        directories=frozenset({ROOT}),
        **more,  # type: ignore[arg-type]
    )


def glob(pattern: str) -> Word:
    return Word(pattern, Hole.GLOB)


@pytest.mark.parametrize("pattern", ["src/*.py", "tests/test_[ab].py", "./*.py", "sub/**/x"])
def test_a_pattern_with_a_fixed_beginning_stands_for_paths(pattern: str) -> None:
    assert judge(command("wc", "-l", glob(pattern)), place()) is None


@pytest.mark.parametrize("pattern", ["*.py", "?x", "[a]*", "-*", "../*", "src/.*", "/etc/*", "link_out/*", "a/../../*"])
def test_a_pattern_that_may_be_an_option_or_lead_out_is_refused(pattern: str) -> None:
    assert judge(command("head", "-5", glob(pattern)), place())


def test_after_two_dashes_a_pattern_may_begin_with_a_wildcard() -> None:
    assert judge(command("head", "-5", "--", glob("*.py")), place()) is None


def test_where_no_option_does_harm_a_pattern_may_match_one() -> None:
    assert judge(command("wc", "-l", glob("*.py")), place()) is None
    assert judge(command("ls", glob("../*")), place())


@pytest.mark.parametrize(
    "words", [("uniq", glob("a*")), ("diff", "x", glob("a*")), ("xxd", glob("a*")), ("cd", glob("a*"))]
)
def test_a_pattern_is_refused_where_the_number_of_operands_matters(words: tuple[str | Word, ...]) -> None:
    assert judge(command(*words), place())


@pytest.mark.parametrize("pattern", ["src/*.pem", "keys/id_*", "config/*", "src/.env*", "secrets/s*.yml"])
def test_a_pattern_that_may_match_credentials_is_refused_to_readers(pattern: str) -> None:
    assert judge(command("cat", glob(pattern)), place())


def test_a_pattern_as_the_value_of_an_option_is_still_that_option() -> None:
    assert judge(command("grep", "-rn", glob("--include=*.py"), "x", "src"), place()) is None
    assert judge(command("pytest", glob("--ignore=*")), place())
    assert judge(command("pytest", glob("--*=x")), place())


def test_a_number_may_be_unknown_where_only_a_number_is_meant() -> None:
    jobs = Word(f"-j{UNKNOWN}", Hole.INTEGER)
    assert judge(command("echo", Word(f"exit={UNKNOWN}", Hole.INTEGER)), place()) is None
    assert judge(command("cmake", "--build", "build", jobs), place()) is None
    assert judge(command("cat", Word(UNKNOWN, Hole.INTEGER)), place())
    assert judge(command("pytest", "-k", Word(UNKNOWN, Hole.INTEGER)), place())


@pytest.mark.parametrize(
    "path",
    """.env sub/.env .env.local prod.env id_rsa keys/id_ed25519 server.pem tls/server.key .ssh/config .aws/credentials
    .netrc .npmrc .pypirc .git-credentials .git/config credentials.json secrets.yaml .docker/config.json x/../.env
    terraform.tfstate""".split(),
)
def test_credentials_are_not_shown_even_in_the_roots(path: str) -> None:
    for reader in ("cat", "head", "grep x", "sed -n 1p", "jq .", "git diff --no-index a", "sort"):
        assert refusal(f"{reader} {path}"), (reader, path)
    assert refusal(f"cat < {path}")
    assert refusal(f"git show HEAD:{path}")
    assert refusal(f"git add {path}")


@pytest.mark.parametrize(
    "path", "README.md .gitignore .env.example id_rsa.pub .github/workflows/ci.yml src/secrets.py".split()
)
def test_what_only_sounds_like_credentials_is_shown(path: str) -> None:
    assert refusal(f"cat {path}") is None


def test_where_a_sandbox_enforces_what_is_seen_readers_may_read_it() -> None:
    inside = place(contained=True)
    for line in ("cat /usr/include/stdio.h", "ls /", "grep -rn x /usr/lib/python3", "find / -name x", "rg x /opt"):
        assert refusal(line, inside) is None, line
        assert refusal(line), line
    for line in (
        "cat /proc/1/environ",
        "cat /dev/sda",
        "cat /sys/x",
        "cat /run/secrets/key",
        "cat ~/.ssh/id_rsa",
        "cat /etc/shadow",
        "pytest /tmp/evil",
        "cmake -S /tmp/evil -B build",
        "cmake -S . -B /tmp/build",
        "pytest > /tmp/x.log",
        "pytest --junitxml=/tmp/report.xml",
        "cd /tmp",
        "git -C /tmp/x status",
    ):
        assert refusal(line, inside), line


def test_a_link_that_leads_out_is_seen() -> None:
    for line in (
        "cat link_out/x",
        "pytest link_out",
        "pytest > link_out/x.log",
        "cmake -S . -B link_out/b",
        "cd link_out",
    ):
        assert refusal(line), line


def test_options_that_change_the_folder_add_up() -> None:
    assert refusal("git -C sub -C ../other status") is None
    assert refusal("git -C sub -C ../.. status")
    assert refusal("make -C sub -C ../../x test")
    assert refusal("npm --prefix sub/../.. test")
    assert refusal("git -C sub diff --no-index ../a b") is None
    assert refusal("git -C sub diff --no-index ../../a b")


@pytest.mark.parametrize(
    "text", ["a\x1b[2Kb", "a\rb", "a\u202eb", "a\u200bb", "a\x07b", "\u2013\u2013rootdir=/", "\u2014x", "a\x7fb"]
)
def test_characters_that_deceive_the_eye_take_a_command_out(text: str) -> None:
    assert judge(command("pytest", text), place())


def test_a_message_may_have_lines_and_other_scripts() -> None:
    assert judge(command("git", "commit", "-m", "Löse Überlauf\n\n- 修复\t(#12) 🎉"), place()) is None


@pytest.mark.parametrize("name", ["\u0440ytest", "\uff50ytest", "Pytest", "py test", "", "pytest\n", "pytest.exe"])
def test_a_name_that_only_looks_like_a_program_is_another(name: str) -> None:
    assert judge(command(name, "-q"), place())


# assignments -------------------------------------------------------------------------------------------------------


def assigned(text: str, context: Context | None = None) -> bool:
    name, _, value = text.partition("=")
    return inert(Assignment(name, Word(value)), context or place())


@pytest.mark.parametrize(
    "text",
    """CI=true NO_COLOR=1 TERM=dumb RUST_BACKTRACE=full PYTHONUNBUFFERED=1 LC_ALL=C.UTF-8 TZ=Europe/Berlin NODE_ENV=test
    PYTHONPATH=src PYTHONPATH=.:lib CC=clang CXX=g++-13 DATABASE_URL=sqlite:///test.db DATABASE_URL=sqlite://
    RUST_LOG=info,app=debug GIT_PAGER=cat NODE_OPTIONS=--max-old-space-size=4096 ASAN_OPTIONS=detect_leaks=0""".split(),
)
def test_an_inert_variable_is_told(text: str) -> None:
    assert assigned(text)


@pytest.mark.parametrize(
    "text",
    """PATH=. LD_PRELOAD=x PYTEST_ADDOPTS=-x PYTHONPATH=/tmp PYTHONPATH=.. PYTHONPATH=src: PYTHONPATH=.hidden CC=./cc
    CC=/tmp/cc CC=evilcc GIT_DIR=x GIT_PAGER=less GIT_SSH_COMMAND=x npm_config_prefix=x NODE_OPTIONS=--require=x
    RUSTC_WRAPPER=x
    MAKEFLAGS=-n IFS=x HOME=/ BASH_ENV=x TZ=/etc/passwd TZ=a/../b NODE_ENV=/x RAILS_ENV=production
    DATABASE_URL=postgres://h/d DATABASE_URL=sqlite:////etc/x.db DATABASE_URL=sqlite:///src/app.py
    DATABASE_URL=sqlite:///../x.db ASAN_OPTIONS=log_path=x RUSTFLAGS=-Clinker=x GOFLAGS=-toolexec=x FOO=1 ci=1
    DJANGO_SETTINGS_MODULE=app.production LANG=../x""".split(),
)
def test_any_other_variable_is_not_inert(text: str) -> None:
    assert not assigned(text)


def test_a_variable_that_is_appended_to_or_not_known_is_not_inert() -> None:
    assert not inert(Assignment("CI", Word("1"), append=True), place())
    assert not inert(Assignment("CI", Word(UNKNOWN, Hole.SUBSTITUTION)), place())


def test_inert_assignments_alone_are_accepted_and_nothing_alone_is_not() -> None:
    assert judge(command(assignments=(Assignment("CI", Word("1")),)), place()) is None
    assert judge(command(assignments=(Assignment("FOO", Word("1")),)), place())
    assert judge(command(), place())
    assert judge(command(redirects=(Redirect(">", "", Word("x.log")),)), place())


# redirects ---------------------------------------------------------------------------------------------------------


def redirected(operator: str, target: str | Word, descriptor: str = "") -> str | None:
    word = Word(target) if isinstance(target, str) else target
    return harmless(Redirect(operator, descriptor, word), frozenset({ROOT}), place())


@pytest.mark.parametrize(
    ("operator", "target", "descriptor"),
    [
        (">&", "1", "2"),
        (">&", "2", ""),
        (">&", "-", "2"),
        ("<&", "3", ""),
        (">", "/dev/null", ""),
        ("&>", "/dev/null", ""),
        ("<", "/dev/null", ""),
        (">", "test.log", ""),
        (">>", "build/out.log", "2"),
        ("&>>", "report.json", ""),
        (">", "test-results.xml", ""),
        ("<", "data.json", ""),
    ],
)
def test_a_redirect_that_opens_nothing_or_a_report_is_harmless(operator: str, target: str, descriptor: str) -> None:
    assert redirected(operator, target, descriptor) is None


@pytest.mark.parametrize(
    ("operator", "target", "descriptor"),
    [
        (">|", "test.log", ""),
        ("<>", "test.log", ""),
        (">&", "test.log", ""),
        (">&", "\u0661", ""),
        ("<<", "text", ""),
        ("<<<", "text", ""),
        (">", "test.log", "{fd}"),
        (">", "1", "2"),
        (">", "x", ""),
        (">", "src/app.py", ""),
        (">", "conftest.py", ""),
        (">", "package.json", ""),
        (">", "CMakeLists.txt", ""),
        (">", "requirements.txt", ""),
        (">", "default.rules", ""),
        (">", "Makefile", ""),
        (">", ".git/x.log", ""),
        (">", "sub/.hidden/x.log", ""),
        (">", ".log", ""),
        (">", "../x.log", ""),
        (">", "sub/../x.log", ""),
        (">", "/tmp/x.log", ""),
        (">", "link_out/x.log", ""),
        (">", "", ""),
        ("<", "/etc/passwd", ""),
        ("<", ".env", ""),
        ("<", "/dev/tcp/203.0.113.5/80", ""),
        (">", "/dev/tcp/203.0.113.5/80", ""),
        (">", "/dev/sda", ""),
    ],
)
def test_any_other_redirect_is_not_harmless(operator: str, target: str, descriptor: str) -> None:
    assert redirected(operator, target, descriptor)


def test_a_redirect_to_what_is_not_known_is_not_harmless() -> None:
    assert redirected(">", Word(UNKNOWN, Hole.VARIABLE))
    assert redirected(">", Word("x*.log", Hole.GLOB))
    assert redirected(">&", Word(UNKNOWN, Hole.INTEGER))


def test_a_session_may_lie_in_a_hidden_folder() -> None:
    hidden = Context(
        cwd="/home/agent/.bubbles/desk/.trees/a",
        roots=("/home/agent/.bubbles/desk",),
        home="/home/agent",
        person_home="/p",
    )
    for line in ("pytest > x.log", "cat a.py", "cmake -S . -B build", "git status", "cat .env.example"):
        assert refusal(line, hidden) is None, line
    assert refusal("cat .env", hidden)
