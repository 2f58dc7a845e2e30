"""Programs whose further arguments are a program or code of any kind.

An allow rule grants a prefix, whatever follows. Where that prefix is ``bash -c``, ``env`` or ``python3``, what follows
is everything; such a rule grants nothing. The forms here are those of the programs' manuals.
"""

from __future__ import annotations

import itertools
import os.path
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bubbles.controller.policy.rules.model import Pattern
from bubbles.controller.policy.rules.options import takes_value

MAX_FORMS = 256
"""A pattern with more combinations of alternatives is judged as one."""
MAX_LAYERS = 6

Tokens = Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wrapper:
    """Runs the command that its operands name."""

    takes: frozenset[str] = frozenset()
    """Options that are followed by a value."""
    flags: frozenset[str] = frozenset()
    operands: int = 0
    """That come before the command."""
    assigns: bool = False
    """``NAME=value`` may come before the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Interpreter:
    """Runs the file, module or code that it is given, and hands on what follows."""

    takes: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()
    """Options whose value is the program; what follows it is handed on."""
    code: frozenset[str] = frozenset()
    """Options whose value is code, and may come again."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SHELL = _Interpreter(takes=_words("-o -O +o +O --rcfile --init-file"), ends=frozenset())
_PYTHON = _Interpreter(takes=_words("-X -W -Q --check-hash-based-pycs"), ends=_words("-c -m"))
_SHELL_NAMES = _words("sh bash zsh dash ksh mksh ash fish rbash")

_INTERPRETERS: Mapping[str, _Interpreter] = {
    **dict.fromkeys(_SHELL_NAMES, _SHELL),
    "source": _Interpreter(),
    ".": _Interpreter(),
    **dict.fromkeys(_words("python pypy ipython"), _PYTHON),
    **dict.fromkeys(
        _words("node nodejs bun tsx ts-node"),
        _Interpreter(
            takes=_words(
                "-r --require --import --loader --experimental-loader --preload --env-file -C --conditions --cwd"
            ),
            code=_words("-e --eval -p --print -pe"),
        ),
    ),
    **dict.fromkeys(
        _words("perl ruby lua luajit"), _Interpreter(takes=_words("-I -r -M -m -l -C"), code=_words("-e -E"))
    ),
    "php": _Interpreter(takes=_words("-c -d -z"), code=_words("-r -B -R -E -F")),
    **dict.fromkeys(_words("Rscript osascript julia groovy scala"), _Interpreter(code=_words("-e -l -E --eval"))),
    **dict.fromkeys(
        _words("awk gawk mawk nawk"), _Interpreter(takes=_words("-v -F"), code=_words("-e -f --file --source -i -l"))
    ),
    **dict.fromkeys(
        _words("expect tclsh guile racket pwsh powershell"), _Interpreter(code=_words("-c -e -Command -File"))
    ),
}

_PLAIN = _Wrapper()
_RUNNER = _Wrapper(
    takes=_words(
        "-p --package -w --workspace --with --from --python --with-requirements --extra --group --env-file --index"
    ),
    flags=_words("-y --yes --no --no-install -q --quiet --silent --offline --frozen --locked --no-sync --isolated"),
)
_CONTAINER = _Wrapper(
    takes=_words(
        "-e --env -v --volume -w --workdir -u --user -p --publish --name --network --entrypoint --mount -h --hostname "
        "-m --memory --env-file --platform -l --label --cpus --index"
    ),
    flags=_words("-i -t -it -ti -d --rm --init --privileged -T --detach --interactive --tty --no-deps --read-only"),
    operands=1,
)

