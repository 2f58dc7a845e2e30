"""Programs that run another program: what they would run.

For suspicion all of them are seen through. For certainty only a written few change nothing of what runs:
``timeout 60``, ``time``, ``nice``, ``stdbuf``, and a shell that gets its script by ``-c``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bubbles.controller.policy.shell.quoting import printf_escapes
from bubbles.controller.policy.shell.reading import UNKNOWN, Segment, Word

SHELLS = frozenset("sh bash zsh dash ksh mksh ash fish rbash".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """What a wrapper runs: an argv, or a script for a shell."""

    via: str
    argv: tuple[str, ...] = ()
    script: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    """Variables that the script finds set, as far as they are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prefix:
    """``name [options] [operands] COMMAND…``."""

    valued: frozenset[str] = frozenset()
    """Options that take their value as the next word."""
    operands: int = 0
    assignments: bool = False
    """``NAME=value`` words may stand before the command."""


def _prefix(valued: str = "", operands: int = 0, *, assignments: bool = False) -> _Prefix:
    return _Prefix(valued=frozenset(valued.split()), operands=operands, assignments=assignments)


_PREFIXES: dict[str, _Prefix] = {
    "sudo": _prefix("-u -g -h -p -C -T -r -t -D -R -U --user --group --host --prompt --chdir", assignments=True),
    "doas": _prefix("-u -C"),
    "pkexec": _prefix("--user"),
    "run0": _prefix("-u --user -D --chdir"),
    "env": _prefix("-u -C --unset --chdir", assignments=True),
    "nice": _prefix("-n --adjustment"),
    "ionice": _prefix("-c -n -p --class --classdata"),
    "chrt": _prefix("-T -P -D", 1),
    "taskset": _prefix("", 1),
    "nohup": _prefix(),
    "setsid": _prefix(),
    "time": _prefix("-f -o --format --output"),
    "timeout": _prefix("-s -k --signal --kill-after", 1),
    "gtimeout": _prefix("-s -k", 1),
    "command": _prefix(),
    "builtin": _prefix(),
    "exec": _prefix("-a"),
    "coproc": _prefix(),
    "stdbuf": _prefix("-i -o -e --input --output --error"),
    "unbuffer": _prefix(),
    "strace": _prefix("-e -o -p -s -u -E -P -a -I -O -S -X -b"),
    "ltrace": _prefix("-e -o -p -s -u -n -a"),
    "valgrind": _prefix(),
    "gdb": _prefix("-x -ex -iex -p"),
    "perf": _prefix("-e -o -p", 1),
    "unshare": _prefix("-S -G -R -w --root --wd --setuid --setgid"),
    "nsenter": _prefix("-t -S -G --target"),
    "chroot": _prefix("--userspec --groups", 1),
    "firejail": _prefix(),
    "runuser": _prefix("-u --user"),
    "setpriv": _prefix("--reuid --regid"),
    "capsh": _prefix(),
    "systemd-run": _prefix("-p -u --unit --property"),
    "systemd-inhibit": _prefix(),
    "dbus-run-session": _prefix(),
    "caffeinate": _prefix("-t -w"),
    "fakeroot": _prefix(),
    "proot": _prefix("-r -b -w"),
    "busybox": _prefix(),
    "toybox": _prefix(),
    "xargs": _prefix("-I -i -n -P -L -l -d -E -e -s -a --arg-file --max-args --max-procs --delimiter --replace"),
    "parallel": _prefix("-j -N -S --jobs --sshlogin"),
    "entr": _prefix(),
    "flock": _prefix("-w -E --timeout", 1),
    "rlwrap": _prefix(),
    "uvx": _prefix("--from --with --python -p"),
    "npx": _prefix("-p --package"),
    "bunx": _prefix(),
    "winpty": _prefix(),
    "torsocks": _prefix(),
    "proxychains": _prefix("-f"),
    "chronic": _prefix(),
    "ts": _prefix(),
    "docker-entrypoint.sh": _prefix(),
}

