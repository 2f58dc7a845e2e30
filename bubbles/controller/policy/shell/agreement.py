"""The second reader: tree-sitter's grammar of bash, and whether it cuts a text as the first one does.

Each has errors of its own: tree-sitter-bash takes ``README<newline>\\rm`` for one command and ``;;`` for ``;``.
Where the two differ in a single word or operator, nothing is allowed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from bubbles.controller.policy.shell.tokens import Token

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Parser

MAX_DOUBTFUL = 6_000
"""Characters."""
MAX_DOCUMENTS = 4
MAX_EXPANSIONS = 100

_of_thread = threading.local()

_FRAMES = frozenset(
    "program list pipeline command command_name redirected_statement file_redirect herestring_redirect subshell "
    "compound_statement negated_command variable_assignments declaration_command unset_command "
    "test_command unary_expression binary_expression".split()
)
"""Node kinds whose children are looked at. The named children of any other are one word, if the kind is a word's."""
_WORDS = frozenset(
    "word number string raw_string ansi_c_string translated_string concatenation simple_expansion expansion "
    "command_substitution process_substitution arithmetic_expansion brace_expression variable_assignment "
    "file_descriptor variable_name test_operator".split()
)


@cache
def _language() -> Language:
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def _parser() -> Parser:
    """One for each thread: a parser keeps state while it works."""
    parser = getattr(_of_thread, "parser", None)
    if parser is None:
        from tree_sitter import Parser

        parser = _of_thread.parser = Parser(_language())
    return parser


def parses(text: str) -> bool:
    """Whether tree-sitter finds no fault in ``text``. What would take it tens of milliseconds is not tried: a fault."""
    if len(text) > MAX_DOUBTFUL or text.count("<<") > MAX_DOCUMENTS or text.count("${") > MAX_EXPANSIONS:
        return False
    return not _parser().parse(text.encode("utf-8", "surrogatepass")).root_node.has_error


def disagreement(text: str, tokens: Iterable[Token]) -> str | None:
    """Why tree-sitter's reading of ``text`` is another than ``tokens``, or None if it is the same."""
    data = text.encode("utf-8", "surrogatepass")
    root = _parser().parse(data).root_node
    if root.has_error:
        return "it does not parse"
    spans: list[tuple[int, int]] = []
    stranger = _collect(root, spans)
    if stranger is not None:
        return stranger
    mine = [(token.start, token.end) for token in tokens if token.operator != "\n"]
    if len(data) != len(text):
        offsets = _byte_offsets(text)
        mine = [(offsets[start], offsets[end]) for start, end in mine]
    if spans != mine:
        return "two readers cut it into different words"
    return None


def _collect(node: Node, spans: list[tuple[int, int]]) -> str | None:
    """Add the words and operators under ``node``, in order; a node kind that is not in the lists is the answer."""
    for child in node.children:
        kind = child.type
        if not child.is_named:
            if kind != "\n":
                spans.append((child.start_byte, child.end_byte))
        elif kind in _FRAMES:
            stranger = _collect(child, spans)
            if stranger is not None:
                return stranger
        elif kind in _WORDS:
            spans.append((child.start_byte, child.end_byte))
        elif kind != "comment":
            return f"'{kind.replace('_', ' ')}' is not read for certain"
    return None


def _byte_offsets(text: str) -> list[int]:
    """For each position in characters, and the end, the position in UTF-8."""
    offsets, here = [0], 0
    for character in text:
        here += len(character.encode("utf-8", "surrogatepass"))
        offsets.append(here)
    return offsets
