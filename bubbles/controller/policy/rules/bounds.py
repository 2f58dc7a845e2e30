"""How much a statement of a rule file could cost, found without running it.

The interpreter has no limit of its own on memory or steps, cannot be interrupted inside one operation, and overflows
the stack of the process on deep nesting. So each statement that does more than call ``prefix_rule`` with literals is
weighed first: an upper bound of the size of every value is carried through the very steps that the evaluation would
take. What cannot be bounded is refused, whatever it would have done.

Statements are read by Python's own parser, whose grammar has every form that Starlark has.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

MAX_WORK = 400_000
"""The sizes of all values that a file makes, added up: characters, elements and steps."""
MAX_SIZE = 100_000
"""Of one value."""
MAX_NESTING = 60
MAX_CALLS = 20

_RULE_CALLS = frozenset(("prefix_rule", "host_executable", "network_rule"))
_FUNCTIONS = _RULE_CALLS | frozenset(
    (
        "abs all any bool dict dir enumerate fail hasattr len list max min range repr reversed sorted str tuple type "
        "zip"
    ).split()
)
_GROWS = frozenset("append extend insert update setdefault add".split())
_MULTIPLIES = frozenset("format join replace".split())
_METHODS = frozenset(
    "capitalize clear count elems endswith find get index isalnum isalpha isdigit islower isspace istitle isupper "
    "items keys lower lstrip partition pop popitem remove removeprefix removesuffix rfind rindex rpartition rsplit "
    "rstrip split splitlines startswith strip title upper values".split()
)


class TooMuchError(Exception):
    """Says why, in a clause about the statement."""


class Size(NamedTuple):
    """Upper bounds of a value."""

    weight: int
    """Characters and elements, all levels together; of a number its amount."""
    length: int
    """Elements of the outermost level."""
    item: int
    """The weight of the heaviest of these."""


Known = Size | ast.FunctionDef | ast.Lambda | str
"""What a name stands for: a value, a function of the file, or the name of a built-in one."""

ONE = Size(1, 1, 1)


def parse_statement(text: str) -> list[ast.stmt]:
    """Raises ``TooMuchError`` also for what is no statement."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes such as "\\d", which the interpreter will refuse itself
            tree = ast.parse(text)
    except (MemoryError, RecursionError):
        raise TooMuchError("it is nested too deeply") from None
    except (SyntaxError, ValueError) as error:
        raise TooMuchError(f"it is not valid ({error.args[0]})") from None
    layer: list[ast.AST] = [tree]
    for _ in range(MAX_NESTING):
        layer = [child for node in layer for child in ast.iter_child_nodes(node)]
        if not layer:
            return tree.body
    raise TooMuchError(f"it is nested more than {MAX_NESTING} levels deep")


