"""Python: test runners, linters, type checkers."""

from __future__ import annotations

import re

from bubbles.controller.policy.lane.files import code, coverage_folder, report
from bubbles.controller.policy.lane.kinds import (
    CACHE_FOLDER,
    CODE,
    COUNT,
    COVERAGE_FOLDER,
    NAME,
    NUMBER,
    OWN,
    REPORT,
    SETTINGS,
    TESTS,
    WHEN,
    WORD,
    matching,
    one_of,
)
from bubbles.controller.policy.lane.table import Kind, Site, Tool

_REWRITES = "rewrites files"
_CODE = "names code to load"
_WAITS = "waits for somebody to type"

# A warning's category is imported by its name; ours has no module but pytest's.
WARNING = matching(
    r"(?:default|error|ignore|always|module|once)(?::[^:]*(?::(?:pytest\.)?\w*)?)?", "a plain warning filter"
)


def _coverage_report(text: str, site: Site) -> str | None:
    kind, _, target = text.partition(":")
    if kind not in ("", "term", "term-missing", "html", "xml", "json", "lcov"):
        return f"{text} is not a kind of coverage report"
    if not target or (kind.startswith("term") and target == "skip-covered"):
        return None
    if kind == "html":
        return coverage_folder(target, site)
    return report(target, site)


PYTEST = Tool(
    flags="""-q -v -x -s -l -h --quiet --verbose --exitfirst --showlocals --no-showlocals --help --version -V --lf
    --last-failed --ff --failed-first --nf --new-first --sw --stepwise --sw-skip --stepwise-skip --sw-reset
    --collect-only --co --no-header --no-summary --no-fold-skipped --force-short-summary --disable-warnings
    --disable-pytest-warnings --strict --strict-markers --strict-config --runxfail --full-trace --xfail-tb --fixtures
    --funcargs --fixtures-per-test --markers --setup-show --setup-plan --setup-only --keep-duplicates --noconftest
    --continue-on-collection-errors --doctest-modules --doctest-ignore-import-errors --doctest-continue-on-failure
    --cache-clear --no-cov --no-cov-on-fail --cov-branch --cov-append --cov-reset --asyncio-debug
    --hypothesis-show-statistics --hypothesis-explain --benchmark-only --benchmark-skip --benchmark-disable
    --benchmark-enable --timeout-disable-debugger-detection --self-contained-html --reuse-db --create-db
    --nomigrations --no-migrations --forked --mypy --ruff --flake8 --isort --randomly-dont-reorganize --random-order""",
    takes={
        WORD: """-k -m --junit-prefix --log-format --log-date-format --log-cli-format --log-cli-date-format
        --log-file-format --log-file-date-format --hypothesis-profile --cov-context --ignore-glob""",
        matching(r"[\w*.-]*\.(?:py|rst|md|pyi)", "a pattern for sources or documents"): "--doctest-glob",
        NUMBER: """--maxfail --durations --durations-min --verbosity --timeout --session-timeout --max-warnings
        --reruns --reruns-delay --cov-fail-under --hypothesis-seed --count --maxprocesses --max-worker-restart
        --randomly-seed --shard-id --num-shards""",
        COUNT: "-n --numprocesses",
        matching(r"[A-Za-z]{1,12}", "a set of letters"): "-r --report-chars",
        one_of("auto long short line native no"): "--tb",
        one_of("fd sys no tee-sys"): "--capture",
        one_of("no stdout stderr log all"): "--show-capture",
        one_of("prepend append importlib"): "--import-mode",
        one_of("all none"): "--lfnf --last-failed-no-failures",
        one_of("plain rewrite"): "--assert",
        one_of("load loadscope loadfile loadgroup worksteal each no"): "--dist",
        one_of("none cdiff ndiff udiff only_first_failure"): "--doctest-report",
        one_of("signal thread"): "--timeout-method --timeout_method",
        one_of("auto strict"): "--asyncio-mode --anyio-mode",
        one_of("quiet normal verbose debug"): "--hypothesis-verbosity",
        one_of("w a"): "--log-file-mode",
        one_of("pyproject.toml setup.cfg tox.ini .coveragerc"): "--cov-config",
        matching(r"no:[\w.-]+", "no:NAME, which leaves a plugin out"): "-p",
        WHEN: "--color --code-highlight --log-auto-indent",
        NAME: "--log-level --log-cli-level --log-file-level --log-disable",
        WARNING: "-W --pythonwarnings",
        REPORT: "--junitxml --junit-xml --log-file --html --json-report-file --report-log",
        TESTS: "--ignore --deselect",
        Kind(check=_coverage_report): "--cov-report",
    },
    maybe={OWN: "--cov", NAME: "--cache-show"},
    traps={
        "--basetemp": "empties a directory that it is given",
        "-p": "loads a plugin",
        "-c --config-file": "names another configuration, which may hold options and code",
        "--rootdir --confcutdir": "moves the folder that pytest takes for the project",
        "-o --override-ini": "can set any option, those that load code or write files included",
        "--pastebin": "uploads the output to a public site",
        "--debug": "writes a file",
        "--pyargs": "runs tests of any package that can be imported",
        "--pdb --trace --pdbcls": _WAITS,
        "-f --looponfail": "never ends",
    },
    operands=TESTS,
    dashes=False,  # pytest reads options after it all the same
)


