"""git and gh: what cannot be undone, what others have to live with, and settings that name programs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

from bubbles.controller.policy.blacklist.finding import Call, Hit, Table, destructive, high_risk
from bubbles.controller.policy.blacklist.options import PLAIN, Options, shape
from bubbles.controller.policy.shell.reading import UNKNOWN

_GLOBAL_VALUED = frozenset("-C -c --git-dir --work-tree --namespace --super-prefix --config-env --exec-path".split())
_NAMES_A_PROGRAM = re.compile(
    r"core\.(?:fsmonitor|hookspath|sshcommand|pager|editor|askpass|gitproxy|alternaterefscommand|attributesfile)|alias\..+"
    r"|credential(?:\..+)?\.helper|diff\.(?:external|.+\.(?:command|textconv))|filter\..+\.(?:clean|smudge|process)"
    r"|gpg\.(?:.+\.)?program|merge\..+\.driver|(?:diff|merge)tool\..+\.(?:cmd|path)|sequence\.editor|interactive\.difffilter"
    r"|include(?:if\..+)?\.path|url\..+\.(?:pushinsteadof|insteadof)|pager\..+|remote\..+\.(?:uploadpack|receivepack|vcs)"
    r"|protocol\.(?:.+\.)?allow|man\..+\.cmd|browser\..+\.cmd|init\.templatedir|uploadpack\.packobjectshook|trailer\..+\.\w+",
    re.IGNORECASE,
)
_HARMLESS_VALUES = ("", "cat", "less", "false", "true", "true ", ":", "no", "0")


def _verb(args: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The sub-command and what follows it."""
    position = 0
    while position < len(args) and args[position][:1] == "-":
        position += 1 + (args[position] in _GLOBAL_VALUED and args[position] != "--exec-path")
    return (args[position], args[position + 1 :]) if position < len(args) else ("", ())


def _git(call: Call) -> Iterator[Hit]:
    verb, rest = _verb(call.args)
    if call.args and verb != call.args[0]:
        yield from _overrides(call.args[: len(call.args) - len(rest)])
    if (check := _VERBS.get(verb)) is not None:
        yield from check(rest)


def _overrides(head: tuple[str, ...]) -> Iterator[Hit]:
    for option, value in itertools.pairwise(head):
        if option != "-c":
            continue
        name, _, setting = value.partition("=")
        if _NAMES_A_PROGRAM.fullmatch(name) and setting not in _HARMLESS_VALUES:
            yield high_risk(f"git is told to run another program ({name})")


_PUSH = shape(
    "o", "force force-with-lease force-if-includes mirror delete prune all tags", "push-option repo receive-pack exec"
)


def _push(args: tuple[str, ...]) -> Iterator[Hit]:
    options = _PUSH.take(args)
    if options.has("f", "force", "force-with-lease") or any(one.startswith("+") for one in options.operands[1:]):
        yield high_risk("git push --force overwrites what others have")
    if options.has("d", "delete", "mirror", "prune") or any(
        one.startswith(":") and one != ":" for one in options.operands[1:]
    ):
        yield high_risk("git push deletes branches or tags of others")
    if options.has("receive-pack", "exec"):
        yield high_risk("git push is told to run another program")


def _fetch(args: tuple[str, ...]) -> Iterator[Hit]:
    yield from _connected(shape("jo", "", "upload-pack depth").take(args))


def _clone(args: tuple[str, ...]) -> Iterator[Hit]:
    options = shape("joucb", "", "upload-pack config depth branch origin template reference").take(args)
    yield from _connected(options)
    yield from _overrides(tuple(part for value in options.of("c", "config") for part in ("-c", value)))


def _connected(options: Options) -> Iterator[Hit]:
    if (
        options.has("upload-pack")
        or ("u" in options.given and options.of("u"))
        or any(one.startswith("ext::") for one in options.operands)
    ):
        yield high_risk("git is told to run another program (--upload-pack or ext::)")


def _flagged(names: str, reason: str, *, longs: str = "") -> Callable[[tuple[str, ...]], Iterator[Hit]]:
    flags = names.split()
    taker = shape("", longs or " ".join(name for name in flags if len(name) > 1))

    def check(args: tuple[str, ...]) -> Iterator[Hit]:
        if taker.take(args).has(*flags):
            yield high_risk(reason)

    return check


def _always(reason: str) -> Callable[[tuple[str, ...]], Iterator[Hit]]:
    def check(args: tuple[str, ...]) -> Iterator[Hit]:
        if args[:1] not in (("-h",), ("--help",)):
            yield destructive(reason)

    return check


