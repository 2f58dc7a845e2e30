"""JavaScript and TypeScript: the package managers, what they run, and node itself."""

from __future__ import annotations

from dataclasses import replace

from bubbles.controller.policy.lane import files
from bubbles.controller.policy.lane.kinds import CODE, MOVE, NAME, NUMBER, OWN, WORD, matching, one_of
from bubbles.controller.policy.lane.node_tools import SCRIPT_ARGUMENTS, SHARD, SUITE, TITLE, TOOLS
from bubbles.controller.policy.lane.table import Kind, Site, Tool
from bubbles.controller.policy.lane.words import TASK

_REWRITES = "rewrites files"
_CODE = "names code to load"
_ENDLESS = "never ends"


_SCOPED = replace(NAME, at=True)
"""The name of a package, ``@scope/package`` included."""


def _module(text: str, site: Site) -> str | None:
    return f"{text} may be fetched from elsewhere" if ":" in text else files.code(text, site)


_MODULE = Kind(check=_module, globs=True)

_NPM_OPTIONS = Tool(
    flags="""-s --silent --if-present --no-color --quiet -q --verbose --no-fund --no-audit --no-update-notifier
    --color=always --color=false --foreground-scripts --no-progress --offline --prefer-offline --version -v --json
    --long --parseable""",
    takes={
        MOVE: "--prefix -C",
        _SCOPED: "-w --workspace",
        one_of("silent error warn notice http info verbose silly"): "--loglevel",
    },
    traps={
        "--userconfig --globalconfig": "names another configuration, which can replace the shell",
        "--script-shell --shell": "replaces the shell that runs scripts",
        "--node-options --require": _CODE,
        "--workspaces -ws --include-workspace-root": "runs the scripts of every workspace",
        "-g --global --location": "is about the whole machine",
        "--ignore-scripts": "is rarely needed",
    },
    bundles=False,
)
_NPM_SCRIPT = Tool(like=(_NPM_OPTIONS,), operands=SUITE, after=SCRIPT_ARGUMENTS, bundles=False)
NPM = Tool(
    like=(_NPM_OPTIONS,),
    verbs={
        "test t tst": _NPM_SCRIPT,
        "run run-script": Tool(
            like=(_NPM_OPTIONS,), lead=(TASK,), operands=SUITE, after=SCRIPT_ARGUMENTS, bundles=False
        ),
        "ls list ll la": Tool(
            like=(_NPM_OPTIONS,), flags="-a --all", takes={NUMBER: "--depth"}, operands=_SCOPED, bundles=False
        ),
        "explain why": Tool(like=(_NPM_OPTIONS,), operands=_SCOPED, bundles=False),
        "root prefix version": Tool(like=(_NPM_OPTIONS,), bundles=False),
        "pkg": Tool(verbs={"get": Tool(operands=_SCOPED)}),
    },
    traps={
        "install i ci add update uninstall": "installs packages",
        "publish unpublish": "cannot be undone",
        "config set": "changes settings, which may name programs",
        "exec x start": "runs any program",
    },
    bundles=False,
)
_NPX = Tool(
    flags="--no --no-install --offline --prefer-offline --quiet -q --version -v",
    traps={
        "-y --yes -p --package": "installs packages",
        "-c --call": "runs a shell line",
        "--prefix -C": "moves elsewhere",
    },
    verbs=TOOLS,
    permutes=False,
    bundles=False,
)

