"""Programs that do, or start, what their arguments say and that a reader of shell text takes for plain programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from bubbles.controller.policy.blacklist.deletion import behind_xargs
from bubbles.controller.policy.blacklist.finding import Call
from bubbles.controller.policy.blacklist.remote import SHELLS

_RUNS_ITS_ARGUMENTS = re.compile(
    r"""(?:^|[;&|({\n]|\b(?:exec|command|env|nohup|sudo|then|do|else|time)\b)\s{0,9}["']?\$\{?[@*0-9]"""
)
Argv = tuple[str, ...]
_CMAKE_TOOLS: dict[str, Argv] = {
    "rm": ("rm",),
    "remove": ("rm",),
    "remove_directory": ("rm", "-r"),
    "copy": ("cp",),
    "copy_if_different": ("cp",),
    "copy_directory": ("cp", "-r"),
    "rename": ("mv",),
    "cat": ("cat",),
    "tar": ("tar",),
    "touch": ("touch",),
    "create_symlink": ("ln", "-s"),
    "create_hardlink": ("ln",),
    "make_directory": ("mkdir",),
    "time": (),
}


def _cmake(args: Argv) -> Iterator[Argv]:
    if "-E" not in args:
        return
    tool, *rest = args[args.index("-E") + 1 :] or ("",)
    if tool == "env":
        yield tuple(rest[next((i for i, arg in enumerate(rest) if "=" not in arg and arg[:1] != "-"), len(rest)) :])
    elif tool == "chdir":
        yield tuple(rest[1:])
    elif tool in _CMAKE_TOOLS:
        yield (*_CMAKE_TOOLS[tool], *rest)


def _ctest(args: Argv) -> Iterator[Argv]:
    if "--test-command" in args:
        yield args[args.index("--test-command") + 1 :]


def _box(args: Argv) -> Iterator[Argv]:
    yield args


def _shell(args: Argv) -> Iterator[Argv]:
    """``sh -c '$0 "$@"' rm -rf /``: what follows the script is given to it, and may be its command."""
    for index, arg in enumerate(args):
        if arg[:1] == "-" and arg[1:2] != "-" and "c" in arg:
            if _RUNS_ITS_ARGUMENTS.search("".join(args[index + 1 : index + 2])):
                yield args[index + 2 :]
                yield args[index + 3 :]
            return


def _xargs(args: Argv) -> Iterator[Argv]:
    yield behind_xargs(args)


def _npx(args: Argv) -> Iterator[Argv]:
    for index, arg in enumerate(args):
        if arg[:1] != "-":
            yield (arg.partition("@")[0] or arg, *args[index + 1 :])
            return


def _npm(args: Argv) -> Iterator[Argv]:
    if args[:1] in (("dlx",), ("exec",), ("x",)):
        yield from _npx(args[1:])


def _docker(args: Argv) -> Iterator[Argv]:
    """``docker run … alpine rm -rf /host``: a container may have been given the machine."""
    if "chroot" in args:
        yield args[args.index("chroot") :]


CARRIERS: dict[str, Callable[[Argv], Iterator[Argv]]] = {
    "cmake": _cmake,
    "ctest": _ctest,
    **dict.fromkeys(("busybox", "toybox"), _box),
    **dict.fromkeys(SHELLS, _shell),
    "xargs": _xargs,
    **dict.fromkeys(("npx", "bunx", "pnpx"), _npx),
    **dict.fromkeys(("pnpm", "yarn", "npm", "bun"), _npm),
    **dict.fromkeys(("docker", "podman"), _docker),
}


def carried(call: Call) -> Iterator[Argv]:
    """Each command that ``call`` would, or may, carry out."""
    yield from (argv for argv in CARRIERS[call.program](call.args) if argv)