class Scales:
    """Weighs the statements of one file, in their order."""

    def __init__(self) -> None:
        self._scopes: list[dict[str, Known]] = [{}]
        self._work = 0
        self._grown = 0
        """What lists and dictionaries that already exist may have gained."""
        self._depth = 0
        self._branches = 0
        """How many loops and conditions it is in: there an assignment may be done or not."""
        self._returned = ONE

    def weigh(self, nodes: Sequence[ast.stmt]) -> None:
        """Raises ``TooMuchError`` for a statement that must not be evaluated."""
        self._scopes = self._scopes[:1]
        self._depth = self._branches = 0
        try:
            self._run(nodes)
        except RecursionError:
            raise TooMuchError("it is nested too deeply") from None

    def _run(self, nodes: Sequence[ast.stmt]) -> None:
        for node in nodes:
            step = _STATEMENTS.get(type(node))
            if step is None:
                raise TooMuchError(f"{_name_of(node)} is not part of the rule language")
            step(self, node)

    def size(self, node: ast.expr) -> Size:
        weigh = _EXPRESSIONS.get(type(node))
        if weigh is None:
            raise TooMuchError(f"{_name_of(node)} is not accepted in a rule file")
        return self._spent(weigh(self, node))

    def _spent(self, size: Size) -> Size:
        self._work += size.weight
        if size.weight > MAX_SIZE:
            raise TooMuchError(f"it may make a value of more than {MAX_SIZE:,} characters or elements")
        if self._work > MAX_WORK:
            raise TooMuchError(f"with it the file may take more than {MAX_WORK:,} steps")
        return size

    def _sum(self, nodes: Sequence[ast.expr | None]) -> Size:
        """Of a value that holds all of these."""
        sizes = [self.size(node) for node in nodes if node is not None]
        weight = sum(size.weight for size in sizes)
        return Size(weight + 1, max(len(sizes), 1), max((size.weight for size in sizes), default=1))

    def _loose(self, nodes: Sequence[ast.expr | None], factor: int = 1) -> Size:
        """Of a value made of these in some way."""
        weight = self._sum(nodes).weight * factor
        return Size(weight, weight, weight)

    # -- statements ---------------------------------------------------------------------------------------------------

    def _assign(self, node: ast.Assign) -> None:
        known = self._known(node.value)
        for target in node.targets:
            self._bind(target, known)

    def _augment(self, node: ast.AugAssign) -> None:
        both = self.size(ast.BinOp(left=_loaded(node.target), op=node.op, right=node.value))
        self._grown += both.weight  # a list changes in place, under all its names
        self._bind(node.target, both)

    def _branch(self, node: ast.If) -> None:
        self.size(node.test)
        self._branches += 1
        self._run(node.body)
        self._run(node.orelse)
        self._branches -= 1

    def _loop(self, node: ast.For) -> None:
        self._each(node.target, node.iter, lambda: self._run(node.body))

    def _define(self, node: ast.FunctionDef) -> None:
        if self._depth or node.decorator_list:
            raise TooMuchError("a function inside a function is not accepted in a rule file")
        self._bind_name(node.name, node)

    def _return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._returned = _greater(self._returned, self.size(node.value))

    def _nothing(self, _: ast.stmt) -> None:
        self._spent(ONE)

    def _express(self, node: ast.Expr) -> None:
        self.size(node.value)

    # -- names --------------------------------------------------------------------------------------------------------

    def _known(self, node: ast.expr) -> Known:
        if isinstance(node, ast.Lambda):
            if self._depth:
                raise TooMuchError("a function inside a function is not accepted in a rule file")
            return node
        if isinstance(node, ast.Name):
            return self._look_up(node.id)
        return self.size(node)

    def _look_up(self, name: str) -> Known:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return name if name in _FUNCTIONS else ONE

    def _bind(self, target: ast.expr, known: Known) -> None:
        if isinstance(target, ast.Name):
            self._bind_name(target.id, known)
        elif isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self._bind(each, known if isinstance(known, Size) else ONE)
        elif isinstance(target, ast.Subscript):
            self._grown += self.size(target.slice).weight + (known.weight if isinstance(known, Size) else 1)
        else:
            raise TooMuchError(f"an assignment to {_name_of(target)} is not accepted in a rule file")

    def _bind_name(self, name: str, known: Known) -> None:
        scope = self._scopes[-1]
        before = scope.get(name) if self._branches or self._depth else None
        if isinstance(before, Size):
            # Which branch ran is not known: the greater one holds.
            known = _greater(before, known) if isinstance(known, Size) else Size(MAX_SIZE, MAX_SIZE, MAX_SIZE)
        elif before is not None and before is not known:
            known = known if isinstance(known, Size) else Size(MAX_SIZE, MAX_SIZE, MAX_SIZE)
        scope[name] = known

    # -- expressions --------------------------------------------------------------------------------------------------

    def _constant(self, node: ast.Constant) -> Size:
        value = node.value
        if isinstance(value, str):
            return Size(len(value) + 1, len(value) + 1, 2)
        if isinstance(value, int):
            amount = min(abs(value), MAX_SIZE + 1) + 1
            return Size(amount, amount, amount)
        return ONE

    def _name(self, node: ast.Name) -> Size:
        known = self._look_up(node.id)
        if isinstance(known, ast.FunctionDef | ast.Lambda):
            raise TooMuchError(f"the function {node.id} handed on as a value is not accepted in a rule file")
        if isinstance(known, str):
            return ONE
        return Size(known.weight + self._grown, known.length + self._grown, known.item + self._grown)

    def _sequence(self, node: ast.List | ast.Tuple) -> Size:
        if any(isinstance(each, ast.Starred) for each in node.elts):
            return self._loose(node.elts)
        return self._sum(node.elts)

    def _dictionary(self, node: ast.Dict) -> Size:
        return self._loose([*node.keys, *node.values])

    def _binary(self, node: ast.BinOp) -> Size:
        left, right = self.size(node.left), self.size(node.right)
        if isinstance(node.op, ast.Add | ast.BitOr):
            return Size(left.weight + right.weight, left.length + right.length, max(left.item, right.item))
        if isinstance(node.op, ast.Mult):
            weight = left.weight * right.weight
            return Size(weight, weight, max(left.weight, right.weight))
        if isinstance(node.op, ast.Mod):
            weight = (left.weight + 1) * (right.weight + 1)
            return Size(weight, weight, weight)
        if isinstance(node.op, ast.Sub | ast.FloorDiv | ast.Div | ast.BitAnd | ast.BitXor | ast.RShift):
            weight = left.weight + right.weight
            return Size(2 * weight, 2 * weight, 2 * weight)
        raise TooMuchError(f"the operator {_name_of(node.op)} is not accepted in a rule file")

    def _parts(self, node: ast.expr) -> Size:
        return self._loose([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)])

    def _choice(self, node: ast.IfExp) -> Size:
        self.size(node.test)
        return _greater(self.size(node.body), self.size(node.orelse))

    def _text(self, node: ast.JoinedStr) -> Size:
        return self._loose(node.values, factor=4)

    def _placed(self, node: ast.FormattedValue) -> Size:
        return self.size(node.value)

    def _slice(self, node: ast.Slice) -> Size:
        return self._loose([node.lower, node.upper, node.step])

    def _comprehend(self, node: ast.ListComp | ast.DictComp) -> Size:
        made = [node.elt] if isinstance(node, ast.ListComp) else [node.key, node.value]
        total = count = item = 0

        def once() -> None:
            nonlocal total, count, item
            weight = self._sum(made).weight
            total, count, item = total + weight, count + 1, max(item, weight)

        def run(generators: Sequence[ast.comprehension]) -> None:
            if not generators:
                once()
                return
            first, *rest = generators

            def inner() -> None:
                for test in first.ifs:
                    self.size(test)
                run(rest)

            self._each(first.target, first.iter, inner)

        self._scopes.append({})
        run(node.generators)
        self._scopes.pop()
        return Size(total + 1, max(count, 1), max(item, 1))

    def _each(self, target: ast.expr, source: ast.expr, body: Callable[[], None]) -> None:
        over = self.size(source)
        if over.length > MAX_WORK - self._work:
            raise TooMuchError(f"with it the file may take more than {MAX_WORK:,} steps")
        self._branches += 1
        for _ in range(over.length):
            self._bind(target, self._spent(Size(over.item, over.item, over.item)))
            body()
        self._branches -= 1

    # -- calls --------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Size:
        given = [each.value if isinstance(each, ast.Starred) else each for each in node.args]
        arguments = self._loose([*given, *(keyword.value for keyword in node.keywords)])
        if isinstance(node.func, ast.Attribute):
            return self._call_method(node.func, arguments)
        known = self._known(node.func) if isinstance(node.func, ast.Name | ast.Lambda) else ONE
        if isinstance(known, ast.FunctionDef | ast.Lambda):
            return self._call_function(known, arguments)
        if not isinstance(known, str):
            name = node.func.id if isinstance(node.func, ast.Name) else "what it calls"
            raise TooMuchError(f"{name} is not a function that a rule file may call")
        if known in _RULE_CALLS or known == "len":
            return Size(arguments.weight, 1, 1)
        return Size(*(4 * arguments.weight + 4,) * 3) if known != "range" else Size(*(arguments.weight,) * 3)

    def _call_method(self, method: ast.Attribute, arguments: Size) -> Size:
        owner = self.size(method.value)
        if method.attr in _GROWS:
            self._grown += arguments.weight + 1
            weight = owner.weight + arguments.weight
        elif method.attr in _MULTIPLIES:
            weight = (owner.weight + 1) * (arguments.weight + 1)
        elif method.attr in _METHODS:
            weight = 4 * (owner.weight + arguments.weight)
        else:
            raise TooMuchError(f".{method.attr}() is not accepted in a rule file")
        return Size(weight, weight, weight)

    def _call_function(self, function: ast.FunctionDef | ast.Lambda, arguments: Size) -> Size:
        if self._depth >= MAX_CALLS:
            raise TooMuchError(f"its functions call each other more than {MAX_CALLS} levels deep, or without end")
        defaults = [default for default in (*function.args.defaults, *function.args.kw_defaults) if default is not None]
        each = _greater(arguments, self._loose(defaults))
        names = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        names += [extra for extra in (function.args.vararg, function.args.kwarg) if extra is not None]
        scopes, returned = self._scopes, self._returned
        self._scopes = [scopes[0], {name.arg: each for name in names}]
        self._returned = ONE
        self._depth += 1
        if isinstance(function, ast.Lambda):
            self._returned = self.size(function.body)
        else:
            self._run(function.body)
        self._depth -= 1
        result, self._returned, self._scopes = self._returned, returned, scopes
        return result


