"""Reading secrets, sending files away, and writing where it takes effect later or for others."""

from __future__ import annotations

from collections.abc import Iterator

from bubbles.controller.policy.blacklist.devices import mentioned
from bubbles.controller.policy.blacklist.finding import Call, Hit, Table, every, high_risk
from bubbles.controller.policy.blacklist.options import PLAIN, shape
from bubbles.controller.policy.blacklist.sensitive import CLUES, obeyed, paths_in, secret
from bubbles.controller.policy.shell.reading import UNKNOWN, Redirect

_SPEAK = frozenset("echo printf : true false export declare typeset local readonly alias cd pushd".split())
"""Words given to these are only words."""
_LOOK = frozenset("ls stat test [ [[ file du find tree which type basename dirname realpath readlink ssh-add".split())
"""These tell that a file is there, not what is in it."""
_READ = _LOOK | frozenset(
    "cat head tail less more bat batcat grep egrep fgrep rg ag ack wc diff cmp sort uniq cut nl od xxd hexdump strings"
    " md5sum sha1sum sha256sum sha512sum cksum b2sum source . jq yq column tac rev fold tr comm paste sdiff".split()
)
"""These write nowhere, as far as their operands go."""
_SEARCH = frozenset("grep egrep fgrep rg ag ack zgrep".split())
_GREP = shape("efmABCgtTd", "", "regexp file include exclude exclude-dir glob type max-count context color")
_LOGIN = frozenset("ssh scp sftp mosh ssh-copy-id autossh".split())


def words_of(call: Call) -> Iterator[str]:
    """The arguments that may be paths: not the pattern of a search, a commit message, or the key to log in with."""
    if call.program in _SEARCH:
        options = _GREP.take(call.args)
        yield from options.of("f", "file")
        yield from options.operands[0 if options.has("e", "f", "regexp", "file") else 1 :]
        return
    before = ""
    for arg in call.args:
        skipped = (call.program in _LOGIN and before == "-i") or (
            call.program == "git" and (before == "--message" or (before[:1] == "-" and before[-1:] == "m"))
        )
        if not skipped:
            yield arg
        before = arg


def named(call: Call) -> Iterator[Hit]:
    """Files of note among the arguments of any program."""
    if call.program in _SPEAK:
        return
    directories, ground = call.segment.directories, call.ground
    for word in words_of(call):
        if word.endswith(("docker.sock", "containerd.sock")):
            yield high_risk(f"{call.program} talks to the container daemon of the machine")
        for path in paths_in(word):
            yield from mentioned(call, path)
            if call.program not in _LOOK and (what := secret(path, directories, ground)) is not None:
                yield high_risk(f"{call.program} reaches {what} ({path})".replace(UNKNOWN, "…"))
            elif call.program not in _READ and (why := obeyed(path, directories, ground)) is not None:
                yield high_risk(f"{call.program} is given {path}, {why}".replace(UNKNOWN, "…"))


def redirected(call: Call, redirect: Redirect) -> Iterator[Hit]:
    target, directories, ground = redirect.target.text, call.segment.directories, call.ground
    if redirect.operator in ("<<", "<<-", "<<<") or target.isdigit() or target in ("-", "/dev/null"):
        return
    if (what := secret(target, directories, ground)) is not None:
        yield high_risk(f"a redirect reaches {what} ({target})".replace(UNKNOWN, "…"))
    elif redirect.operator not in ("<", "<&"):
        yield from _written(call, target, "a redirect")


def _written(call: Call, path: str, deed: str) -> Iterator[Hit]:
    directories, ground = call.segment.directories, call.ground
    if (why := obeyed(path, directories, ground, written=True)) is not None:
        yield high_risk(f"{deed} writes to {path}, {why}".replace(UNKNOWN, "…"))
    elif not path.startswith(("/dev/", "/proc/", "/sys/")) and (place := ground.system(path, directories)) is not None:
        yield high_risk(f"{deed} writes to {place}, a part of the system")


def _copies(call: Call) -> Iterator[Hit]:
    options = shape("tSmogf", "recursive archive", "target-directory suffix mode owner group").take(call.args)
    for target in options.of("t", "target-directory") or options.operands[-1:]:
        if ":" not in target:
            yield from _written(call, target, call.program)
    if options.has("r", "R", "a", "recursive", "archive") and call.program != "ln":
        yield from _home_of(call, options.operands[:-1])


def _packs(call: Call) -> Iterator[Hit]:
    options = shape("CTX").take(call.args)
    bundle = call.args[0] if call.args else ""
    extracts = options.has("x", "extract", "t", "list") or (
        bundle[:1] != "-" and "x" in bundle and call.program != "zip"
    )
    if not extracts:
        yield from _home_of(call, options.operands)


def _home_of(call: Call, operands: tuple[str, ...]) -> Iterator[Hit]:
    for operand in operands:
        worth = None if UNKNOWN in operand else call.ground.worth(operand, call.segment.directories)
        if worth is not None and worth.holds_home:
            yield high_risk(f"{call.program} takes a copy of {worth.name}, with all its secrets")


def _writes_operands(call: Call) -> Iterator[Hit]:
    for operand in PLAIN.take(call.args).operands:
        yield from _written(call, operand, call.program)