def _unit(text: str, site: Site) -> str | None:
    """``tests.test_x.TestY.test_z``, or a file. unittest imports any dotted name there is, and calls what it finds."""
    if text.endswith(".py"):
        return code(text, site)
    parts = text.split(".")
    named = all(map(_IDENTIFIER, parts)) and _TEST_PACKAGE(parts[0]) and _TEST_PART(parts[-1])
    # Python has a package `test` of its own.
    if named and (parts[0] != "test" or len(parts) < 2 or parts[1].startswith("test_")):
        return None if not parts[-1][0].isupper() or _TEST_PACKAGE(parts[-2]) else f"{text} may be more than a test"
    return f"{text} is not the name of a test"


_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII).fullmatch
_TEST_PACKAGE = re.compile(r"tests?|test_\w+", re.ASCII).fullmatch
_TEST_PART = re.compile(r"tests?|test_?\w+|[A-Z]\w*|unit|integration|functional|smoke|regression", re.ASCII).fullmatch

_UNITTEST = Tool(
    flags="-v -q -f -b -c -h --verbose --quiet --failfast --buffer --catch --locals --help",
    takes={WORD: "-k", NUMBER: "--durations"},
)
_FOUND = {OWN: "-s --start-directory -t --top-level-directory", WORD: "-p --pattern"}
UNITTEST = Tool(
    like=(_UNITTEST,),
    verbs={"discover": Tool(like=(_UNITTEST,), takes=_FOUND, lead=(OWN, WORD, OWN))},
    operands=Kind(check=_unit),
    takes=_FOUND,
    bare=True,
)

_COVERAGE = Tool(
    flags="""-i --ignore-errors -m --show-missing --skip-covered --skip-empty --no-skip-covered -q --quiet -a --append
    --keep --branch -p --parallel-mode --pretty-print --timid""",
    takes={
        WORD: "--include --omit --source --source-pkgs --contexts --context --title --sort --concurrency",
        NUMBER: "--fail-under --precision",
        REPORT: "-o",
        COVERAGE_FOLDER: "-d --directory",
        one_of("pyproject.toml setup.cfg tox.ini .coveragerc"): "--rcfile",
        one_of("text markdown total"): "--format",
    },
)
COVERAGE = Tool(
    flags="--version",
    verbs={
        "run": Tool(
            like=(_COVERAGE,),
            takes={Kind(check=lambda _text, _site: None, into={"pytest": PYTEST, "unittest": UNITTEST}): "-m --module"},
            needs="-m --module",
            why="runs a script",
            permutes=False,
        ),
        "report html xml json lcov": Tool(like=(_COVERAGE,), operands=OWN),
        "combine": Tool(like=(_COVERAGE,), operands=OWN),
        "erase": Tool(),
    },
    bare=True,
)