_RUNNERS: dict[tuple[str, str], _Prefix] = {
    ("uv", "run"): _prefix("--with --python -p --project --directory --extra --group --package --env-file"),
    ("poetry", "run"): _prefix(),
    ("pdm", "run"): _prefix("-p"),
    ("pipenv", "run"): _prefix(),
    ("hatch", "run"): _prefix(),
    ("rye", "run"): _prefix(),
    ("pixi", "run"): _prefix("-e"),
    ("conda", "run"): _prefix("-n -p --name --prefix"),
    ("mamba", "run"): _prefix("-n -p"),
    ("bundle", "exec"): _prefix(),
    ("npm", "exec"): _prefix("-p --package"),
    ("pnpm", "exec"): _prefix(),
    ("pnpm", "dlx"): _prefix(),
    ("yarn", "exec"): _prefix(),
    ("yarn", "dlx"): _prefix("-p"),
    ("pipx", "run"): _prefix("--spec"),
    ("mise", "exec"): _prefix(),
    ("direnv", "exec"): _prefix("", 1),
    ("nix", "run"): _prefix(),
    ("git", "bisect"): _prefix("", 1),
    ("coverage", "run"): _prefix("--source --omit --include --rcfile"),
}
"""``program sub-command [options] COMMAND…``."""

_SCRIPT_OPTIONS: dict[str, tuple[str, ...]] = {
    "su": ("-c", "--command"),
    "runuser": ("-c", "--command"),
    "script": ("-c", "--command"),
    "flock": ("-c", "--command"),
    "npm": ("-c", "--call"),
    "npx": ("-c", "--call"),
    "tar": (
        "--to-command",
        "--use-compress-program",
        "-I",
        "--info-script",
        "--new-volume-script",
        "--checkpoint-action",
    ),
    "gtar": ("--to-command", "--use-compress-program", "-I"),
    "bsdtar": ("--use-compress-program",),
    "rsync": ("-e", "--rsh"),
    "sort": ("--compress-program",),
    "rg": ("--pre",),
    "man": ("-P", "--pager"),
    "sg": ("-c",),
    "nix-shell": ("--run", "--command"),
    "ssh": ("-oProxyCommand",),
}
"""Options whose value is a command line."""

_GIT_SCRIPT_OPTIONS = frozenset(
    "--tree-filter --index-filter --msg-filter --commit-filter --env-filter --tag-name-filter --parent-filter "
    "--upload-pack --receive-pack --exec -x --extcmd".split()
)
_TEST_COMMANDS = frozenset(("--test-command", "--build-and-test-command"))


def unwrap(segment: Segment) -> list[Inner]:
    """Every command that ``segment`` itself would run, as far as its words tell; not those behind these in turn."""
    guess = segment.guess
    name = guess[0].rsplit("/", 1)[-1] if guess else ""
    found: list[Inner] = []
    if name not in _KNOWN:
        return found
    prefix = _PREFIXES.get(name)
    if prefix is not None:
        _after_prefix(name, guess[1:], prefix, found)
    elif len(guess) > 2 and (runner := _RUNNERS.get((name, guess[1]))) is not None:
        _after_prefix(f"{name} {guess[1]}", guess[2:], runner, found)
    if name in SHELLS or name == "busybox":
        _shell(name, segment, found)
    options = _SCRIPT_OPTIONS.get(name)
    if name in (".", "source"):
        _from_input(name, segment, found)
    if options is not None:
        found.extend(Inner(via=f"{name} {option}", script=value) for option, value in _values(guess, options))
    special = _SPECIAL.get(name)
    if special is not None:
        special(guess, found)
    return found


_HARMLESS = frozenset("timeout time nice stdbuf".split())


