"""JavaScript and TypeScript: test runners, compilers, linters, formatters."""

from __future__ import annotations

import re
from dataclasses import replace

from bubbles.controller.policy.lane.files import code, own
from bubbles.controller.policy.lane.kinds import (
    COUNT,
    NAME,
    NUMBER,
    OWN,
    REPORT,
    SETTINGS,
    SOURCE,
    WHEN,
    WORD,
    matching,
    one_of,
    some_of,
    without_lines,
)
from bubbles.controller.policy.lane.table import Kind, Site, Tool
from bubbles.controller.policy.lane.words import TASK

_REWRITES = "rewrites files"
_CODE = "names code to load"
_ENDLESS = "never ends"
_SETUP = "names another configuration"

SHARD = matching(r"\d+/\d+", "a part such as 1/3")
_REPORTERS = one_of(
    """default verbose dot json junit tap tap-flat basic tree hanging-process github-actions spec min list line html
    nyan progress landing summary minimal agent"""
)
_COVERAGE_REPORTERS = some_of("text text-summary json json-summary lcov lcovonly html clover cobertura none teamcity")


def _pattern(text: str, site: Site) -> str | None:
    """A test's path, a part of its name, a package: whichever it is, it leads nowhere else."""
    return own(without_lines(text), site) if text else None


def _title(text: str, site: Site) -> str | None:
    return _pattern(text.lstrip("@"), site)


def _suite(text: str, site: Site) -> str | None:
    return code(without_lines(text), site) if text else None


PATTERN = Kind(check=_pattern, globs=True)
TITLE = Kind(check=_title, at=True)
"""A part of a test's name, ``@slow`` included."""
SUITE = Kind(check=_suite, globs=True)
"""A test's path, or a part of it."""

JEST = Tool(
    flags="""--ci --coverage --no-coverage --collectCoverage --runInBand -i --silent --verbose --passWithNoTests -b
    --no-cache --detectOpenHandles --forceExit --onlyChanged -o --onlyFailures -f --findRelatedTests --listTests
    --watchAll=false --watch=false --no-watch --no-watchAll --json --expand -e --colors --color --no-color
    --logHeapUsage --all --errorOnDeprecated --showConfig --version --help -h --lastCommit --detectLeaks --randomize
    --showSeed --no-silent --workerThreads --noStackTrace --coverage=false --coverage=true --no-verbose""",
    takes={
        TITLE: "-t --testNamePattern",
        PATTERN: """--testPathPattern --testPathPatterns --testPathIgnorePatterns
        --collectCoverageFrom --coveragePathIgnorePatterns --changedSince""",
        COUNT: "-w --maxWorkers",
        NUMBER: "--testTimeout --seed --maxConcurrency --workerIdleMemoryLimit",
        NAME: "--selectProjects --ignoreProjects",
        SHARD: "--shard",
        one_of("node jsdom"): "--env --testEnvironment",
        one_of("v8 babel"): "--coverageProvider",
        _COVERAGE_REPORTERS: "--coverageReporters",
        REPORT: "--outputFile",
        SETTINGS: "-c --config",
    },
    maybe={NUMBER: "--bail"},
    traps={
        "--watch --watchAll": _ENDLESS,
        "-u --updateSnapshot": "rewrites what the tests expect",
        """--setupFiles --setupFilesAfterEnv --globalSetup --globalTeardown --resolver --runner --transform
        --reporters --testRunner --testSequencer --preset --testResultsProcessor""": _CODE,
        "--rootDir --roots --cacheDirectory --coverageDirectory --clearCache": "moves or deletes files of its own",
    },
    operands=PATTERN,
)
VITEST = Tool(
    flags="""--run --coverage --coverage.enabled --coverage.enabled=true --coverage.all --passWithNoTests --silent
    --no-color --color --globals --logHeapUsage --no-file-parallelism --fileParallelism=false --hideSkippedTests
    --watch=false --no-watch --dom --typecheck --typecheck.only --no-isolate --isolate --allowOnly --allowOnly=false
    --clearScreen=false --no-clearScreen --dangerouslyIgnoreUnhandledErrors --version -v --help -h
    --expandSnapshotDiff --disableConsoleIntercept --printConsoleTrace --coverage=false --update=false --no-cache""",
    takes={
        TITLE: "-t --testNamePattern",
        PATTERN: "--exclude --coverage.include --coverage.exclude",
        _REPORTERS: "--reporter",
        _COVERAGE_REPORTERS: "--coverage.reporter",
        NUMBER: """--retry --testTimeout --hookTimeout --teardownTimeout --maxConcurrency --slowTestThreshold
        --sequence.seed""",
        COUNT: "--maxWorkers --minWorkers",
        NAME: "--project --mode",
        SHARD: "--shard",
        one_of("forks threads vmThreads vmForks"): "--pool",
        one_of("node jsdom happy-dom edge-runtime"): "--environment",
        one_of("v8 istanbul"): "--coverage.provider",
        REPORT: "--outputFile",
        SETTINGS: "-c --config",
    },
    maybe={NUMBER: "--bail", NAME: "--changed"},
    traps={
        "-w --watch --ui --api --inspect --inspect-brk --browser": _ENDLESS,
        "watch dev bench typecheck": f"is a sub-command that {_ENDLESS}",
        "init complete": "is a sub-command that changes the project",
        "--json": "may write its output over the file that follows",
        "-u --update": "rewrites what the tests expect",
        "-r --root --dir": "moves the folder that is tested",
        "--globalSetup --execArgv --poolOptions": _CODE,
    },
    operands=PATTERN,
)
MOCHA = Tool(
    flags="""-b -c -C -G -i -p -A --bail --exit --recursive --parallel --forbid-only --forbid-pending --check-leaks
    --color --no-color --colors --dry-run --full-trace --growl --invert --diff --no-diff --inline-diffs --async-only
    --no-timeouts --allow-uncaught --list-reporters --version -V --help -h""",
    takes={
        TITLE: "-g --grep -f --fgrep",
        PATTERN: "--ignore",
        SUITE: "--spec",
        _REPORTERS: "-R --reporter",
        NUMBER: "-t --timeout -s --slow --retries -j --jobs",
        one_of("bdd tdd qunit exports"): "-u --ui",
        some_of("js cjs mjs jsx ts cts mts tsx coffee"): "--extension",
        SETTINGS: "--config",
    },
    traps={
        "-r --require --import --loader --file": _CODE,
        "-w --watch": _ENDLESS,
        "inspect debug": "is a sub-command that waits for a debugger",
        "init": "is a sub-command that changes the project",
    },
    operands=SUITE,
)