def _greater(one: Size, other: Size) -> Size:
    return Size(max(one.weight, other.weight), max(one.length, other.length), max(one.item, other.item))


def _loaded(target: ast.expr) -> ast.expr:
    return ast.Name(id=target.id, ctx=ast.Load()) if isinstance(target, ast.Name) else target


def _name_of(node: ast.AST) -> str:
    return _SAID.get(type(node), type(node).__name__.lower())


_SAID = {ast.Pow: "**", ast.LShift: "<<", ast.MatMult: "@", ast.AnnAssign: "a type", ast.NamedExpr: ":="}
_STATEMENTS: dict[type[ast.AST], Callable[[Scales, Any], None]] = {
    ast.Assign: Scales._assign,
    ast.AugAssign: Scales._augment,
    ast.If: Scales._branch,
    ast.For: Scales._loop,
    ast.FunctionDef: Scales._define,
    ast.Return: Scales._return,
    ast.Pass: Scales._nothing,
    ast.Break: Scales._nothing,
    ast.Continue: Scales._nothing,
    ast.Expr: Scales._express,
}
_EXPRESSIONS: dict[type[ast.AST], Callable[[Scales, Any], Size]] = {
    ast.Constant: Scales._constant,
    ast.Name: Scales._name,
    ast.List: Scales._sequence,
    ast.Tuple: Scales._sequence,
    ast.Dict: Scales._dictionary,
    ast.BinOp: Scales._binary,
    ast.UnaryOp: Scales._parts,
    ast.BoolOp: Scales._parts,
    ast.Compare: Scales._parts,
    ast.Subscript: Scales._parts,
    ast.Starred: Scales._parts,
    ast.IfExp: Scales._choice,
    ast.JoinedStr: Scales._text,
    ast.FormattedValue: Scales._placed,
    ast.Slice: Scales._slice,
    ast.ListComp: Scales._comprehend,
    ast.DictComp: Scales._comprehend,
    ast.Call: Scales._call,
}