_RUFF = Tool(
    flags="""-v -q -s -h -n --verbose --quiet --silent --help --no-cache --diff --preview --no-preview --isolated
    --respect-gitignore --no-respect-gitignore --force-exclude --no-force-exclude""",
    takes={
        WORD: "--exclude --extend-exclude --target-version --extension",
        NUMBER: "--line-length",
        NAME: "--output-format --stdin-filename",
        SETTINGS: "--config",
        WHEN: "--color",
    },
)
RUFF = Tool(
    flags="--version -V -h --help",
    verbs={
        "check": Tool(
            like=(_RUFF,),
            flags="""--no-fix --no-unsafe-fixes --statistics --show-files --show-settings -e --exit-zero
            --exit-non-zero-on-fix --ignore-noqa""",
            takes={
                WORD: """--select --ignore --extend-select --extend-ignore --per-file-ignores
                --extend-per-file-ignores --fixable --unfixable""",
                REPORT: "-o --output-file",
            },
            traps={"--fix --fix-only --unsafe-fixes --add-noqa --add-ignore": _REWRITES, "-w --watch": "never ends"},
            operands=OWN,
        ),
        "format": Tool(
            like=(_RUFF,),
            flags="--check",
            takes={WORD: "--range"},
            needs="--check --diff",
            why=f"{_REWRITES} without --check",
            operands=OWN,
        ),
        "rule linter config version": Tool(flags="--all", takes={NAME: "--output-format"}, operands=NAME),
    },
    traps={"clean": "deletes caches"},
    bare=True,
)

BLACK = Tool(
    flags="""--check --diff -q -v -h --quiet --verbose --help --version -S -C --skip-string-normalization
    --skip-magic-trailing-comma --color --no-color --fast --safe --preview --unstable --pyi --ipynb""",
    takes={
        NUMBER: "-l --line-length -W --workers",
        WORD: "-t --target-version --include --exclude --extend-exclude --force-exclude --line-ranges",
        SETTINGS: "--config",
    },
    needs="--check --diff --version --help -h",
    why=f"{_REWRITES} without --check",
    operands=OWN,
)

ISORT = Tool(
    flags="""-c --check --check-only --diff -q -v --quiet --verbose --version --vn --version-number --color
    --gitignore --float-to-top --combine-as --trailing-comma --use-parentheses --force-sort-within-sections""",
    takes={
        NUMBER: "-l --line-length --line-width -w -j --jobs",
        NAME: "--profile --py -m --multi-line",
        WORD: "-p --project -s --skip --sg --skip-glob --src",
        SETTINGS: "--settings-file --sp --settings-path",
    },
    needs="-c --check --check-only --diff --version --vn",
    why=f"{_REWRITES} without --check-only",
    operands=OWN,
)

MYPY = Tool(
    flags="""-v -V -h --verbose --version --help --strict --ignore-missing-imports --follow-untyped-imports
    --no-namespace-packages --namespace-packages --explicit-package-bases --no-explicit-package-bases
    --no-site-packages --warn-unused-configs --disallow-any-expr --disallow-any-decorated --disallow-any-explicit
    --disallow-any-generics --disallow-any-unimported --disallow-subclassing-any --disallow-untyped-calls
    --disallow-untyped-defs --disallow-incomplete-defs --check-untyped-defs --disallow-untyped-decorators
    --allow-untyped-defs --allow-untyped-calls --allow-redefinition --allow-untyped-globals --implicit-optional
    --no-implicit-optional --no-strict-optional --strict-optional --warn-redundant-casts --warn-unused-ignores
    --no-warn-unused-ignores --no-warn-no-return --warn-return-any --no-warn-return-any --warn-unreachable
    --no-implicit-reexport --implicit-reexport --strict-equality --no-strict-bytes --strict-bytes --extra-checks
    --show-error-context --show-column-numbers --show-error-end --show-error-codes --hide-error-codes
    --show-error-code-links --hide-error-context --pretty --no-pretty --no-color-output --no-error-summary
    --show-absolute-path --no-incremental --incremental --sqlite-cache --skip-version-check --show-traceback --tb
    --scripts-are-modules --exclude-gitignore --raise-exceptions --dump-build-stats --no-silence-site-packages
    --skip-cache-mtime-checks --report-deprecated-as-note""",
    takes={
        WORD: "--exclude --always-true --always-false --untyped-calls-exclude",
        NAME: "-m --module -p --package --python-version --platform --enable-error-code --disable-error-code",
        NUMBER: "-n --num-workers",
        one_of("normal silent skip error"): "--follow-imports",
        one_of("json"): "-O --output",
        one_of("global per_file"): "--junit-format",
        CACHE_FOLDER: "--cache-dir",
        SETTINGS: "--config-file",
        REPORT: "--junit-xml",
    },
    traps={
        "--install-types": "installs packages",
        "--python-executable": "names a program to run",
        "--pdb": _WAITS,
    },
    operands=OWN,
)