def core_of(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """``words`` without the wrappers that only limit, time or slow what runs."""
    for _ in range(3):
        if not words or words[0].text not in _HARMLESS or not words[0].exact:
            return words
        rest = _harmless(words)
        if rest is None:
            return words
        words = rest
    return words


def shell_script(words: tuple[Word, ...]) -> tuple[str, str] | None:
    """``(shell, script)`` if the words are a usual shell, ``-c`` and one script that is known for certain.

    bash and sh are taken at their word; zsh and dash read more and less than bash, so only for a script in which that
    cannot matter.
    """
    if len(words) < 3 or not words[0].text.endswith("sh"):
        return None
    path = words[0].text
    directory, _, name = path.rpartition("/")
    if name not in ("bash", "sh", "zsh", "dash") or directory not in ("", "/bin", "/usr/bin"):
        return None
    options = tuple(word.text for word in words[1:-1])
    if not all(word.exact for word in words):
        return None
    if options not in (("-c",), ("-lc",), ("-l", "-c"), ("-c", "--")):
        return None
    script = words[-1].text
    if name in ("zsh", "dash", "sh") and not re.fullmatch(r"[A-Za-z0-9_./:@%+,'\"; \n=&|-]*", script):
        return None
    if name == "zsh" and re.search(r"(^|[\s;&|'\"])=|(^|\s)-[A-Za-z]*[eo]\b", script):
        return None
    return f"{path} {' '.join(options)}", script


def _harmless(words: tuple[Word, ...]) -> tuple[Word, ...] | None:
    name = words[0].text
    texts = [word.text if word.exact else UNKNOWN for word in words[:4]]
    if name == "timeout":
        at = 1
        while at < len(texts) and (
            re.fullmatch(r"--signal=[A-Z0-9]+|--kill-after=[0-9.]+[smh]?|--foreground", texts[at])
        ):
            at += 1
        if at + 1 < len(texts) and texts[at] in ("-k", "-s") and re.fullmatch(r"[A-Z0-9.]+[smh]?", texts[at + 1]):
            at += 2
        if at < len(texts) and re.fullmatch(r"[0-9]+(\.[0-9]+)?[smhd]?", texts[at]) and len(words) > at + 1:
            return words[at + 1 :]
        return None
    if name == "time":
        at = 2 if len(texts) > 1 and texts[1] == "-p" else 1
        return words[at:] if len(words) > at and not words[at].text.startswith("-") else None
    if name == "nice":
        if len(texts) > 3 and texts[1] == "-n" and re.fullmatch(r"-?[0-9]+", texts[2]):
            return words[3:]
        if len(texts) > 2 and re.fullmatch(r"-n-?[0-9]+|--adjustment=-?[0-9]+", texts[1]):
            return words[2:]
        return words[1:] if len(words) > 1 and not texts[1].startswith("-") else None
    if name == "stdbuf":
        at = 1
        while at < len(texts) and re.fullmatch(r"-[ioe](0|L|[0-9]+)", texts[at]):
            at += 1
        return words[at:] if 1 < at < len(words) else None
    return None


def _after_prefix(name: str, words: Sequence[str], prefix: _Prefix, found: list[Inner]) -> None:
    """What stands behind the options and operands. Where an option may or may not take a value, both are tried."""
    at = 0
    maybe: int | None = None
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if word.startswith("-") and len(word) > 1:
            if word.startswith(("-S", "--split-string")) and name == "env":
                glued = word.partition("=")[2] if word.startswith("--") else word[2:]
                found.append(Inner(via="env -S", script=" ".join((glued, *words[at + 1 :]))))
            if word in prefix.valued:
                at += 1
            elif "=" not in word and at + 2 < len(words) and maybe is None:
                maybe = at + 2
        elif not (prefix.assignments and re.match(r"[A-Za-z_]\w*=", word)):
            break
        at += 1
    at += prefix.operands
    for start in {at, maybe} if maybe is not None else {at}:
        rest = tuple(words[start:])
        if rest and not rest[0].startswith("-"):
            found.append(Inner(via=name, argv=rest))
            if len(rest) == 1 and name in ("watch", "flock", "parallel", "npm exec", "yarn exec", "hatch run"):
                found.append(Inner(via=name, script=rest[0]))


def _shell(name: str, segment: Segment, found: list[Inner]) -> None:
    """``sh -c SCRIPT [0 1 2…]``, and a shell that reads its script from a here-document, a string or ``echo``."""
    guess = segment.guess
    for at, word in enumerate(guess[1:], 1):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word) and at + 1 < len(guess):
            rest = guess[at + 1 :]
            while len(rest) > 1 and rest[0].startswith("-"):
                rest = rest[1:]
            values = {str(number): value for number, value in enumerate(rest[1:])}
            values["@"] = values["*"] = " ".join(rest[2:])
            found.append(Inner(via=f"{name} {word}", script=rest[0], values=values))
            return
    _from_input(name, segment, found)


