"""Code that comes from elsewhere: piped into a shell or an interpreter, fetched, decoded, or sent over the network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bubbles.controller.policy.blacklist.code import decoded, signs
from bubbles.controller.policy.blacklist.deletion import behind_xargs
from bubbles.controller.policy.blacklist.finding import Call, Hit, Table, destructive, every, high_risk
from bubbles.controller.policy.blacklist.options import shape
from bubbles.controller.policy.shell.reading import UNKNOWN

SHELLS = frozenset("sh bash dash zsh ksh mksh ash fish csh tcsh rbash yash posh elvish nu xonsh".split())
_FETCHERS = frozenset("curl wget aria2c fetch lwp-request http https xh httpie nc ncat netcat ftp scp ssh axel".split())
_DECODERS = frozenset(
    "base64 base32 basenc xxd openssl uudecode gpg rev tr gunzip zcat gzip bunzip2 xz od hexdump printf".split()
)


class _Speaker(NamedTuple):
    """How an interpreter is given code."""

    code: str
    """Short options whose value is code."""
    code_longs: tuple[str, ...] = ()
    valued: str = ""
    """Short options with another value, glued or in the next word."""
    glued: str = ""
    """Short options that eat the rest of their word."""
    module: str = ""
    """Short options after which a module runs."""
    verbs: tuple[str, ...] = ()
    """First words after which code follows."""


_PYTHON = _Speaker("c", valued="WXQ", module="m")
_PERL = _Speaker("eE", valued="I", glued="iMm0lxFCdDV")
_NODE = _Speaker("ep", ("eval", "print"), valued="rC")
SPEAKERS: dict[str, _Speaker] = {
    **dict.fromkeys("python pypy ipython micropython jython".split(), _PYTHON),
    "perl": _PERL,
    **dict.fromkeys("ruby jruby".split(), _Speaker("e", valued="IrEC", glued="Kx0W")),
    **dict.fromkeys("node nodejs electron tsx".split(), _NODE),
    "deno": _Speaker("", verbs=("eval",)),
    "bun": _Speaker("ep", ("eval", "print"), valued="r"),
    "php": _Speaker("rBRE", ("run",), valued="cdz"),
    **dict.fromkeys("lua luajit".split(), _Speaker("e", valued="l")),
    "rscript": _Speaker("e"),
    "osascript": _Speaker("e", valued="ls"),
    **dict.fromkeys("pwsh powershell".split(), _Speaker("", verbs=("-c", "-command", "-encodedcommand", "-enc", "-e"))),
    **dict.fromkeys("tclsh expect guile racket julia elixir erl groovy scala".split(), _Speaker("eEc", ("eval",))),
}


class _Spoken(NamedTuple):
    codes: tuple[str, ...]
    script: str | None
    """The script file or module, ``-`` for stdin, None where none is named."""


def _spoken(speaker: _Speaker, args: tuple[str, ...]) -> _Spoken:
    codes: list[str] = []
    position = 0
    while position < len(args):
        word = args[position]
        position += 1
        if word[:1] != "-" or word in ("-", "--"):
            if word.lower() in speaker.verbs:
                return _Spoken((*codes, *args[position : position + 1]), "")
            script = word if word != "--" else args[position] if position < len(args) else None
            return _Spoken(tuple(codes), script)
        if word.lower() in speaker.verbs:
            return _Spoken((*codes, *args[position : position + 1]), "")
        if word[:2] == "--":
            name, equals, value = word[2:].partition("=")
            if name in speaker.code_longs:
                codes.append(value if equals else "".join(args[position : position + 1]))
                position += not equals
            continue
        for index, letter in enumerate(word[1:], 2):
            if letter in speaker.module:
                return _Spoken(tuple(codes), word[index:] or "".join(args[position : position + 1]))
            if letter in speaker.code or letter in speaker.valued:
                value = word[index:] or "".join(args[position : position + 1])
                position += not word[index:]
                if letter in speaker.code:
                    codes.append(value)
                break
            if letter in speaker.glued:
                break
    return _Spoken(tuple(codes), "" if codes else None)


def interpreter(program: str) -> str | None:
    """The name without its version: ``python3.11`` is python."""
    name = program.rstrip("0123456789.")
    return name if name in SPEAKERS else None


def _unknown(text: str) -> bool:
    """Nothing is known of what this text begins with: a substitution, ``<(…)``."""
    return text.lstrip(" \t\n\"'").removeprefix("/dev/fd/").startswith(UNKNOWN)


def _origin(call: Call) -> str:
    names = {argv[0].rpartition("/")[2] for argv in call.segment.upstream if argv}
    if names & _FETCHERS:
        return "a download"
    if names & _DECODERS:
        return "decoded text"
    return "the output of " + (call.segment.upstream[-1] or ("a command",))[0].replace(UNKNOWN, "…")


def _from_stdin(call: Call, what: str) -> Iterator[Hit]:
    if call.segment.upstream:
        yield high_risk(f"{_origin(call)} is piped into {what}")
        for word in call.segment.upstream[-1][1:]:
            yield from signs(word)
    for redirect in call.segment.redirects:
        target = redirect.target.text
        if redirect.operator in ("<", "<<<", "<<") and _unknown(target):
            yield high_risk(f"{what} runs text that is not known")


def _redirected_bodies(call: Call) -> tuple[str, ...]:
    return tuple(one.target.text for one in call.segment.redirects if one.operator in ("<<", "<<-", "<<<"))


_SHELL = shape("oO", "", "rcfile init-file")


def shell(call: Call) -> Iterator[Hit]:
    options = _SHELL.take(call.args)
    what = f"a shell ({call.program})"
    if any("/dev/tcp/" in one.target.text or "/dev/udp/" in one.target.text for one in call.segment.redirects):
        yield destructive("a shell is handed over to the network")
    script = options.operands[0] if options.operands else None
    if options.has("c", "command"):
        if script is None or _unknown(script):
            yield high_risk(f"{what} runs text that is not known")
    elif script is None or script in ("-", "/dev/stdin", "/proc/self/fd/0", "/dev/fd/0") or options.has("s"):
        yield from _from_stdin(call, what)
    elif _unknown(script):
        yield high_risk(f"{what} runs a script that is not known")


def interpret(call: Call) -> Iterator[Hit]:
    speaker = SPEAKERS[interpreter(call.program) or call.program]
    codes, script = _spoken(speaker, call.args)
    what = f"an interpreter ({call.program})"
    for code in codes:
        if _unknown(code):
            yield high_risk(f"{what} runs text that is not known")
        yield from signs(code)
    if script is None or script in ("-", "/dev/stdin"):
        if not any(arg in ("--version", "-V", "-v", "--help", "-h", "--test") for arg in call.args):
            yield from _from_stdin(call, what)
        for body in _redirected_bodies(call):
            yield from signs(body)
    elif _unknown(script) and not script.strip("/devf" + UNKNOWN):
        yield high_risk(f"{what} runs a script that is not known")
    if call.program in ("pwsh", "powershell") and any(
        arg.lower().startswith(("-enc", "-e", "-ec")) for arg in call.args
    ):
        yield high_risk("powershell runs an encoded command")


def _decode(call: Call) -> Iterator[Hit]:
    """The text to decode, where it stands in the command: ``echo … | base64 -d``, ``base64 -d <<< …``."""
    for before in call.segment.upstream[-1:]:
        yield from decoded(" ".join(before[1:]))
    for body in _redirected_bodies(call):
        yield from decoded(body)


def _awk(call: Call) -> Iterator[Hit]:
    for word in call.args:
        yield from signs(word)


def _source(call: Call) -> Iterator[Hit]:
    script = call.args[0] if call.args else ""
    if script in ("/dev/stdin", "/proc/self/fd/0", "/dev/fd/0"):
        yield from _from_stdin(call, "the shell itself")
    elif _unknown(script) and not script.strip("/devf" + UNKNOWN):
        yield high_risk("the shell runs text that is not known (source)")


def _eval(call: Call) -> Iterator[Hit]:
    if any(UNKNOWN in arg for arg in call.args):
        yield high_risk("the shell runs text that is not known (eval)")


def _xargs(call: Call) -> Iterator[Hit]:
    command = behind_xargs(call.args)
    name = command[0].rpartition("/")[2] if command else ""
    if name in SHELLS:
        yield high_risk(f"xargs gives what it reads to a shell ({name})")
    elif (known := interpreter(name)) is not None and _spoken(SPEAKERS[known], command[1:]).codes:
        yield high_risk(f"xargs gives what it reads to an interpreter ({name})")


def _parallel(call: Call) -> Iterator[Hit]:
    if call.segment.upstream and not call.args:
        yield high_risk(f"{_origin(call)} is piped into a shell (parallel)")


def _netcat(call: Call) -> Iterator[Hit]:
    options = shape("pswiqXxIOTVgGb", "", "exec sh-exec lua-exec").take(call.args)
    if options.has("e", "c", "exec", "sh-exec", "lua-exec") and not (options.has("c") and not options.operands):
        yield destructive(f"{call.program} hands a program over to the network")
    for before in call.segment.upstream:
        name = before[0].rpartition("/")[2] if before else ""
        if name in SHELLS:
            yield destructive("a shell is handed over to the network")


def _socat(call: Call) -> Iterator[Hit]:
    if any(arg.upper().startswith(("EXEC:", "SYSTEM:", "SHELL:")) for arg in call.args):
        yield destructive("socat hands a program over to the network")


TABLE: Table = {
    **dict.fromkeys(SHELLS, shell),
    **dict.fromkeys(SPEAKERS, interpret),
    **every("awk gawk mawk nawk", _awk),
    **every("source .", _source),
    "eval": _eval,
    **every("base64 basenc xxd openssl uudecode", _decode),
    "xargs": _xargs,
    "parallel": _parallel,
    **every("nc ncat netcat nc.openbsd nc.traditional", _netcat),
    "socat": _socat,
}