_WRAPPERS: Mapping[tuple[str, ...], _Wrapper] = {
    **{
        (name,): _PLAIN
        for name in _words(
            "command builtin exec nohup setsid time caffeinate unbuffer chronic busybox toybox dbus-run-session "
            "xvfb-run catchsegv fakeroot proot firejail bwrap systemd-run gdb ltrace torsocks proxychains proxychains4 "
            "doas nsenter unshare runuser pkexec script tmux screen entr winpty wsl rlwrap direnv-exec"
        )
    },
    ("env",): _Wrapper(
        takes=_words("-u --unset -C --chdir -S --split-string"),
        flags=_words("-i -0 -v --ignore-environment"),
        assigns=True,
    ),
    ("sudo",): _Wrapper(
        takes=_words("-u --user -g --group -h --host -p --prompt -C -D --chdir -R -r -t -T -U"),
        flags=_words("-n -E -H -A -k -b -S -i -s --non-interactive --preserve-env"),
        assigns=True,
    ),
    ("timeout",): _Wrapper(
        takes=_words("-k --kill-after -s --signal"),
        flags=_words("-v --verbose --foreground --preserve-status"),
        operands=1,
    ),
    ("gtimeout",): _Wrapper(takes=_words("-k -s"), operands=1),
    ("nice",): _Wrapper(takes=_words("-n --adjustment")),
    ("ionice",): _Wrapper(takes=_words("-c --class -n --classdata"), flags=_words("-t")),
    ("stdbuf",): _Wrapper(takes=_words("-i -o -e --input --output --error")),
    ("chrt",): _Wrapper(operands=1),
    ("taskset",): _Wrapper(flags=_words("-c"), operands=1),
    ("flock",): _Wrapper(takes=_words("-w --timeout -E"), flags=_words("-n -x -s -e -u"), operands=1),
    ("chroot",): _Wrapper(operands=1),
    ("strace",): _Wrapper(takes=_words("-e -o -p -s -u -E -P"), flags=_words("-f -ff -c -t -tt -T -y")),
    ("xargs",): _Wrapper(
        takes=_words("-n -P -I -L -d -E -s -a --max-args --max-procs --replace --delimiter --arg-file"),
        flags=_words("-0 -r -t -p -x --null --no-run-if-empty --verbose"),
    ),
    ("npx",): _RUNNER,
    ("bunx",): _RUNNER,
    ("pnpx",): _RUNNER,
    ("uvx",): _RUNNER,
    ("npm", "exec"): _RUNNER,
    ("npm", "x"): _RUNNER,
    ("pnpm", "exec"): _RUNNER,
    ("pnpm", "dlx"): _RUNNER,
    ("yarn", "exec"): _RUNNER,
    ("yarn", "dlx"): _RUNNER,
    ("bun", "x"): _RUNNER,
    ("uv", "run"): _RUNNER,
    ("uv", "tool", "run"): _RUNNER,
    ("pipx", "run"): _RUNNER,
    ("poetry", "run"): _PLAIN,
    ("pdm", "run"): _PLAIN,
    ("hatch", "run"): _PLAIN,
    ("rye", "run"): _PLAIN,
    ("pipenv", "run"): _PLAIN,
    ("bundle", "exec"): _PLAIN,
    ("rbenv", "exec"): _PLAIN,
    ("pyenv", "exec"): _PLAIN,
    ("asdf", "exec"): _PLAIN,
    ("mise", "exec"): _PLAIN,
    ("mise", "x"): _PLAIN,
    ("direnv", "exec"): _Wrapper(operands=1),
    ("conda", "run"): _Wrapper(takes=_words("-n --name -p --prefix --cwd"), flags=_words("--no-capture-output -v")),
    ("deno", "run"): _PLAIN,
    ("bun", "run"): _PLAIN,
    ("go", "run"): _PLAIN,
    ("nix", "run"): _PLAIN,
    ("nix", "develop"): _PLAIN,
    ("nix", "shell"): _PLAIN,
    ("docker", "run"): _CONTAINER,
    ("docker", "exec"): _CONTAINER,
    ("docker", "container", "run"): _CONTAINER,
    ("docker", "container", "exec"): _CONTAINER,
    ("docker", "compose", "run"): _CONTAINER,
    ("docker", "compose", "exec"): _CONTAINER,
    ("docker-compose", "run"): _CONTAINER,
    ("docker-compose", "exec"): _CONTAINER,
    ("podman", "run"): _CONTAINER,
    ("podman", "exec"): _CONTAINER,
    ("kubectl", "exec"): _Wrapper(
        takes=_words("-n --namespace -c --container"), flags=_words("-i -t -it -ti"), operands=1
    ),
    ("kubectl", "run"): _CONTAINER,
}
_LONGEST = max(map(len, _WRAPPERS))

_ALWAYS = frozenset("eval ssh su watch parallel nix-shell trap".split())
"""They put their arguments together into a script: one more argument is one more command."""