def _packages(text: str, site: Site) -> str | None:
    return None if _SCOPED(text) else _pattern(text, site)


_SCOPED = re.compile(r"@[\w-]+/[\w.-]+", re.ASCII).fullmatch
_PACKAGES = Kind(check=_packages, at=True)
# What a script of package.json is given: it hands it on to one of these, nobody knows which.
_ARGUMENTS = Tool(
    like=(MOCHA, VITEST, JEST),
    flags="""--quiet --bail --run --check --noEmit --pretty --parallel --exit --recursive --test-only --no-warnings
    --strict""",
    takes={
        _PACKAGES: "--filter",
        PATTERN: "--grep -g --fgrep --test-name-pattern -k -t --testNamePattern",
        NUMBER: "--max-warnings --timeout --retries --workers --test-timeout --test-concurrency",
        _REPORTERS: "--reporter --test-reporter",
    },
    traps={"--fix --write": _REWRITES, "-c --config": _SETUP, "--outputFile": "writes a file"},
    operands=SUITE,
    dashes=False,
)
# What does not mean the same, or is not as harmless, to each of them.
for _name in "-c --config --outputFile -r -u -f -e -i -p -w -A -G --ui --json".split():
    _ARGUMENTS.options.pop(_name, None)
# yarn and pnpm hand on a -- of the person's, or drop it.
SCRIPT_ARGUMENTS = Tool(like=(_ARGUMENTS,), operands=SUITE, after=_ARGUMENTS)