PYRIGHT = Tool(
    flags="--outputjson --stats --verbose --warnings --skipunannotated --dependencies --version --help -h",
    takes={
        NAME: "--pythonversion --pythonplatform --level",
        CODE: "-p --project",
        COUNT: "--threads",
    },
    traps={"--pythonpath": "names a program to run", "-w --watch": "never ends", "--createstub": "writes files"},
    operands=OWN,
)

PYLINT = Tool(
    flags="-E --errors-only -v --verbose --version -h --help --ignore-imports",
    takes={
        WORD: """-d --disable -e --enable --ignore --ignore-patterns --ignore-paths --confidence --msg-template
        --good-names --fail-on --ignored-modules""",
        NUMBER: "-j --jobs --max-line-length --fail-under --max-args --max-locals",
        one_of("text colorized json json2 parseable msvs no-header github"): "-f --output-format",
        WHEN: "-r --reports -s --score --recursive",
        SETTINGS: "--rcfile",
    },
    traps={
        """--load-plugins --init-hook --extension-pkg-allow-list --extension-pkg-whitelist
        --unsafe-load-any-extension""": _CODE
    },
    operands=OWN,
)

FLAKE8 = Tool(
    flags="""-q -v -h --quiet --verbose --help --version --count --statistics --show-source --no-show-source
    --disable-noqa --benchmark --exit-zero --doctests --isolated --tee --bug-report""",
    takes={
        WORD: """--select --ignore --extend-select --extend-ignore --exclude --extend-exclude --filename
        --per-file-ignores --enable-extensions --builtins --format""",
        NUMBER: "--max-line-length --max-doc-length --max-complexity --indent-size -j",
        COUNT: "--jobs",
        WHEN: "--color",
        SETTINGS: "--config",
        REPORT: "--output-file",
    },
    operands=OWN,
)

BANDIT = Tool(
    flags="-r -q -v -l -i --recursive --quiet --verbose --exit-zero --version",
    takes={
        WORD: "-t --tests -s --skip -x --exclude --severity-level --confidence-level",
        one_of("csv custom html json screen sarif txt xml yaml"): "-f --format",
        SETTINGS: "-c --configfile",
        REPORT: "-o --output",
    },
    operands=OWN,
)

STYLE = Tool(
    flags="-q -v -h --help --version --verbose --quiet --count --statistics --show-source --first --strict --explain",
    takes={
        WORD: "--select --ignore --exclude --convention --add-ignore --match --ignore-names --ignore-decorators",
        NUMBER: "--max-line-length --min-confidence --max-doc-length",
        SETTINGS: "--config",
    },
    operands=OWN,
)

CHECKER = Tool(
    flags="-q -v --verbose --quiet --version --error-on-warning --exit-zero --no-progress --help",
    verbs={"check": Tool(flags="-q -v --verbose --quiet --exit-zero --no-progress --summarize-errors", operands=OWN)},
    takes={NAME: "--output-format --python-version"},
    bare=True,
)
