"""Deleting, emptying and mirroring over: rm and its kin, find and fd, rsync, tar."""

from __future__ import annotations

from collections.abc import Iterator

from bubbles.controller.policy.blacklist.finding import Call, Hit, Table, destructive, every, high_risk
from bubbles.controller.policy.blacklist.ground import Worth, whole
from bubbles.controller.policy.blacklist.options import PLAIN, shape
from bubbles.controller.policy.shell.reading import UNKNOWN

_RM = shape(longs="recursive force dir one-file-system no-preserve-root interactive verbose")
_SHRED = shape("ns", "remove zero force verbose exact", "iterations size random-source")
_RSYNC = shape(
    "efMTB",
    "delete delete-before delete-during delete-delay delete-after delete-excluded remove-source-files force archive",
    "rsh filter exclude include exclude-from include-from files-from log-file password-file port temp-dir chmod chown",
)
_TAR = shape("fCTXbHVI", "remove-files create extract append update", "file directory files-from exclude exclude-from")
_CHMOD = shape(longs="recursive changes silent quiet verbose dereference preserve-root no-preserve-root reference")
_XARGS = shape("aEILnPsd", "", "arg-file delimiter max-args max-procs max-lines replace max-chars")
_FD = frozenset(("-x", "-X", "--exec", "--exec-batch"))
_FIND_RUNS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
_FIND_NARROWS = frozenset(
    "-name -iname -path -ipath -wholename -iwholename -lname -ilname -regex -iregex -mtime -mmin -atime -amin -ctime"
    " -cmin -newer -anewer -cnewer -size -empty -inum -samefile -user -group -perm -links -nouser -nogroup".split()
)
_REMOVERS = frozenset("rm unlink shred srm wipe rmdir truncate trash trash-put".split())


def _hit(worth: Worth, deed: str) -> Hit:
    return (destructive if worth.vital else high_risk)(f"{deed} {worth.name}")


def of_operands(call: Call, operands: tuple[str, ...], deed: str) -> Iterator[Hit]:
    """A hit for each operand that must not be lost with all below it."""
    for operand in operands:
        worth = call.ground.worth(operand, call.segment.directories)
        if worth is not None:
            yield _hit(worth, deed)


def _rm(call: Call) -> Iterator[Hit]:
    options = _RM.take(call.args)
    if options.has("r", "R", "recursive") or options.guessed:
        operands = options.operands
        if options.guessed and not options.has("r", "R", "recursive"):
            operands = tuple(operand for operand in operands if not operand.startswith(UNKNOWN))
        yield from of_operands(call, operands, "rm -r of")
    else:
        yield from _rm_of_files(call, options.operands)
    if options.has("no-preserve-root"):
        yield destructive("rm without its guard for the root directory (--no-preserve-root)")


def _rimraf(call: Call) -> Iterator[Hit]:
    yield from of_operands(call, PLAIN.take(call.args).operands, f"{call.program} of")


def _rm_of_files(call: Call, operands: tuple[str, ...]) -> Iterator[Hit]:
    """Without -r directories stay; a pattern may still take every file in one."""
    for operand in operands:
        directories = call.segment.directories
        if (emptied := whole(operand)) != operand and UNKNOWN not in operand:
            worth = call.ground.worth(emptied, directories)
            if worth is not None:
                yield (destructive if worth.holds_home else high_risk)(f"rm of every file in {worth.name}")
        elif (place := call.ground.system(operand, directories)) is not None:
            yield high_risk(f"rm of {place}, a part of the system")


def rm_of_anything(call: Call) -> Iterator[Hit]:
    """For a program that is not known: what its arguments would do, were it rm."""
    options = _RM.take(call.args)
    if options.has("r", "R", "recursive"):
        forced = options.has("f", "force")
        for hit in of_operands(call, options.operands, "what may be rm -r of"):
            yield hit if forced else high_risk(hit.reason)


def _shred(call: Call) -> Iterator[Hit]:
    for operand in _SHRED.take(call.args).operands:
        if call.ground.within_roots(operand, call.segment.directories):
            yield high_risk(f"{call.program} destroys {operand} beyond recovery")
        else:
            yield destructive(f"{call.program} destroys {operand}, outside the project, beyond recovery")


def _mv(call: Call) -> Iterator[Hit]:
    operands = shape("tS", "", "target-directory suffix").take(call.args).operands
    if len(operands) > 1 and operands[-1].rstrip("/") == "/dev/null":
        yield destructive(f"mv of {operands[0]} onto /dev/null, which loses it")
    yield from (hit for hit in of_operands(call, operands[:-1], "mv of") if hit.tier > 1)


def _ownership(call: Call) -> Iterator[Hit]:
    options = _CHMOD.take(call.args)
    operands = options.operands[1:] or options.operands
    if options.has("R", "recursive"):
        yield from of_operands(call, operands, f"{call.program} -R of")
        return
    for operand in operands:
        worth = call.ground.worth(operand, call.segment.directories)
        if worth is not None and worth.vital and not call.ground.within_roots(operand, call.segment.directories):
            yield high_risk(f"{call.program} of {worth.name}")