_RUN = Tool(
    lead=(TASK,), rest=SCRIPT_ARGUMENTS, flags="--silent -s --if-present -r --recursive --parallel", bundles=False
)
_LISTS = Tool(
    flags="--json --prod --dev -r --recursive -D -P --long",
    takes={NUMBER: "--depth", _SCOPED: "--pattern"},
    operands=_SCOPED,
)
_PNPM_VERBS = {
    "test t": SCRIPT_ARGUMENTS,
    "run run-script": _RUN,
    "list ls why": _LISTS,
    "exec": Tool(verbs=TOOLS),
    **TOOLS,
}
PNPM = Tool(
    flags="""-r --recursive -s --silent --if-present --no-color --stream --parallel --offline -w --workspace-root
    --version -v""",
    takes={
        MOVE: "-C --dir",
        replace(matching(r"[@\w./*{}\[\]^!-]+", "a filter of packages"), at=True): "--filter -F",
        one_of("default append-only ndjson silent"): "--reporter",
    },
    traps={"add install i update remove dlx create": "installs packages", "publish": "cannot be undone"},
    verbs=_PNPM_VERBS,
    lead=(TASK,),
    rest=SCRIPT_ARGUMENTS,
    least=1,
    why="without a command is of no use",
    bundles=False,
)
_YARN_VERBS = {
    "test": SCRIPT_ARGUMENTS,
    "run": Tool(verbs=TOOLS, lead=(TASK,), rest=SCRIPT_ARGUMENTS, flags="--silent -s", bundles=False),
    "list why": _LISTS,
    **TOOLS,
}
_YARN = Tool(flags="-s --silent", verbs=_YARN_VERBS, lead=(TASK,), rest=SCRIPT_ARGUMENTS, least=1, bundles=False)
YARN = Tool(
    like=(_YARN,),
    flags="--version -v --offline --non-interactive --no-progress",
    takes={MOVE: "--cwd"},
    traps={"add install up upgrade remove dlx create": "installs packages", "publish npm": "may publish"},
    verbs=_YARN_VERBS | {"workspace": Tool(lead=(_SCOPED,), rest=_YARN)},
    lead=(TASK,),
    rest=SCRIPT_ARGUMENTS,
    least=1,
    why="alone installs packages",
    bundles=False,
)
BUN = Tool(
    flags="--silent -b --bun --version -v --revision",
    verbs={
        "test": Tool(
            flags="--coverage --only --todo --bail --rerun-each --no-color",
            takes={
                TITLE: "-t --test-name-pattern",
                NUMBER: "--timeout --rerun-each",
                one_of("text lcov"): "--coverage-reporter",
            },
            maybe={NUMBER: "--bail"},
            traps={
                "--preload -r": _CODE,
                "--watch --hot": _ENDLESS,
                "-u --update-snapshots": "rewrites what the tests expect",
            },
            operands=SUITE,
        ),
        "run": Tool(verbs=TOOLS, lead=(TASK,), rest=SCRIPT_ARGUMENTS, flags="--silent --bun", bundles=False),
        "pm": Tool(verbs={"ls": _LISTS}),
    },
    traps={
        "add install i update remove create x": "installs packages",
        "-e --eval": "runs code written in the command",
    },
    bundles=False,
)

NODE = Tool(
    flags="""--test --check -c --version -v --help -h --test-only --test-force-exit --experimental-test-coverage
    --no-warnings --experimental-strip-types --experimental-vm-modules --enable-source-maps --trace-warnings
    --trace-deprecation --no-deprecation --throw-deprecation --experimental-test-isolation=none --test-isolation=none
    --test-isolation=process --test-update-snapshots=false --stack-trace-limit=50 --trace-uncaught
    --pending-deprecation --experimental-test-snapshots --experimental-test-module-mocks
    --experimental-transform-types""",
    takes={
        WORD: "--test-name-pattern --test-skip-pattern",
        one_of("spec tap dot junit lcov"): "--test-reporter",
        one_of("stdout stderr"): "--test-reporter-destination",
        NUMBER: "--test-concurrency --test-timeout --max-old-space-size --unhandled-rejections",
        SHARD: "--test-shard",
        OWN: "--test-coverage-include --test-coverage-exclude",
    },
    traps={
        "-e --eval -p --print": "runs code written in the command",
        "-r --require --import --loader --experimental-loader": _CODE,
        "--env-file --env-file-if-exists": "loads a file of secrets",
        "--test-update-snapshots": "rewrites what the tests expect",
        "--watch --watch-path --inspect --inspect-brk": _ENDLESS,
        "-i --interactive": "waits for somebody to type",
    },
    needs="--test --check -c --version -v --help -h",
    why="runs a program",
    # What follows the first file are the program's own arguments.
    permutes=False,
    dashes=False,
    bundles=False,
    operands=CODE,
)

PROGRAMS: dict[str, Tool] = {
    **TOOLS,
    "npm": NPM,
    "npx": _NPX,
    "pnpm": PNPM,
    "yarn": YARN,
    "bun": BUN,
    "node nodejs": NODE,
    "deno": Tool(
        flags="--version",
        verbs={
            "check lint": Tool(flags="-q --quiet --json --compact --all --no-remote --cached-only", operands=_MODULE),
            "fmt": Tool(
                flags="-q --quiet",
                needs="--check",
                why=f"{_REWRITES} without --check",
                operands=_MODULE,
                like=(Tool(flags="--check"),),
            ),
            "test": Tool(
                flags="-q --quiet --no-check --cached-only --no-remote --parallel --coverage --fail-fast",
                takes={WORD: "--filter"},
                operands=_MODULE,
            ),
        },
    ),
}