def _from_input(name: str, segment: Segment, found: list[Inner]) -> None:
    """The script that a shell is given on its standard input."""
    found.extend(
        Inner(via=f"{name} <<", script=redirect.target.text)
        for redirect in segment.redirects
        if redirect.operator in ("<<", "<<<") and redirect.target.text.strip(UNKNOWN)
    )
    if segment.upstream and (text := _printed(segment.upstream[-1])) is not None:
        found.append(Inner(via=f"| {name}", script=text))


def _printed(guess: tuple[str, ...]) -> str | None:
    """What ``echo`` or ``printf`` with known words prints."""
    name = guess[0].rsplit("/", 1)[-1] if guess else ""
    if name == "echo":
        words = guess[1:]
        while words and re.fullmatch(r"-[neE]+", words[0]):
            words = words[1:]
        return printf_escapes(" ".join(words))
    if name == "printf" and len(guess) > 1:
        text = guess[1]
        for value in guess[2:]:
            text = text.replace("%s", value, 1).replace("%b", value, 1)
        return printf_escapes(text)
    return None


def _values(guess: Sequence[str], options: tuple[str, ...]) -> list[tuple[str, str]]:
    """The values of these options, in any of their spellings: apart, after ``=``, or glued to a short one."""
    found: list[tuple[str, str]] = []
    for at, word in enumerate(guess[1:], 1):
        for option in options:
            if word == option and at + 1 < len(guess):
                found.append((option, guess[at + 1]))
            elif option.startswith("--") and word.startswith(option + "="):
                found.append((option, word[len(option) + 1 :]))
            elif not option.startswith("--") and len(option) == 2 and word.startswith(option) and len(word) > 2:
                found.append((option, word[2:]))
            elif (
                len(option) == 2
                and option[1].isalpha()
                and re.fullmatch(rf"-[a-zA-Z]+{option[1]}", word)
                and at + 1 < len(guess)
            ):
                found.append((option, guess[at + 1]))
    return found


def _find(guess: tuple[str, ...], found: list[Inner]) -> None:
    """``-exec … ;`` and its three sisters, and what ``{}`` stands for as far as it is known."""
    for at, word in enumerate(guess):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            rest = list(guess[at + 1 :])
            for end, part in enumerate(rest):
                if part in (";", "+"):
                    rest = rest[:end]
                    break
            if rest:
                found.append(Inner(via=f"find {word}", argv=tuple(rest)))


def _fd(guess: tuple[str, ...], found: list[Inner]) -> None:
    for at, word in enumerate(guess):
        if word in ("-x", "-X", "--exec", "--exec-batch") and at + 1 < len(guess):
            found.append(Inner(via=f"fd {word}", argv=guess[at + 1 :]))


def _joined(guess: tuple[str, ...], found: list[Inner]) -> None:
    """``eval a b``, ``watch a b``: the words become one script."""
    words = list(guess[1:])
    if guess[0].endswith("watch"):
        while words and words[0].startswith("-"):
            taken = 2 if words[0] in ("-n", "--interval") else 1
            words = words[taken:]
    if words:
        found.append(Inner(via=guess[0], script=" ".join(words)))


