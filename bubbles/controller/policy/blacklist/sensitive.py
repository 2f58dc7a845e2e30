"""Files that hold secrets or permissions, and files that run on their own later: known by where they lie."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from bubbles.controller.policy.blacklist.ground import Ground, may_be
from bubbles.controller.policy.places import beneath
from bubbles.controller.policy.shell.reading import UNKNOWN, Directories

LONGEST_PATH = 4096
"""Bytes; PATH_MAX of Linux. A longer word is no path."""

CLUES = re.compile(
    r"\.(?:ssh|aws|netrc|gnupg|kube|docker|git-c|git/|gitconfig|pypirc|npmrc|cargo/c|gem/|azure|pgpass|my\.cnf|vault"
    r"|terraform\.d|password-store|mozilla|bubbles|codex|claude|bash|zsh|zpro|zlog|ksh|csh|tcsh|log|profile|x(?:init|pro|ses)"
    r"|pam_e|config/|local/share|rules|pth|vim|emacs|gdbinit|kdbx|sock)|_history|_netrc|_key|/etc/|/proc/|/dev/|/sys/"
    r"|/run/|/spool/|\.\./|(?:^|\n)(?:/|~|\.\.)[^\n]*[*?\[]|/systemd|Launch|Keychains|id_(?:rsa|dsa|ecdsa|ed25519)|customize"
)
"""Cheap: a text without any of these names nothing of this module."""


class _Sign(NamedTuple):
    pattern: re.Pattern[str]
    name: str


def _signs(*pairs: tuple[str, str]) -> tuple[_Sign, ...]:
    return tuple(_Sign(re.compile(pattern, re.DOTALL), name) for pattern, name in pairs)


_OWN = _signs(
    (
        r"/\.bubbles(?:/(?:config|rules|session_rules|timeline|logins|auth|credential|secret|key)[^/]*(?:/.*)?)?$",
        "the assistant's own settings",
    ),
    (r"/\.codex(?:/(?:auth|config|rules)[^/]*(?:/.*)?)?$", "the settings and rules of Codex"),
)
_SECRETS = (
    *_OWN,
    *_signs(
        (r"/\.ssh(?:$|/(?!known_hosts|[^/]*\.pub$))", "ssh keys and logins"),
        (r"/id_(?:rsa|dsa|ecdsa|ed25519)[^/.]*$", "a private key"),
        (r"/\.aws(?:$|/(?:credentials|config|sso|cli))", "keys of a cloud account"),
        (
            r"/\.config/gcloud(?:/|$)|/\.azure(?:/|$)|/\.terraform\.d/credentials|/\.vault-token$",
            "keys of a cloud account",
        ),
        (r"/[._]netrc$|/\.pgpass$|/\.my\.cnf$|/\.git-credentials$|/git/credentials$", "stored passwords"),
        (r"/\.gnupg(?:/|$)|/\.password-store(?:/|$)|\.kdbx$", "private keys or passwords"),
        (r"/\.kube(?:/config)?$|/\.docker/config\.json$|/gh/hosts\.yml$|/\.config/(?:hub|op)(?:/|$)", "login tokens"),
        (
            r"/\.pypirc$|/\.npmrc$|/\.cargo/credentials(?:\.toml)?$|/\.gem/credentials$|/\.claude/\.credentials",
            "login tokens",
        ),
        (
            r"/keyrings(?:/|$)|/Keychains(?:/|$)|/\.mozilla(?:/|$)|/\.config/(?:google-chrome|chromium)",
            "stored passwords",
        ),
        (r"/\.\w{0,12}_history$", "a history of commands"),
        (
            r"^/etc/(?:g?shadow-?$|sudoers|ssh/ssh_host\w*_key$|ssl/private|krb5\.keytab|NetworkManager/system-c)",
            "secrets of the system",
        ),
        (r"^/proc/[^/]+/(?:environ|mem)$", "what another process keeps in memory"),
        (r"^(?:/var)?/run/secrets(?:/|$)", "secrets of the system"),
    ),
)
_STARTUP = _signs(
    (
        r"/\.(?:bashrc|bash_\w+|profile|z?login|z?logout|z(?:shrc|shenv|profile)|(?:k|c|tc)shrc|xinitrc|xprofile|xsession\w*|pam_env\w+)$",
        "which runs with every shell or login",
    ),
    (
        r"/\.(?:vimrc|gvimrc|emacs|gdbinit|gitconfig)$|/\.config/(?:git|nvim)(?:/|$)",
        "which programs read when they start",
    ),
    (
        r"/\.config/(?:autostart|systemd|fish|environment\.d)(?:/|$)|/\.local/share/(?:systemd|dbus-1)(?:/|$)|/Launch(?:Agents|Daemons)",
        "which starts on its own at login",
    ),
    (
        r"^/etc/(?:cron|anacron|profile|bash|zsh|environ|rc|init|systemd|ld\.so|pam|ssh|xdg|modul|apt|update-m|X11|udev|sudo|polkit)",
        "which the system runs or obeys",
    ),
    (r"^/var/spool/(?:cron|at)|^(?:/usr|/usr/local)?/lib/(?:systemd|udev)", "which the system runs on its own"),
    (r"/(?:site|user)customize\.py$|/site-packages/[^/]*\.pth$", "which every Python runs"),
)
_IN_REPOSITORY = _signs(
    (r"/\.git/(?:modules/.*/)?(?:hooks(?:/|$)|config(?:\.worktree)?$)", "which git runs or obeys"),
)
_RULES = _signs((r"\.rules$", "which may hold permissions"))
_SAMPLES = tuple(
    ".ssh .ssh/id_rsa .ssh/id_ed25519 .ssh/authorized_keys .ssh/config .aws/credentials .netrc .gnupg .pgpass"
    " .git-credentials .docker/config.json .kube/config .bubbles/config.json"
    " .bubbles/logins/openai_codex.json .codex/auth.json .bash_history".split()
)
_SYSTEM_SAMPLES = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/proc/1/environ", "/proc/self/environ")


class Standing(NamedTuple):
    """A place, as the patterns want it."""

    text: str
    in_root: bool
    """Then ``text`` is counted from the root."""


def standings(path: str, directories: Directories, ground: Ground) -> Iterator[Standing]:
    places = ground.places(path, directories)
    if not places:
        known = path.rpartition(UNKNOWN)[2]
        yield Standing(known if known.startswith("/") else "/" + known.removeprefix("./"), in_root=False)
        return
    for place in dict.fromkeys(place for either in places for place in either):
        root = max((root for root in ground.roots if beneath(place, (root,))), key=len, default=None)
        own = root is not None and not any(beneath(place, (home,)) and beneath(home, (root,)) for home in ground.homes)
        yield Standing(place[len(root) :] or "/", in_root=True) if root and own else Standing(place, in_root=False)


def _named(signs: tuple[_Sign, ...], text: str) -> str | None:
    return next((sign.name for sign in signs if sign.pattern.search(text)), None)


def secret(path: str, directories: Directories, ground: Ground) -> str | None:
    """What is found there that nobody should read unasked: ``ssh keys``."""
    for standing in standings(path, directories, ground):
        name = _named(_OWN if standing.in_root else _SECRETS, standing.text)
        if name is None and not standing.in_root and ("*" in path or "?" in path or "[" in path):
            name = _by_pattern(standing.text, ground)
        if name is not None:
            return name
    return None


def _by_pattern(pattern: str, ground: Ground) -> str | None:
    parts = pattern.split("/")
    for home in (*ground.homes, "/root"):
        for sample in _SAMPLES:
            if _fits(f"{home}/{sample}".split("/"), parts):
                return f"secrets such as ~/{sample}"
    return next((f"secrets such as {one}" for one in _SYSTEM_SAMPLES if _fits(one.split("/"), parts)), None)


def _fits(names: list[str], parts: list[str]) -> bool:
    return len(names) == len(parts) and all(map(may_be, names, parts))


def obeyed(path: str, directories: Directories, ground: Ground, *, written: bool = False) -> str | None:
    """Why nobody should write there unasked: ``which runs with every shell``. ``written``: it certainly is written."""
    for standing in standings(path, directories, ground):
        signs = _IN_REPOSITORY if standing.in_root else _STARTUP + _IN_REPOSITORY
        name = _named(signs + _RULES if written else signs, standing.text)
        if name is not None:
            return name
    return None


def paths_in(word: str) -> Iterator[str]:
    """What in a word may be a path: itself, an option's value, what follows ``@``, what stands before ``:``."""
    if len(word) > LONGEST_PATH:
        return
    if "://" in word:
        if "file://" in word:
            yield word.partition("file://")[2]
        return
    if " " in word and not word.startswith(("/", "~", ".", UNKNOWN)):
        return
    if word[:1] != "-":
        yield word.removeprefix("@")
    elif word[1:2] != "-" and len(word) > 2:
        yield word[2:].removeprefix("@")
    if "=" in word:
        yield word.partition("=")[2].rpartition("=")[2].removeprefix("@")
    if ":" in word and word[0] in "/~.":
        yield word.partition(":")[0]