def _mode(call: Call) -> Iterator[Hit]:
    yield from _ownership(call)
    mode = next((arg for arg in call.args if arg[:1] != "-"), "")
    if (mode.isdigit() and len(mode.lstrip("0")) == 4 and mode.lstrip("0")[0] in "4567") or (
        "s" in mode and "+" in mode and not mode.startswith("/")
    ):
        yield high_risk("chmod lets a program run with its owner's rights (setuid)")


def _find(call: Call) -> Iterator[Hit]:
    args = call.args
    if "-delete" in args or any(
        one in _FIND_RUNS and _removes(args[index + 1 : index + 2]) for index, one in enumerate(args)
    ):
        yield from _found(call, args, "find deletes")


def _found(call: Call, args: tuple[str, ...], deed: str) -> Iterator[Hit]:
    """``deed`` is done to all that find, given ``args``, finds."""
    narrow = any(
        one in _FIND_NARROWS and args[index + 1 : index + 2] and args[index + 1].strip("*?.")
        for index, one in enumerate(args)
    )
    for start in _find_starts(args):
        worth = call.ground.worth(start, call.segment.directories)
        if worth is None:
            continue
        if narrow and (not worth.vital or call.ground.within_roots(start, call.segment.directories)):
            yield high_risk(f"{deed} files by pattern in {worth.name}")
        else:
            yield _hit(worth, f"{deed} files in")


def _find_starts(args: tuple[str, ...]) -> tuple[str, ...]:
    starts = []
    for arg in args:
        if arg in ("-H", "-L", "-P") or arg.startswith("-O"):
            continue
        if arg[:1] in ("-", "(", "!"):
            break
        starts.append(arg)
    return tuple(starts) or (".",)


def _removes(argv: tuple[str, ...]) -> bool:
    return bool(argv) and argv[0].rpartition("/")[2] in _REMOVERS


def _fd(call: Call) -> Iterator[Hit]:
    args = call.args
    for index, arg in enumerate(args):
        name, _, glued = arg.partition("=")
        program = args[index + 1 : index + 2] if not glued else (glued,)
        if name in _FD and _removes(program):
            yield destructive("fd deletes every file that it finds")


def _xargs(call: Call) -> Iterator[Hit]:
    command = behind_xargs(call.args)
    if not _removes(command):
        return
    yield high_risk(f"xargs deletes whatever it is given ({command[0].rpartition('/')[2]})")
    for before in call.segment.upstream[-1:]:
        if before and before[0].rpartition("/")[2] in ("echo", "printf"):
            yield from _rm(call.of("rm", *command[1:], *(word for text in before[1:] for word in text.split())))
        elif before and before[0].rpartition("/")[2] == "find":
            yield from _found(call, before[1:], "xargs deletes")


def behind_xargs(args: tuple[str, ...]) -> tuple[str, ...]:
    """The command that xargs runs."""
    position = 0
    while position < len(args) and args[position][:1] == "-" and args[position] != "--":
        word = args[position]
        position += 1
        position += (word[2:] in _XARGS.valued_longs) if word[:2] == "--" else word[1:] in tuple(_XARGS.valued)
    return args[position + (args[position : position + 1] == ("--",)) :]


def _rsync(call: Call) -> Iterator[Hit]:
    options = _RSYNC.take(call.args)
    if any(name.startswith("delete") or name == "del" for name in options.given) and options.operands:
        target = options.operands[-1]
        worth = None if ":" in target else call.ground.worth(target, call.segment.directories)
        if worth is not None:
            yield _hit(worth, "rsync --delete over")
        else:
            yield high_risk(f"rsync deletes in {target} what the source does not have")
    if options.has("remove-source-files"):
        yield from of_operands(call, options.operands[:-1], "rsync --remove-source-files of")
        yield high_risk("rsync deletes the files that it has copied")


def _tar(call: Call) -> Iterator[Hit]:
    options = _TAR.take(call.args)
    if options.has("remove-files"):
        yield from of_operands(call, options.of("C", "directory") + options.operands, "tar --remove-files of")
        yield high_risk("tar deletes the files that it has packed")


def _truncate(call: Call) -> Iterator[Hit]:
    for operand in shape("sr", "", "size reference").take(call.args).operands:
        if (place := call.ground.system(operand, call.segment.directories)) is not None:
            yield high_risk(f"truncate of {place}, a part of the system")


def _rmdir(call: Call) -> Iterator[Hit]:
    yield from (high_risk(hit.reason) for hit in of_operands(call, PLAIN.take(call.args).operands, "rmdir of"))


TABLE: Table = {
    "rm": _rm,
    **every("rimraf del-cli grm", _rimraf),
    "unlink": _rm,
    "trash": _rm,
    **every("shred srm wipe scrub", _shred),
    "mv": _mv,
    "chmod": _mode,
    **every("chown chgrp setfacl chattr", _ownership),
    "find": _find,
    "gfind": _find,
    **every("fd fdfind", _fd),
    "xargs": _xargs,
    "rsync": _rsync,
    **every("tar gtar bsdtar", _tar),
    "truncate": _truncate,
    "rmdir": _rmdir,
}
