"""The small languages of sed, awk, jq and ``test``: which programs provably only print."""

from __future__ import annotations

import re

from bubbles.controller.policy.lane.table import Kind, Site

LONGEST = 300
"""Characters of a program that is still looked at."""

# sed ---------------------------------------------------------------------------------------------------------------

# In a regular expression a slash within brackets does not end it: brackets are read as sed reads them.
_BODY = r"(?:[^/\\\n\[]|\\[^\n]|\[\^?+\]?+[^\]/\n\\\[]*+\])*"
_PLACE = rf"(?:\d+(?:~\d+)?|\$|/{_BODY}/I?)"
_RANGE = rf"(?:{_PLACE}(?:,\s*+(?:{_PLACE}|[+~]\d+))?)"
_SUBSTITUTE = "|".join(
    # The delimiter stands three times and nowhere else, so there is one way to read it. No flag e or w.
    rf"s{d}[^{d}\\\n\[]*(?:\\[^{d}\n][^{d}\\\n\[]*)*{d}[^{d}\\\n]*(?:\\[^{d}\n][^{d}\\\n]*)*{d}[gpiI0-9]*"
    for d in ("/", r"\|", "#", ",", "@")
)
_COMMAND = rf"(?:[pPdDnNhHgGxl=F]|[qQ]\d*|{_SUBSTITUTE})"
_STEP = rf"(?:{_RANGE})?\s*+!?\s*+(?:{_COMMAND}\s*+(?=[;}}\n]|$)|\{{)"
_SED = re.compile(rf"(?:[;\s}}]*+{_STEP})*[;\s}}]*+", re.ASCII).fullmatch


def _sed(text: str, _site: Site) -> str | None:
    if len(text) <= LONGEST and _SED(text):
        return None
    return "the script is not certain only to print"


# awk ---------------------------------------------------------------------------------------------------------------

_AWK_TOKEN = re.compile(
    r"""(?P<space>[ \t\n]+)|(?P<string>"(?:[^"\\\n]|\\[^\n])*")|(?P<number>\d+(?:\.\d+)?)|(?P<field>\$(?=[\w(]))
    |(?P<word>[A-Za-z_]\w*)|(?P<more>>=?)|(?P<operator>\|\||&&|==|!=|<=|!~|\+\+|--|\+=|-=|\*=|[-+*%!~<=,;:?(){}\[\]])
    |(?P<slash>/)""",
    re.VERBOSE | re.ASCII,
)
_AWK_REGEX = re.compile(rf"/{_BODY}/")
_AWK_KEYWORDS = frozenset("print printf in return else do".split())
_AWK_FORBIDDEN = frozenset(
    "system getline close fflush ARGV ARGC ARGIND ENVIRON PROCINFO function func nextfile SYMTAB FUNCTAB".split()
)


def _awk(text: str, _site: Site) -> str | None:
    """No pipe, no redirect, no call that reaches out: ``>`` is a comparison outside braces, and in parentheses."""
    fine = len(text) <= LONGEST and _awk_only_prints(text)
    return None if fine else "the program is not certain only to print"


def _awk_reaches(kind: str | None, token: str, braces: int, parens: int) -> bool:
    if kind == "word":
        # `for (print "x" > file; …)`: in parentheses > is a comparison, but not after a statement's word.
        return token in _AWK_FORBIDDEN or (parens > 0 and token in ("print", "printf"))
    return kind == "more" and braces > 0 and parens == 0


def _awk_only_prints(text: str) -> bool:
    if "/" in text and "\n" in text:  # a line's end may part a value from a regular expression
        return False
    at, braces, parens, before = 0, 0, 0, "operator"
    while at < len(text):
        match = _AWK_TOKEN.match(text, at)
        if match is None:
            return False
        kind, token = match.lastgroup, match.group()
        at = match.end()
        if kind == "space":
            continue
        if kind == "slash":
            # A division after a value; else a regular expression begins. What might be either is not certain.
            if before in ("word", "number"):
                before = "operator"
            elif before != "operator" or (match := _AWK_REGEX.match(text, at - 1)) is None:
                return False
            else:
                at, before = match.end(), "string"
            continue
        braces += (token == "{") - (token == "}")
        parens += (token == "(") - (token == ")")
        if _awk_reaches(kind, token, braces, parens) or braces < 0 or parens < 0 or (parens and token in ("{", "}")):
            return False
        if token in (")", "]", "++", "--", "$"):
            before = "either"
        elif kind == "word" and token not in _AWK_KEYWORDS:
            before = "word"
        else:
            before = "operator" if kind in ("word", "more", "operator") else str(kind)
    return braces == 0 and parens == 0


# jq ----------------------------------------------------------------------------------------------------------------

_JQ_REACHES = re.compile(r"""(?<![.\w"])(?:import|include|env|modulemeta|get_search_list)\b""")


def _jq(text: str, _site: Site) -> str | None:
    # jq 1.6 allows blanks, lines and comments between $ and the name.
    reaches = _JQ_REACHES.search(text) or ("$" in text and ("ENV" in text or "__prog" in text))
    return f"{text} may load a module or show the environment" if reaches else None


SED = Kind(check=_sed, dashed=True)
AWK = Kind(check=_awk, dashed=True)
JQ = Kind(check=_jq, dashed=True)
