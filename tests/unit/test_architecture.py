"""The architecture as failing tests: who imports whom, how large a thing may grow, what a name may be called."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("bubbles", "sandbox_backends")
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_CONSTRUCTOR_PARAMETERS = 6
ALLOWANCE = ROOT / "tests" / "unit" / "size_allowance.txt"

Function = ast.FunctionDef | ast.AsyncFunctionDef

INSIDE = ("sandbox_backends/runner/*.py", "sandbox_backends/probes/inside/*.py")
"""What is carried into a place: it meets an old Python there and nothing of ours but its own folder."""
INSIDE_PYTHON = (3, 8)

FIXED_PARTS = """
README.md SPEC.md SECURITY.md CONTRIBUTING.md CHANGELOG.md LICENSE Makefile pyproject.toml .ci/run
bubbles sandbox_backends images compose bridge skills_template tests
"""
FORBIDDEN_WORDS = {"util", "utils", "helper", "helpers", "common", "manager", "handler", "base", "abstract", "impl"}
STARTS_A_PROCESS = re.compile(
    r"subprocess(\..*)?|os\.(system|popen|fork|forkpty|exec[lv]p?e?|spawn[lv]p?e?|posix_spawnp?)|pty\.(fork|spawn)"
    r"|asyncio\.create_subprocess_(exec|shell)|multiprocessing(\..*)?"
)
READS_THE_ENVIRONMENT = re.compile(r"os\.(environb?|getenvb?)")


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py") if "cases" not in path.parts)


def inside_files() -> list[Path]:
    return sorted(path for pattern in INSIDE for path in ROOT.glob(pattern))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), path)


def qualified(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """Every class and function below ``node`` with its dotted name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | Function):
            name = f"{prefix}{child.name}"
            yield name, child
            yield from qualified(child, f"{name}.")
        else:
            yield from qualified(child, prefix)


def tool(*command: str) -> None:
    """Run one of the tools of this environment in the project and show what it says when it fails."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / command[0]), *command[1:]],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"},
    )
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)


@pytest.mark.parametrize(
    "command",
    [
        ("lint-imports", "--no-logo"),
        ("ruff", "check", "--no-fix", "."),
        ("ruff", "format", "--check", "."),
        pytest.param(("mypy",), marks=pytest.mark.timeout(300)),
    ],
    ids=["import contracts", "lint", "format", "types"],
)
def test_the_tools_find_nothing(command: tuple[str, ...]) -> None:
    tool(*command)


def sizes() -> Iterator[tuple[str, int, int]]:
    """Everything with a budget: its name, how large it is, how large it may be."""
    for path in python_files(*PACKAGES, "tests"):
        yield relative(path), len(path.read_bytes().splitlines()), MAX_FILE_LINES
        for name, node in qualified(parsed(path)):
            whole = f"{relative(path)}::{name}"
            if isinstance(node, Function):
                yield whole, (node.end_lineno or 0) - node.lineno + 1, MAX_FUNCTION_LINES
                if node.name == "__init__":
                    yield f"{whole}()", parameters(node), MAX_CONSTRUCTOR_PARAMETERS
            elif (count := mutable_dataclass_fields(node)) is not None:
                yield f"{whole}()", count, MAX_CONSTRUCTOR_PARAMETERS


def parameters(node: Function) -> int:
    return len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) - 1


def mutable_dataclass_fields(node: ast.ClassDef) -> int | None:
    """A dataclass that changes is an object with a constructor; a frozen one is a record and may have many fields."""
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    mark = next((mark for mark in marks if mark.split("(")[0].split(".")[-1] == "dataclass"), None)
    if mark is None or "frozen=True" in mark:
        return None
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    return sum(
        "init=False" not in ast.unparse(item) and not ast.unparse(item.annotation).startswith("ClassVar")
        for item in fields
    )


def test_nothing_outgrows_its_budget_and_the_allowance_only_shrinks() -> None:
    lines = [line for line in ALLOWANCE.read_text().splitlines() if line and not line.startswith("#")]
    allowed = {name: int(number) for name, number in (line.rsplit(" ", 1) for line in lines)}
    faults = []
    for name, size, budget in sizes():
        allowance = allowed.pop(name, None)
        if size > (allowance or budget):
            faults.append(f"{name} has {size}, the budget is {allowance or budget}")
        elif allowance is not None and size < allowance:
            faults.append(f"{name} shrank to {size}: lower its entry in {ALLOWANCE.name}, or take it out")
    faults += [f"{name} is not there any more: take it out of {ALLOWANCE.name}" for name in allowed]
    assert not faults, "\n".join(faults)


def test_no_name_says_only_that_it_is_useful() -> None:
    found = []
    for path in python_files(*PACKAGES):
        names = [path.parent.name if path.stem == "__init__" else path.stem]
        names += [node.name for _, node in qualified(parsed(path)) if isinstance(node, ast.ClassDef)]
        for name in names:
            words = {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}
            found += [f"{relative(path)}: {name}" for _ in words & FORBIDDEN_WORDS]
    assert not found, "\n".join(found)


@pytest.mark.req("OPS-03")
@pytest.mark.parametrize("path", inside_files(), ids=relative)
def test_what_runs_inside_a_place_needs_only_an_old_python(path: Path) -> None:
    ast.parse(path.read_bytes(), path, feature_version=INSIDE_PYTHON)
    folder = relative(path.parent).replace("/", ".")
    own = folder if folder != "sandbox_backends" else f"{folder}.{path.stem}"  # a folder is carried whole, a file alone
    foreign = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            foreign += [alias.name for alias in node.names if alias.name.split(".")[0] not in sys.stdlib_module_names]
        elif isinstance(node, ast.ImportFrom):
            package = folder.split(".")[: -(node.level - 1) or None] if node.level else []
            module = ".".join([*package, node.module or ""]).rstrip(".")
            if module.split(".")[0] not in sys.stdlib_module_names and not f"{module}.".startswith(f"{own}."):
                foreign.append(module)
    assert not foreign


def uses(path: Path) -> Iterator[tuple[int, str]]:
    """Every dotted name that a file imports or mentions, with its line."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node)


def test_processes_are_started_only_in_sandbox_backends() -> None:
    found = [
        f"{relative(path)}:{line}: {name}"
        for path in python_files("bubbles")
        for line, name in uses(path)
        if STARTS_A_PROCESS.fullmatch(name)
    ]
    assert not found, "\n".join(found)


@pytest.mark.req("SEC-03")
def test_the_environment_is_read_in_one_file() -> None:
    readers = {
        relative(path)
        for path in set(python_files(*PACKAGES)) - set(inside_files())
        if any(READS_THE_ENVIRONMENT.fullmatch(name) for _, name in uses(path))
    }
    assert readers <= {"bubbles/config/load.py"}


def test_importing_everything_makes_nothing_on_disk(tmp_path: Path) -> None:
    modules = [
        relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in sorted(set(python_files(*PACKAGES)) - set(inside_files()))
    ]
    subprocess.run(
        [sys.executable, "-B", "-c", "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"]
        + modules,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        check=True,
    )
    assert list(tmp_path.iterdir()) == []


def test_the_entry_point_imports_nothing_heavy() -> None:
    heavy = ("pydantic", "docker", "litellm", "aiohttp", "mcp", "trafilatura", "rich")
    done = subprocess.run(
        [sys.executable, "-c", "import sys, bubbles.__main__, bubbles.errors; print(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(heavy).isdisjoint(done.stdout.split())


def test_the_tree_has_its_fixed_parts() -> None:
    missing = [name for name in FIXED_PARTS.split() if not (ROOT / name).exists()]
    assert not missing