def _whole(options: Options) -> bool:
    return any(one in (".", "./", ":/", "*", ":", "..") or one == UNKNOWN for one in options.operands)


def _checkout(args: tuple[str, ...]) -> Iterator[Hit]:
    options = shape("bB", "force ours theirs").take(args)
    if options.has("f", "force") or _whole(options):
        yield high_risk("git checkout throws uncommitted work away")


def _restore(args: tuple[str, ...]) -> Iterator[Hit]:
    options = shape("s", "staged worktree", "source").take(args)
    if _whole(options) and (options.has("W", "worktree") or not options.has("S", "staged")):
        yield high_risk("git restore throws uncommitted work away")


def _stash(args: tuple[str, ...]) -> Iterator[Hit]:
    if args[:1] in (("drop",), ("clear",)):
        yield high_risk(f"git stash {args[0]} throws work away")


def _reflog(args: tuple[str, ...]) -> Iterator[Hit]:
    if args[:1] in (("expire",), ("delete",)):
        yield high_risk(f"git reflog {args[0]} forgets how to get lost work back")


def _gc(args: tuple[str, ...]) -> Iterator[Hit]:
    if any(arg.startswith("--prune=") and arg != "--prune=never" for arg in args):
        yield high_risk("git gc --prune forgets lost work for good")


def _config(args: tuple[str, ...]) -> Iterator[Hit]:
    options = shape("f", "", "file blob type default").take(args)
    looks = options.has("l", "list", "get", "get-all", "get-regexp", "get-urlmatch", "show-origin", "name-only")
    operands = options.operands[1:] if options.operands[:1] in (("set",), ("add",), ("unset",)) else options.operands
    if looks or operands[:1] in (("get",), ("list",)) or (len(operands) < 2 and not options.has("e", "edit", "unset")):
        return
    if options.has("global", "system", "e", "edit", "f", "file"):
        yield high_risk("git config changes settings of all repositories")
    elif operands and _NAMES_A_PROGRAM.fullmatch(operands[0]):
        yield high_risk(f"git config sets a program that git will run ({operands[0]})")


def _rm(args: tuple[str, ...]) -> Iterator[Hit]:
    options = shape("", "cached force").take(args)
    if options.has("r") and _whole(options) and not options.has("cached"):
        yield high_risk("git rm -r of the whole tree")


def _credential(args: tuple[str, ...]) -> Iterator[Hit]:
    if args[:1] in (("fill",), ("get",)):
        yield high_risk("git credential tells passwords or tokens")


_VERBS: dict[str, Callable[[tuple[str, ...]], Iterator[Hit]]] = {
    "push": _push,
    **dict.fromkeys("fetch pull ls-remote submodule".split(), _fetch),
    "clone": _clone,
    "reset": _flagged(
        "hard merge", "git reset --hard throws commits or uncommitted work away", longs="hard merge mixed soft keep"
    ),
    "clean": _flagged(
        "f force", "git clean deletes files that git does not know", longs="force dry-run interactive exclude"
    ),
    "branch": _flagged("D", "git branch -D deletes work that was not merged"),
    "checkout": _checkout,
    "switch": _flagged("f force discard-changes C force-create", "git switch throws uncommitted work away"),
    "restore": _restore,
    "stash": _stash,
    "reflog": _reflog,
    "gc": _gc,
    "prune": _flagged("expire", "git prune forgets lost work for good"),
    "config": _config,
    "rm": _rm,
    "update-ref": _flagged("d delete stdin", "git update-ref deletes references"),
    "filter-branch": _always("git filter-branch rewrites the whole history"),
    "filter-repo": _always("git filter-repo rewrites the whole history"),
    "credential": _credential,
}


def _gh(call: Call) -> Iterator[Hit]:
    operands = PLAIN.take(call.args).operands
    if operands[:2] == ("repo", "delete"):
        yield destructive("gh repo delete deletes a repository for good")
    elif operands[1:2] == ("delete",) or operands[:2] == ("repo", "archive"):
        yield high_risk(f"{call.program} {operands[0]} {operands[1]} deletes something for others")
    elif operands[:1] == ("api",) and "DELETE" in shape("XHfFqt", "", "method").take(call.args).of("X", "method"):
        yield high_risk("gh api deletes something for others")


def _filter_repo(call: Call) -> Iterator[Hit]:
    yield from _git(call.of("git", "filter-repo", *call.args))


TABLE: Table = {"git": _git, "gh": _gh, "glab": _gh, "git-filter-repo": _filter_repo}
