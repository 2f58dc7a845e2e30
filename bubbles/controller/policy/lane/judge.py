"""Whether one simple command is ordinary local validation, for certain (DEC-03)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from bubbles.controller.policy.contract import Context
from bubbles.controller.policy.lane import (
    dart,
    diagnostics,
    filters,
    git,
    go,
    managed,
    native,
    node,
    python,
    ruby,
    rust,
)
from bubbles.controller.policy.lane.files import within
from bubbles.controller.policy.lane.surroundings import harmless, inert
from bubbles.controller.policy.lane.table import UNLISTED, Site, Tool, spread
from bubbles.controller.policy.lane.walk import Walk, shown
from bubbles.controller.policy.shell.reading import UNKNOWN, Assignment, Segment, Word

_ORDINARY = {ord("\n"): None, ord("\t"): None}
_WITH_HOLES = _ORDINARY | {ord(UNKNOWN): None}
_MOST_FOLDERS = 4
_MOST_WORDS = 128
"""Bounds on how many paths may have to be looked up. What only prints its words has none."""
_ONLY_PRINTS = frozenset("echo printf true false :".split())
_PLAIN_AT = frozenset(
    """git grep egrep fgrep rg echo printf true false : test [ sed awk gawk mawk jq sort uniq cut tr nl column paste
    comm fold fmt rev tac expand unexpand seq find fd fdfind date basename dirname which type command tree ls""".split()
)
"""Those that never take ``@file`` for a file of further arguments."""
_THROUGH_A_SHELL = frozenset("npm npx pnpm yarn bun".split())
"""Those that hand words to a shell; npm before 9 puts them into double quotes and escapes only these."""
_EXPANDED = re.compile(r"`|\\\"|\$(?![|)/]|$)").search
_WITH_VERBS = frozenset(
    """ansible apt apt-get aws az brew conda dnf docker docker-compose doctl fastlane firebase flatpak fly flyctl gcloud
    gh glab gsutil helm heroku kubectl launchctl mamba minikube nerdctl netlify nix oc pacman podman pulumi railway snap
    stripe supabase systemctl terraform vagrant vercel wrangler yum""".split()
)
"""Programs outside the table whose first word is a sub-command."""
_SYSTEM = frozenset({"/bin", "/usr/bin", "/usr/local/bin"})
"""A program given by its path in one of these is the one of that name."""


def _joined(families: Iterable[dict[str, Tool]]) -> dict[str, Tool]:
    programs: dict[str, Tool] = {}
    for family in families:
        for name, tool in spread(family).items():
            assert name not in programs, name
            programs[sys.intern(name)] = tool
    return programs


_FAMILIES = (python, node, rust, go, native, managed, dart, ruby, git, diagnostics, filters)
PROGRAMS = _joined(module.PROGRAMS for module in _FAMILIES)


def judge(segment: Segment, context: Context) -> str | None:
    """None: every part of ``segment`` is ordinary local validation, for certain. Else a clause why not."""
    site = Site.of(segment.directories, context)
    if (reason := _astray(site)) is not None:
        return reason
    if segment.background:
        return "a command in the background outlives the call"
    for assignment in segment.assignments:
        if not inert(assignment, context, segment.directories if segment.words else None):
            return f"{assignment.name}= may change what a program does"
    for redirect in segment.redirects:
        if (reason := harmless(redirect, segment.directories, context)) is not None:
            return reason
    words = segment.core
    if not words:
        if segment.words or segment.redirects or not segment.assignments:
            return "no command is run"
        return None
    for word in words:
        text = word.text
        if not text.isprintable() and not text.translate(_WITH_HOLES if word.holes else _ORDINARY).isprintable():
            return f"{shown(text)} holds characters that cannot be seen"
    return _command(words, site, context)


def _astray(site: Site) -> str | None:
    """Why the directory that the command would run in is not certain to be in the roots, or None."""
    for place in site.places:
        if within(place, site.roots) is None:
            return f"it would run in {place}, outside the folders of this session"
    if len(site.places) > _MOST_FOLDERS:
        return f"it may run in any of more than {_MOST_FOLDERS} folders"
    return None if site.places else "it is not known in which folder it would run"


def _command(words: tuple[Word, ...], site: Site, context: Context) -> str | None:
    first = words[0]
    name = first.text
    if not first.exact or not first.literal:
        return f"the name of the program, {shown(name)}, is not written plainly"
    if "/" in name:
        folder, _, name = name.rpartition("/")
        if folder not in _SYSTEM:
            return f"{shown(first.text)} is a program of its own, not the one of that name"
    if name == "export":
        return _export(words, context)
    if (tool := PROGRAMS.get(name)) is None:
        return f"{shown(_said(words))} {UNLISTED}"
    if len(words) > _MOST_WORDS and name not in _ONLY_PRINTS:
        return f"{name} is given more than {_MOST_WORDS} words"
    if name in _THROUGH_A_SHELL:
        for word in words:
            if _EXPANDED(word.text):
                return f"{shown(word.text)} may be read once more by the shell that {name} starts"
    return Walk(words, site, name, plain_at=name in _PLAIN_AT).run(tool)


def _export(words: tuple[Word, ...], context: Context) -> str | None:
    """``export NAME=value``: as inert for all that follows as before one command."""
    for word in words[1:]:
        name, equals, value = word.text.partition("=")
        if not equals or not word.exact or not inert(Assignment(name, Word(value)), context):
            return f"export {shown(word.text)} may change what later commands do"
    return None if len(words) > 1 else "export alone shows the environment, secrets included"


def _said(words: tuple[Word, ...]) -> str:
    """The command's name, and its sub-command if it is known to have any."""
    name = words[0].text
    if len(words) > 1 and name.rpartition("/")[2] in _WITH_VERBS and words[1].exact:
        verb = words[1].text
        if verb.replace("-", "").isalpha() and verb[0] != "-":
            return f"{name} {verb}"
    return name