_CODE_AT_END: Mapping[str, frozenset[str]] = {
    "git": _words("-c --config-env --exec-path"),
    "deno": _words("eval repl"),
    "find": _words("-exec -execdir -ok -okdir"),
    "fd": _words("-x --exec -X --exec-batch"),
    "rg": _words("--pre"),
    "tar": _words("--to-command --checkpoint-action -I --use-compress-program"),
    "make": _words("--eval"),
    "cargo": _words("--config"),
    "npm": _words("--node-options --script-shell"),
}
"""Options whose value is a program or code, and that a rule must name to grant."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


def barred_forms(pattern: Pattern) -> frozenset[tuple[str, ...]] | None:
    """The forms of a pattern that are bare carriers; ``None`` if all are, or there are too many to tell."""
    forms = 1
    for alternatives in pattern:
        forms *= len(set(alternatives))
    if forms > MAX_FORMS:
        return None if any(_may_carry(head) for head in pattern[0]) else frozenset()
    barred = frozenset(form for form in itertools.product(*pattern) if is_carrier(form))
    return None if len(barred) == forms else barred


def is_carrier(tokens: Tokens) -> bool:
    """Whether what may follow ``tokens`` is a program or code of any kind."""
    return _carries(tokens, MAX_LAYERS)


def smuggles(prefix: Tokens, further: Tokens) -> bool:
    """Whether ``further``, the arguments that a rule with ``prefix`` does not name, make it run another program."""
    name = _base(prefix[0])
    whole = (name, *prefix[1:], *further)
    if any(whole[:length] in _WRAPPERS for length in range(len(prefix) + 1, min(_LONGEST, len(whole)) + 1)):
        return True
    options = _CODE_AT_END.get(name)
    if options is None or (name == "git" and len(prefix) > 1):
        return False  # git's own options come before its sub-command; later ones of these names are others
    if name == "git":
        further = list(_leading(name, further))
    return any(_is_option(token, options) for token in further)


def _leading(program: str, tokens: Tokens) -> Iterator[str]:
    """The options before the sub-command."""
    at = 0
    while at < len(tokens) and tokens[at].startswith("-"):
        yield tokens[at]
        at += 2 if takes_value(program, tokens[at], leading=True) else 1


def _is_option(token: str, options: frozenset[str]) -> bool:
    """Also ``--name=value``, and a value right behind a short option."""
    return token.partition("=")[0] in options or token[:2] in options


def _base(program: str) -> str:
    name = os.path.basename(program)
    versioned = re.fullmatch(r"(python|pypy|perl|ruby|lua|php|node|awk)[\d.]+", name)
    return versioned.group(1) if versioned else name


def _may_carry(head: str) -> bool:
    name = _base(head)
    return name in _ALWAYS or name in _INTERPRETERS or any(name == known[0] for known in _WRAPPERS)


def _carries(tokens: Tokens, layers: int) -> bool:
    if not tokens or layers == 0:
        return True
    name = _base(tokens[0])
    if name in _ALWAYS or tokens[-1] in _CODE_AT_END.get(name, ()):
        return True
    for length in range(min(_LONGEST, len(tokens)), 0, -1):
        wrapper = _WRAPPERS.get((name, *tokens[1:length]))
        if wrapper is not None:
            return any(_carries(inner, layers - 1) for inner in _inner(tokens[length:], wrapper))
    interpreter = _INTERPRETERS.get(name)
    return interpreter is not None and not _names_a_program(name, tokens[1:], interpreter)


def _inner(tokens: Tokens, wrapper: _Wrapper) -> Iterator[Tokens]:
    """The commands that may be meant: where it is not known whether an option takes a value, both."""
    starts, seen = [0], set[int]()
    while starts:
        at = starts.pop()
        if at in seen:
            continue
        seen.add(at)
        token = tokens[at] if at < len(tokens) else ""
        if token == "--":
            yield tokens[at + 1 + wrapper.operands :]
        elif token.startswith(("-", "+")) and len(token) > 1:
            if token in wrapper.takes:
                starts.append(at + 2)
            elif token in wrapper.flags or "=" in token:
                starts.append(at + 1)
            else:
                starts += [at + 1, at + 2]
        elif wrapper.assigns and _ASSIGNMENT.match(token):
            starts.append(at + 1)
        else:
            yield tokens[at + wrapper.operands :]


def _names_a_program(name: str, arguments: Tokens, interpreter: _Interpreter) -> bool:
    at = 0
    while at < len(arguments):
        token = arguments[at]
        if name in _SHELL_NAMES and re.fullmatch(r"-[a-z]*c[a-z]*", token):
            return len(arguments) > at + 1
        if token in interpreter.ends:
            return len(arguments) > at + 1
        if token in interpreter.code or token == "-":
            return False
        if token == "--":
            return len(arguments) > at + 1
        if not token.startswith(("-", "+")):
            return True
        if any(token.startswith(option) for option in interpreter.code if len(option) == 2) and not token.startswith(
            "--"
        ):
            return False
        at += 2 if token in interpreter.takes else 1
    return False