TSC = Tool(
    flags="""--noEmit --skipLibCheck --strict --listFiles --listFilesOnly --showConfig --traceResolution --allowJs
    --checkJs --esModuleInterop --resolveJsonModule --isolatedModules --noUnusedLocals --noUnusedParameters
    --noImplicitAny --noErrorTruncation --extendedDiagnostics --diagnostics --explainFiles --version -v --help -h
    --experimentalDecorators --allowSyntheticDefaultImports --noUncheckedIndexedAccess --strictNullChecks
    --allowImportingTsExtensions --pretty=false""",
    takes={
        OWN: "-p --project",
        NAME: "-t --target -m --module --moduleResolution --jsx --types --moduleDetection --jsxImportSource",
        matching(r"[\w.,]+", "a list of libraries"): "--lib",
    },
    traps={"-w --watch": _ENDLESS, "--outDir --outFile --declarationDir": "writes files"},
    last={WHEN: "--pretty --incremental"},
    needs="--noEmit --version -v --showConfig --listFilesOnly --help -h",
    why="writes what it compiles without --noEmit",
    operands=SOURCE,
    bundles=False,
    dashes=False,
)
ESLINT = Tool(
    flags="""--quiet --no-color --color --cache --no-cache --no-eslintrc --no-config-lookup
    --no-error-on-unmatched-pattern --no-inline-config --report-unused-disable-directives --debug --version -v -h
    --help --no-ignore --pass-on-no-patterns --pass-on-unpruned-suppressions --no-warn-ignored --exit-on-fatal-error
    --fix-dry-run --stats --env-info""",
    takes={
        WORD: "--ext --rule --ignore-pattern --global --env --report-unused-disable-directives-severity --flag",
        NUMBER: "--max-warnings",
        COUNT: "--concurrency",
        OWN: "--ignore-path --print-config",
        one_of("stylish json json-with-metadata compact unix html junit checkstyle tap visualstudio"): "-f --format",
        one_of("content metadata"): "--cache-strategy",
        SETTINGS: "-c --config",
        REPORT: "-o --output-file",
    },
    traps={
        "--fix --fix-type --suppress-all --suppress-rule --prune-suppressions": _REWRITES,
        "--rulesdir --plugin --parser --resolve-plugins-relative-to": _CODE,
        "--init": "changes the project",
    },
    operands=OWN,
)
PRETTIER = Tool(
    flags="""-c --check -l --list-different -u --ignore-unknown --no-config --no-editorconfig --no-color
    --no-error-on-unmatched-pattern --cache --version -v -h --help --single-quote --no-semi --check-ignore-pragma""",
    takes={
        one_of("silent error warn log debug"): "--log-level --loglevel",
        NUMBER: "--print-width --tab-width",
        one_of(
            """babel babel-flow babel-ts flow typescript acorn espree meriyah css less scss json json5 jsonc
            json-stringify graphql markdown mdx vue yaml html angular lwc glimmer"""
        ): "--parser",
        one_of("all es5 none"): "--trailing-comma",
        one_of("lf crlf cr auto"): "--end-of-line",
        OWN: "--ignore-path --find-config-path --file-info",
        SETTINGS: "--config",
    },
    traps={"-w --write": _REWRITES, "--plugin --plugin-search-dir": _CODE},
    needs="-c --check -l --list-different --version -v -h --help --find-config-path --file-info",
    why="shows files whole without --check",
    operands=OWN,
)
_LINTER = Tool(
    flags="""--quiet --verbose --no-errors-on-unmatched --max-diagnostics=none --error-on-warnings --version
    --colors=off --deny-warnings -q --changed --staged --no-color""",
    takes={
        NUMBER: "--max-diagnostics --max-warnings",
        one_of("info warn error"): "--diagnostic-level",
        one_of(
            "default json github junit summary gitlab stylish unix checkstyle compact string verbose human machine"
        ): "--reporter --format -f --formatter --output",
        one_of("error warning hint"): "--fail-on-warnings --threshold",
        OWN: "--tsconfig --ignore-path",
    },
    traps={"--write --fix --apply --apply-unsafe --unsafe --fix-suggestions": _REWRITES, "--watch": _ENDLESS},
    operands=OWN,
)
_PLAYWRIGHT = Tool(
    flags="--list --quiet --forbid-only --fully-parallel --pass-with-no-tests -x --last-failed",
    takes={
        TITLE: "-g --grep --grep-invert",
        NAME: "--project",
        NUMBER: "--retries --timeout --max-failures --repeat-each",
        COUNT: "-j --workers",
        SHARD: "--shard",
        some_of("list line dot json junit github"): "--reporter",
    },
    traps={
        "--ui --debug --headed": "waits for somebody to type",
        "-u --update-snapshots": "rewrites what the tests expect",
    },
    operands=PATTERN,
)
_BUNDLER = Tool(
    flags="--debug --no-lint --minify --sourcemap",
    takes={NAME: "--mode -m", one_of("info warn error silent"): "--logLevel -l"},
)

TOOLS: dict[str, Tool] = {
    "tsc vue-tsc": TSC,
    "eslint": ESLINT,
    "prettier": PRETTIER,
    "jest": JEST,
    "mocha": MOCHA,
    "vitest": Tool(
        like=(VITEST,),
        verbs={
            "run related": VITEST,
            "list": Tool(like=(VITEST,), operands=PATTERN),
        },
        needs="--run --watch=false --no-watch --version -v --help -h",
        why=f"without run {_ENDLESS}",
        operands=PATTERN,
    ),
    "biome": Tool(verbs={"check lint ci format": _LINTER, "version": Tool()}, flags="--version"),
    "oxlint stylelint svelte-check": _LINTER,
    "astro": Tool(verbs={"check": _LINTER, "build": _BUNDLER}),
    "next": Tool(verbs={"lint": Tool(flags="--quiet --strict", takes={NAME: "-d --dir"}), "build": _BUNDLER}),
    "vite": Tool(verbs={"build": _BUNDLER}),
    "turbo": Tool(
        flags="--version",
        verbs={
            "run": Tool(
                flags="--affected --no-daemon --continue --no-color --output-logs=errors-only --output-logs=new-only",
                takes={
                    replace(matching(r"[@\w./*\[\]^!-]+", "a filter of packages"), at=True): "-F --filter",
                    NUMBER: "--concurrency",
                },
                traps={"--token --team --api --remote-only": "reaches another machine", "--cwd": "moves elsewhere"},
                operands=TASK,
                least=1,
                why="needs a task",
                dashes=False,
            )
        },
    ),
    "playwright": Tool(flags="--version", verbs={"test": _PLAYWRIGHT}),
}