def _edits(call: Call) -> Iterator[Hit]:
    if any(
        arg.startswith(("-i", "--in-place")) or (arg[:1] == "-" and arg[1:2] != "-" and "i" in arg) for arg in call.args
    ):
        yield from _writes_operands(call)


def _dd(call: Call) -> Iterator[Hit]:
    for arg in call.args:
        if arg.startswith("of="):
            yield from _written(call, arg[3:], "dd")


_CURL = shape(
    "AbcCdDeEFHhKmoPQrTtuUwxXyYz",
    "",
    "data data-ascii data-binary data-raw data-urlencode form form-string upload-file output output-dir"
    " header request json user url config proxy cookie cookie-jar dump-header unix-socket max-time retry cacert cert",
)
_WGET = shape(
    "OPioaUQtTwlADRIXe", "", "output-document directory-prefix input-file post-file body-file post-data header"
)
_NEAR = ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")


def _curl(call: Call) -> Iterator[Hit]:
    options = _CURL.take(call.args)
    for target in options.of("o", "output", "D", "dump-header", "c", "cookie-jar", "output-dir"):
        yield from _written(call, target, "curl")
    bodies = options.of("d", "data", "data-ascii", "data-binary", "data-urlencode", "json")
    sent = [
        body.rpartition("@")[2]
        for body in bodies
        if body.startswith("@") or "=@" in body or body.rfind("@") > 0 > body.find("=")
    ]
    sent += [
        part.partition("=")[2][1:].partition(";")[0]
        for part in options.of("F", "form")
        if part.partition("=")[2][:1] in "@<" and "=" in part
    ]
    sent += options.of("T", "upload-file")
    addresses = [*options.operands, *options.of("url")]
    near = bool(addresses) and all(_host(address).startswith(_NEAR) for address in addresses)
    for path in sent:
        if not near or not (path == "-" or call.ground.within_roots(path, call.segment.directories)):
            yield high_risk(f"curl sends {'its input' if path == '-' else path} away".replace(UNKNOWN, "…"))


def _host(address: str) -> str:
    return address.partition("://")[2] or address


def _wget(call: Call) -> Iterator[Hit]:
    options = _WGET.take(call.args)
    for target in options.of("O", "output-document", "P", "directory-prefix", "o", "a"):
        yield from _written(call, target, "wget")
    for path in options.of("post-file", "body-file"):
        yield high_risk(f"wget sends {path} away".replace(UNKNOWN, "…"))


def _netcat(call: Call) -> Iterator[Hit]:
    for redirect in call.segment.redirects:
        if redirect.operator == "<":
            yield high_risk(f"{call.program} sends {redirect.target.text} away".replace(UNKNOWN, "…"))


def _ssh_keygen(call: Call) -> Iterator[Hit]:
    if shape("fNPCtbImsV").take(call.args).has("y", "p"):
        yield high_risk("ssh-keygen opens a private key")


_TELLS: dict[str, tuple[tuple[str, ...], ...]] = {
    "gh": (("auth", "token"), ("secret",)),
    "glab": (("auth", "token"),),
    "gcloud": (("auth", "print-access-token"), ("auth", "print-identity-token"), ("secrets", "versions", "access")),
    "aws": (("configure", "get"), ("configure", "export-credentials"), ("secretsmanager",), ("sts",), ("iam",)),
    "az": (("account", "get-access-token"), ("keyvault",)),
    "security": (("find-generic-password",), ("find-internet-password",), ("dump-keychain",), ("export",)),
    "secret-tool": (("lookup",), ("search",)),
    "pass": ((),),
    "op": (("read",), ("item", "get"), ("document",)),
    "bw": (("get",), ("list",), ("export",)),
    "vault": (("read",), ("kv",), ("token",)),
    "kubectl": (("get", "secret"), ("get", "secrets"), ("describe", "secret"), ("config", "view")),
    "keyctl": (("read",), ("print",), ("pipe",)),
    "getent": (("shadow",), ("gshadow",)),
    "doppler": (("secrets",),),
    "heroku": (("auth:token",), ("config",)),
}


def _tells(call: Call) -> Iterator[Hit]:
    operands = PLAIN.take(call.args).operands
    for verbs in _TELLS[call.program]:
        if operands[: len(verbs)] == verbs:
            yield high_risk(f"{' '.join((call.program, *verbs))} tells passwords or tokens")
            return


def _gpg(call: Call) -> Iterator[Hit]:
    if any(arg.startswith(("--export-secret", "--delete-secret")) for arg in call.args):
        yield high_risk("gpg reaches private keys")


TABLE: Table = {
    **every("cp mv install ln rsync scp", _copies),
    **every("tar gtar bsdtar zip 7z 7za", _packs),
    **every("tee touch sponge truncate ed ex vi vim nvim nano emacs code patch mkdir", _writes_operands),
    **every("sed gsed perl ruby", _edits),
    "dd": _dd,
    "curl": _curl,
    "wget": _wget,
    **every("nc ncat netcat", _netcat),
    "ssh-keygen": _ssh_keygen,
    **dict.fromkeys(_TELLS, _tells),
    **every("gpg gpg2", _gpg),
}


def worth_a_look(text: str) -> bool:
    """Whether the words, joined, hold any clue of what this module knows."""
    return CLUES.search(text) is not None
