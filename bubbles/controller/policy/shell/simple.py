"""What one simple command amounts to: its guess, what it assigns, and where the shell stands after it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from bubbles.controller.policy.shell.reading import Assignment, Directories, Hole, Word
from bubbles.controller.policy.shell.stream import ASSIGNMENT
from bubbles.controller.policy.shell.tokens import SPLIT, Token

CHANGES_SHELL = frozenset(
    "alias unalias hash shopt enable trap eval bind complete compopt read mapfile readarray declare typeset local "
    "readonly unset let getopts exec return break continue logout suspend history fc builtin".split()
)
"""Builtins after which the same text may mean something else."""
DECLARES = frozenset("export declare typeset readonly local".split())
_CHANGES_DIRECTORY = frozenset("pushd popd source . builtin command eval".split())
NOTABLE = CHANGES_SHELL | DECLARES | _CHANGES_DIRECTORY | frozenset("cd time set test [ printf".split())
"""Names that need a closer look; all other commands leave the shell as it is."""
_SPECIAL_NAMES = frozenset(
    "HOME PATH IFS CDPATH PWD OLDPWD ENV GLOBIGNORE SHELLOPTS BASHOPTS POSIXLY_CORRECT FUNCNEST PS4 PROMPT_COMMAND "
    "EXECIGNORE FIGNORE HISTFILE INPUTRC SHELL TMPDIR".split()
)
"""Variables by which bash itself reads or runs things otherwise."""
_COUNTS = re.compile(r"%[^%A-Za-z]*[a-z]{0,2}n")
"""``%n`` of printf assigns to the variable that it is given the name of."""
_HARMLESS_SET = re.compile(r"[-+][eux]+o?")
_MAX_DIRECTORIES = 8


def guess_of(tokens: Sequence[Token], home: str) -> tuple[str, ...]:
    """What the argv may turn out to be."""
    texts = [token.guess for token in tokens]
    if SPLIT not in "".join(texts):
        return tuple(texts)
    guess: list[str] = []
    for text in texts:
        if SPLIT not in text:
            guess.append(text)
        else:
            guess.extend(
                home + part[1:] if part == "~" or part.startswith("~/") else part for part in text.split(SPLIT) if part
            )
    return tuple(guess)


def assignment_of(token: Token, written: str) -> tuple[Assignment, str] | None:
    """The assignment that ``token``, written so, is, and a doubt that it raises or nothing; None if it is none."""
    match = ASSIGNMENT.match(written) if "=" in written else None
    if match is None:
        return None
    name, doubt = match[1], ""
    if match[2]:
        doubt = "an array"
    elif name in _SPECIAL_NAMES or name.startswith(("LD_", "BASH_", "DYLD_")):
        doubt = f"'{name}' is set, which changes what later words mean"
    word = token.words[0]
    text = word.text if len(token.words) == 1 else token.guess.replace(SPLIT, " ")
    holes = word.holes & ~Hole.GLOB if len(token.words) == 1 else word.holes | Hole.BRACE
    value = Word(text[text.find("=") + 1 :], holes, word.literal)
    return Assignment(name, value, bool(match[3])), doubt


def timed(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """``words`` behind the reserved word ``time``: they run in the shell itself, unlike those behind a program."""
    while words and words[0].literal and words[0].text == "time":
        words = words[2:] if len(words) > 1 and words[1].text == "-p" else words[1:]
    return words


def changes_meaning(words: tuple[Word, ...]) -> str:
    """The builtin, or its option, after which the same text may mean something else; else nothing.

    ``test -v`` and ``printf -v`` evaluate the subscript of an array that they are given, quoted or not.
    """
    name = words[0].text if words and words[0].exact else ""
    if name in CHANGES_SHELL or (name == "set" and not plain_set(words[1:])):
        return name
    if name in ("test", "[", "printf") and any(word.text[:2] in ("-v", "-R") for word in words[1:]):
        return f"{name} -v"
    if name == "printf" and any(_COUNTS.search(word.text) for word in words[1:]):
        return "printf %n"
    return ""


def directories_after(words: tuple[Word, ...], directories: Directories, home: str) -> Directories:
    """Where the shell may stand once the command has succeeded."""
    name = words[0].text if words and words[0].exact else ""
    if name == "cd":
        return _cd(words, directories, home)
    if name == "command" and len(words) > 1 and words[1].text in ("-v", "-V"):
        return directories
    return None if name in _CHANGES_DIRECTORY or (words and not name) else directories


def _cd(words: tuple[Word, ...], directories: Directories, home: str) -> Directories:
    """Where ``cd`` leads, as bash resolves it: by text, before links. Source: POSIX cd, steps 7 and 8."""
    arguments = words[1:]
    if arguments and arguments[0].text in ("-L", "--"):
        arguments = arguments[1:]
    if not arguments:
        return frozenset((home,)) if len(words) == 1 else None
    target = arguments[0]
    if len(arguments) > 1 or not target.exact or target.text.startswith("-") or not target.text:
        return None
    if target.text.startswith("/"):
        return frozenset((os.path.normpath(target.text),))
    if directories is None or len(directories) > _MAX_DIRECTORIES:
        return None
    return frozenset(os.path.normpath(os.path.join(directory, target.text)) for directory in directories)


def plain_set(arguments: tuple[Word, ...]) -> bool:
    """``set -euo pipefail``: options that change when a script stops, not what its text means."""
    texts = [word.text for word in arguments if word.exact]
    if len(texts) != len(arguments) or not texts:
        return False
    expecting = False
    for text in texts:
        if expecting:
            if text not in ("pipefail", "errexit", "nounset", "xtrace"):
                return False
            expecting = False
        elif _HARMLESS_SET.fullmatch(text) or text in ("-o", "+o"):
            expecting = text.endswith("o")
        else:
            return False
    return not expecting
