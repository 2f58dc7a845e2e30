"""What a path stands for: whose loss nobody wants, judged by the place it leads to and, failing that, by its text."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from typing import NamedTuple

from bubbles.controller.policy.contract import Context
from bubbles.controller.policy.places import beneath
from bubbles.controller.policy.shell.reading import UNKNOWN, Directories

SYSTEM = frozenset(
    "/bin /boot /dev /etc /lib /lib32 /lib64 /libx32 /opt /proc /run /sbin /srv /sys /usr /var /mnt /media /nix /snap"
    " /Applications /Library /System /Volumes /private /private/etc /private/var /cores /efi".split()
)
TEMPORARY = ("/tmp", "/var/tmp", "/private/tmp", "/private/var/tmp", "/dev/shm", "/var/folders", "/run/user")
_HELD = ("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr", "/var", "/System")
"""Of these even the direct children are the system itself."""
_HOME_OF_ANYONE = re.compile(r"/root|/home/[^/]+|/Users/[^/]+|/var/root|/export/home/[^/]+")
_EVERYTHING = re.compile(r"(?=.*\*)(?:\*|\?|\.|\[[!^]\.\])*|\{(?=.*\*)[*.,?]+\}")
"""A last component that stands for all a directory holds: ``*``, ``.*``, ``.??*``, ``[!.]*``, ``*.*``."""
_GLOB = re.compile(r"[*?\[]")


class Worth(NamedTuple):
    """Why a place must not be lost."""

    vital: bool
    """Nobody wants it gone; if not, a person may."""
    name: str
    """For the person: ``the home directory /home/ann``."""
    holds_home: bool = False


class Ground:
    """The places of one decision, worked out when first asked for."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._known: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    @property
    def roots(self) -> tuple[str, ...]:
        return self._places()[0]

    @property
    def homes(self) -> tuple[str, ...]:
        return self._places()[1]

    def _places(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if self._known is None:
            context = self.context
            homes = tuple(home for home in (context.home, context.person_home) if home and home != "/")
            self._known = (self._both(context.roots), self._both(homes))
        return self._known

    def _both(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """As written, and links followed."""
        written = [_normal(path) for path in paths]
        return tuple(dict.fromkeys(written + [self._real(path) for path in written]))

    def _real(self, place: str) -> str:
        try:
            return self.context.resolve(place)
        except (OSError, ValueError):  # no file system takes such a name, so nothing is there to be followed
            return place

    def places(self, path: str, directories: Directories) -> tuple[tuple[str, ...], ...]:
        """Per directory that the path may be used in: the place as written and, if another, the real one.

        None where it is not known. A ``~`` that is left in a text is taken as a home: suspicion may.
        """
        path = self._home_first(path)
        if UNKNOWN in path:
            return ()
        if path.startswith("/"):
            written = [_normal(path)]
        elif directories is None:
            return ()
        else:
            written = [_normal(os.path.join(directory, path)) for directory in directories]
        if _GLOB.search(path):
            return tuple((place,) for place in written)
        return tuple((place, self._real(place)) for place in written)

    def _home_first(self, path: str) -> str:
        if not path.startswith("~"):
            return path
        user, slash, rest = path[1:].partition("/")
        if user in ("+", "-"):
            return UNKNOWN + slash + rest
        home = self.context.home if not user else "/root" if user == "root" else "/home/" + user
        return home + slash + rest

    def within_roots(self, path: str, directories: Directories) -> bool:
        """Every place that the path may mean lies in a root, or is one."""
        places = self.places(path, directories)
        return bool(places) and all(beneath(place, self.roots) for either in places for place in either)

    def worth(self, path: str, directories: Directories) -> Worth | None:
        """What would be lost with ``path`` and all below it. ``DIR/*`` counts as ``DIR``."""
        target = whole(path)
        if UNKNOWN in target:
            return Worth(False, "a path that is not known")
        places = self.places(target, directories)
        if not places:
            return Worth(False, "a directory that is not known") if target[0] == "~" or _open(target) else None
        worths = [max((self._of(place) for place in either), key=_rank) for either in places]
        worst = max(worths, key=_rank)
        if worst is None or min(map(_rank, worths)) == _rank(worst):
            return worst
        # It depends on whether a cd before it works.
        return Worth(False, worst.name, worst.holds_home)

    def _of(self, place: str) -> Worth | None:
        if _GLOB.search(place):
            return max((self._of(one) for one in self._treasures() if _matches(one, place)), key=_rank, default=None)
        if place == "/":
            return Worth(True, "the whole file system", True)
        if place in self.homes or _HOME_OF_ANYONE.fullmatch(place):
            return Worth(True, f"the home directory {place}", True)
        if any(home.startswith(place + "/") for home in self.homes):
            return Worth(True, f"{place}, which holds the home directory", True)
        if place in self.roots:
            return Worth(True, f"the project root {place}")
        if any(root.startswith(place + "/") for root in self.roots):
            return Worth(True, f"{place}, which holds the project root")
        if beneath(place, self.roots):
            return self._in_root(place)
        return self._outside(place)

    def _in_root(self, place: str) -> Worth | None:
        directory, _, name = place.rpartition("/")
        if name == ".git":
            return Worth(directory in self.roots, f"the git history in {place}")
        return None

    def _outside(self, place: str) -> Worth | None:
        if place in TEMPORARY:
            return Worth(False, f"everything in {place}")
        if beneath(place, TEMPORARY):
            return None
        if place in SYSTEM or place in ("/home", "/Users"):
            return Worth(True, f"the system directory {place}", place in ("/home", "/Users"))
        directory = os.path.dirname(place)
        if directory in self.homes or _HOME_OF_ANYONE.fullmatch(directory):
            return None if place.endswith("/.cache") else Worth(False, f"{place} in the home directory")
        if beneath(place, tuple(SYSTEM)):
            return Worth(directory in _HELD, f"{place}, a part of the system")
        return None

    def _treasures(self) -> tuple[str, ...]:
        holders = [place[:end] for place in self.roots + self.homes for end in _slashes(place)]
        return (*self.roots, *self.homes, *holders, *SYSTEM, "/home", "/Users", "/root")

    def system(self, path: str, directories: Directories) -> str | None:
        """The place, if the path certainly leads into a directory of the system other than a temporary one."""
        for either in self.places(path, directories):
            for place in either:
                if beneath(place, _HELD) and not beneath(place, (*self.roots, *self.homes, *TEMPORARY)):
                    return place
        return None


def whole(path: str) -> str:
    """The directory that ``path`` empties, where its last parts stand for everything in it."""
    while path:
        head, slash, last = path.rstrip("/").rpartition("/")
        if not last or last in (".", "..") or not _EVERYTHING.fullmatch(last):
            return path
        path = head or slash or "."
    return path


def _open(path: str) -> bool:
    """In an unknown directory: the directory itself, or what lies above it."""
    return _normal(path).split("/")[0] in (".", "..")


def _normal(path: str) -> str:
    # POSIX lets two leading slashes mean something else, and normpath keeps them; no system of ours does.
    return os.path.normpath("/" + path.lstrip("/") if path.startswith("/") else path)


def _rank(worth: Worth | None) -> int:
    return 0 if worth is None else 2 if worth.vital else 1


def _slashes(path: str) -> list[int]:
    return [index for index, letter in enumerate(path) if letter == "/" and index]


def _matches(place: str, pattern: str) -> bool:
    names, patterns = place.split("/"), pattern.split("/")
    return len(names) == len(patterns) and all(map(may_be, names, patterns))


LONGEST_PATTERN = 200
"""Characters. Making a pattern ready takes time that grows with the square of its length."""


def may_be(name: str, pattern: str) -> bool:
    """Whether ``pattern`` may match ``name``. One so long that it takes time to tell is suspected."""
    return len(pattern) > LONGEST_PATTERN or fnmatchcase(name, pattern)
