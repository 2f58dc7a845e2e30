"""Python itself, and what runs the tools of a project: ``python -m``, ``uv run`` and kin."""

from __future__ import annotations

from bubbles.controller.policy.lane.kinds import NAME, NUMBER, OWN, READ, WORD, one_of
from bubbles.controller.policy.lane.python_tools import (
    BANDIT,
    BLACK,
    CHECKER,
    COVERAGE,
    FLAKE8,
    ISORT,
    MYPY,
    PYLINT,
    PYRIGHT,
    PYTEST,
    RUFF,
    STYLE,
    UNITTEST,
)
from bubbles.controller.policy.lane.table import Kind, Tool

_WAITS = "waits for somebody to type"

_PIP = Tool(
    flags="--version -V",
    traps={"install uninstall download wheel": "installs, removes or fetches packages"},
    verbs={
        "list freeze check": Tool(
            flags="--user --local -l --exclude-editable --editable -e --not-required --disable-pip-version-check -q -v",
            takes={one_of("columns freeze json"): "--format", NAME: "--exclude"},
            traps={"-o --outdated -u --uptodate": "asks the package index"},
        ),
        "show": Tool(flags="-f --files -v --verbose -q --disable-pip-version-check", operands=NAME),
    },
)

_MODULES: dict[str, Tool] = {
    "pytest": PYTEST,
    "py.test": PYTEST,
    "unittest": UNITTEST,
    "coverage": COVERAGE,
    "ruff": RUFF,
    "black": BLACK,
    "isort": ISORT,
    "mypy": MYPY,
    "pyright": PYRIGHT,
    "basedpyright": PYRIGHT,
    "pylint": PYLINT,
    "flake8": FLAKE8,
    "bandit": BANDIT,
    "pyflakes": Tool(operands=OWN),
    "pycodestyle": STYLE,
    "pydocstyle": STYLE,
    "vulture": STYLE,
}

_PYTHON_M = Kind(
    check=lambda _text, _site: None,
    into=_MODULES
    | {
        "compileall": Tool(
            flags="-q -qq -f -l -b",
            takes={NUMBER: "-r -j -o", WORD: "-x"},
            traps={"-i": "reads its arguments from a file", "-d -s -p": "is rarely needed"},
            operands=OWN,
            least=1,
            why="compiles what is installed, if it is given no folder",
        ),
        "py_compile": Tool(flags="-q --quiet", operands=OWN, least=1, why="needs a file"),
        "json.tool": Tool(
            flags="--sort-keys --json-lines --no-ensure-ascii --compact --tab --no-indent",
            takes={NUMBER: "--indent"},
            operands=READ,
            most=1,
        ),
        "tabnanny": Tool(flags="-v -q", operands=OWN),
        "pip": _PIP,
    },
)

PYTHON = Tool(
    flags="-B -u -I -E -s -S -q -v -O -OO -b -bb --version -V -VV -h --help",
    takes={
        _PYTHON_M: "-m",
        one_of("dev utf8 faulthandler importtime utf8=1 frozen_modules=off no_debug_ranges"): "-X",
        one_of("default error ignore always once module"): "-W",
    },
    traps={"-c": "runs code written in the command", "-i": _WAITS},
    needs="-m --version -V -VV -h --help",
    why="runs a program, or code that it reads",
)

_PYTHONS = "python python3 " + " ".join(f"python3.{minor}" for minor in range(7, 16))

# What a runner of a project's environment may run: a program of Python, never one of the shell's.
_RUNNABLE: dict[str, Tool] = {**_MODULES, "ty": CHECKER, "pyrefly": CHECKER, "pip": _PIP, _PYTHONS: PYTHON}

PROGRAMS: dict[str, Tool] = {
    **{name: tool for name, tool in _RUNNABLE.items() if name != "unittest"},
    "pip pip3": _PIP,
    "uv": Tool(
        flags="--version -V -q --quiet --offline --no-progress",
        verbs={
            "run": Tool(
                flags="""-q -v --quiet --verbose --frozen --locked --no-sync --offline --dev --no-dev --only-dev
                --active --all-extras --all-groups --no-progress --no-cache -n --exact --isolated --all-packages""",
                takes={
                    NAME: "--extra --group --no-group --only-group --package",
                    _PYTHON_M: "-m --module",
                },
                traps={
                    "--with --with-editable --with-requirements": "installs packages",
                    "--env-file": "loads a file of secrets",
                    "-p --python": "may download an interpreter",
                },
                verbs={name: tool for name, tool in _RUNNABLE.items() if name != "unittest"},
                permutes=False,
            ),
            "pip": Tool(verbs={"list freeze check show": _PIP.subtools["list"]}),
            "tree": Tool(flags="--frozen --locked --offline --no-dev", takes={NUMBER: "-d --depth", NAME: "--package"}),
        },
        traps={"sync add remove lock": "changes the environment or the project"},
    ),
    "poetry": Tool(
        flags="--version -V",
        verbs={
            "run": Tool(verbs={name: tool for name, tool in _RUNNABLE.items() if name != "unittest"}, permutes=False),
            "check": Tool(flags="--lock --strict -q"),
            "show": Tool(flags="-t --tree --top-level -T --no-dev", takes={NAME: "--only --with"}, operands=NAME),
        },
    ),
    "pipenv pdm hatch rye": Tool(
        flags="--version",
        verbs={
            "run": Tool(verbs={name: tool for name, tool in _RUNNABLE.items() if name != "unittest"}, permutes=False)
        },
    ),
    "shellcheck": Tool(
        flags="-x -a -C --external-sources --check-sourced --norc --version",
        takes={WORD: "-s --shell -S --severity -e --exclude -i --include -f --format -o --enable"},
        operands=OWN,
    ),
    "yamllint": Tool(
        flags="-s --strict --no-warnings --list-files --version",
        takes={one_of("parsable standard colored github auto"): "-f --format"},
        operands=OWN,
    ),
}
