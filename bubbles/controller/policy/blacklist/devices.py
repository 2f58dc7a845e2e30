"""Disks, kernel files and whatever else under /dev is no file; partitions, file systems and volumes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from bubbles.controller.policy.blacklist.finding import Call, Hit, Table, destructive, every, high_risk
from bubbles.controller.policy.blacklist.options import PLAIN, shape
from bubbles.controller.policy.shell.reading import UNKNOWN, Redirect

_HARMLESS = re.compile(
    r"/dev/(?:null|zero|full|u?random|tty|stdin|stdout|stderr|ptmx|fd(?:/.*)?|pts(?:/.*)?|shm/.+)", re.DOTALL
)
_DISK = re.compile(
    r"/dev/(?:[shv]d|xvd|nvme|mmcblk|md\d|md/|dm-|mapper|disk|rdisk|loop\d|sr\d|nbd|z?ram\d|vg|pmem|mtd|mem$|kmem|port$"
    r"|watchdog|[*?\[])"
)
_KERNEL = re.compile(
    r"/proc/(?:sysrq-trigger|kcore|[^/]+/mem)$|/sys/power/|/sys/firmware/|/sys/class/block/|/sys/block/"
)
_NETWORK = re.compile(r"/dev/(?:tcp|udp)/")
_READERS = frozenset("lsblk blkid smartctl df udevadm file ls stat findmnt test [ [[ echo printf lsof fuser".split())
_LISTING = re.compile(r"-(?:l|-list|V|-version|v|-help|h|s|-show.*|-print|n|-dry-run|-no-act)")


def device(path: str) -> str:
    """``disk``, ``kernel``, ``network`` or ``device``; nothing for a file, and for what is harmless."""
    if not path.startswith(("/dev", "/proc", "/sys", "//")):
        return ""
    path = os.path.normpath("/" + path.lstrip("/"))
    if _NETWORK.match(path):
        return "network"
    if path.startswith("/dev/"):
        return "disk" if _DISK.match(path) else "" if _HARMLESS.fullmatch(path) else "device"
    if _KERNEL.match(path):
        return "kernel"
    return "device" if path.startswith(("/proc/sys/", "/sys/")) else ""


def written(path: str, deed: str) -> Iterator[Hit]:
    """``deed`` writes to ``path``."""
    kind = device(path)
    if kind == "disk":
        yield destructive(f"{deed} overwrites the disk or memory {path}")
    elif kind == "kernel":
        yield destructive(f"{deed} writes to the kernel's {path}")
    elif kind == "network":
        yield high_risk(f"{deed} opens a network connection ({path})")
    elif kind == "device":
        yield high_risk(f"{deed} writes to {path}")


def redirected(redirect: Redirect) -> Iterator[Hit]:
    if redirect.operator in ("<<", "<<<", "<<-"):
        return
    target = redirect.target.text
    if redirect.operator in ("<", "<&"):
        if device(target) == "network":
            yield high_risk(f"a redirect opens a network connection ({target})")
        elif device(target) == "disk":
            yield high_risk(f"a redirect reads the disk or memory {target}")
    else:
        yield from written(target, "a redirect")


def mentioned(call: Call, path: str) -> Iterator[Hit]:
    """Any program, given a device by name."""
    kind = device(path)
    if kind in ("disk", "kernel", "network") and call.program not in _READERS:
        yield high_risk(f"{call.program} is given {path}")


def _copies(call: Call) -> Iterator[Hit]:
    options = shape("tSmog", "", "target-directory suffix mode owner group").take(call.args)
    for target in options.of("t", "target-directory") or options.operands[-1:]:
        yield from written(target, call.program)


def _tee(call: Call) -> Iterator[Hit]:
    for operand in PLAIN.take(call.args).operands:
        yield from written(operand, call.program)


def _dd(call: Call) -> Iterator[Hit]:
    for arg in call.args:
        name, _, value = arg.partition("=")
        if name == "of":
            yield from written(value, "dd")
            if value.startswith(UNKNOWN):
                yield high_risk("dd writes to a place that is not known")


def _file_system(call: Call) -> Iterator[Hit]:
    operands = PLAIN.take(call.args).operands
    if any(_LISTING.fullmatch(arg) for arg in call.args if arg not in ("-n", "-s", "-l", "-v")) and not operands:
        return
    named = [operand for operand in operands if device(operand) or UNKNOWN in operand]
    inside = operands and all(
        call.ground.within_roots(operand, call.segment.directories) for operand in operands[-1:] if not device(operand)
    )
    if named or not inside:
        yield destructive(f"{call.program} destroys what is on {(named or ['a disk'])[0]}".replace(UNKNOWN, "…"))
    else:
        yield high_risk(f"{call.program} overwrites {operands[-1]}")


def _partitions(call: Call) -> Iterator[Hit]:
    operands = PLAIN.take(call.args).operands
    if any(_LISTING.fullmatch(arg) for arg in call.args if arg != "-s") or "print" in operands:
        return
    if operands:
        yield destructive(f"{call.program} changes the partitions of {operands[0]}".replace(UNKNOWN, "…"))


_VERBS: dict[str, tuple[str, ...]] = {
    "cryptsetup": ("luksFormat", "erase", "luksErase", "reencrypt", "luksKillSlot", "luksRemoveKey"),
    "zpool": ("create", "destroy", "labelclear", "replace", "remove"),
    "zfs": ("destroy", "rollback"),
    "nvme": ("format", "sanitize", "delete-ns"),
    "diskutil": (
        *("eraseDisk", "eraseVolume", "partitionDisk", "zeroDisk", "randomDisk", "secureErase", "reformat"),
        *("deleteVolume", "deleteContainer", "eraseOptical"),
    ),
    "hdparm": ("--security-erase", "--write-sector", "--trim-sector-ranges", "--security-erase-enhanced"),
    "mdadm": ("--create", "-C", "--zero-superblock", "--stop", "-S"),
    "btrfs": ("delete", "replace"),
    "badblocks": ("-w",),
    "tune2fs": ("-O",),
}


def _volumes(call: Call) -> Iterator[Hit]:
    verb = next((arg for arg in call.args if arg in _VERBS[call.program]), None)
    if verb is not None:
        yield destructive(f"{call.program} {verb} destroys what is on a disk")


def _always(call: Call) -> Iterator[Hit]:
    if call.args and not any(arg in ("--help", "-h", "--version", "-V") for arg in call.args):
        yield destructive(f"{call.program} destroys what is on a disk")


TABLE: Table = {
    **every("cp mv install rsync ln scp ddrescue", _copies),
    **every("tee sponge truncate shred", _tee),
    **every("dd gdd dcfldd", _dd),
    **every("mkfs mke2fs newfs mkswap mkntfs mkdosfs", _file_system),
    **every("fdisk sfdisk cfdisk gdisk sgdisk cgdisk parted", _partitions),
    **every("wipefs blkdiscard pvcreate pvremove vgremove lvremove vgreduce", _always),
    **dict.fromkeys(_VERBS, _volumes),
}