def _trap(guess: tuple[str, ...], found: list[Inner]) -> None:
    found.extend(Inner(via="trap", script=word) for word in guess[1:2])


def _alias(guess: tuple[str, ...], found: list[Inner]) -> None:
    found.extend(
        Inner(via=f"alias {word.split('=', 1)[0]}", script=word.split("=", 1)[1]) for word in guess[1:] if "=" in word
    )


def _git(guess: tuple[str, ...], found: list[Inner]) -> None:
    """Values of ``-c`` that git runs, filters of ``filter-branch``, and ``submodule foreach``."""
    for at, word in enumerate(guess[1:], 1):
        following = guess[at + 1] if at + 1 < len(guess) else ""
        if word == "-c" and "=" in following:
            value = following.split("=", 1)[1]
            found.append(Inner(via="git -c", script=value.removeprefix("!")))
        elif word.split("=", 1)[0] in _GIT_SCRIPT_OPTIONS:
            found.append(
                Inner(via=f"git {word.split('=', 1)[0]}", script=word.split("=", 1)[1] if "=" in word else following)
            )
        elif word == "foreach":
            rest = [part for part in guess[at + 1 :] if part != "--recursive"]
            found.append(Inner(via="git foreach", script=" ".join(rest)))
        elif word.startswith("!"):
            found.append(Inner(via="git alias", script=word[1:]))


def _cmake(guess: tuple[str, ...], found: list[Inner]) -> None:
    """``cmake -E env|time COMMAND`` and the file commands of ``cmake -E``."""
    if "-E" in guess:
        rest = guess[guess.index("-E") + 1 :]
        if rest and rest[0] in ("env", "time"):
            found.append(
                Inner(via=f"cmake -E {rest[0]}", argv=tuple(word for word in rest[1:] if not re.match(r"-|\w+=", word)))
            )
    _test_command(guess, found)


def _test_command(guess: tuple[str, ...], found: list[Inner]) -> None:
    for at, word in enumerate(guess):
        if word in _TEST_COMMANDS and at + 1 < len(guess):
            found.append(Inner(via=f"{guess[0]} {word}", argv=guess[at + 1 :]))


def _remote(guess: tuple[str, ...], found: list[Inner]) -> None:
    """``ssh HOST COMMAND…``: it runs elsewhere, and is looked at all the same."""
    rest = list(guess[1:])
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if re.fullmatch(r"-[bcDEeFIiJLlmOopQRSWw]", rest[0]) else rest[1:]
    if len(rest) > 1:
        found.append(Inner(via="ssh", script=" ".join(rest[1:])))


def _container(guess: tuple[str, ...], found: list[Inner]) -> None:
    """``docker run|exec … COMMAND``: where the image's name ends is not known, so a shell or ``rm`` is looked for."""
    for at, word in enumerate(guess[2:], 2):
        if word.rsplit("/", 1)[-1] in SHELLS | {"chroot", "nsenter", "rm"}:
            found.append(Inner(via=f"{guess[0]} {guess[1]}", argv=guess[at:]))
            return


_SPECIAL: dict[str, Callable[[tuple[str, ...], list[Inner]], None]] = {
    "find": _find,
    "fd": _fd,
    "fdfind": _fd,
    "eval": _joined,
    "watch": _joined,
    "trap": _trap,
    "alias": _alias,
    "git": _git,
    "cmake": _cmake,
    "ctest": _test_command,
    "ssh": _remote,
    "docker": _container,
    "podman": _container,
}
_KNOWN = frozenset((".", "source", *_PREFIXES, *(name for name, _ in _RUNNERS), *SHELLS, *_SCRIPT_OPTIONS, *_SPECIAL))
"""Every program that may run another, as far as is known here."""
