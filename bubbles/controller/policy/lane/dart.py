"""Dart and Flutter."""

from __future__ import annotations

from bubbles.controller.policy.lane.kinds import FOLDER, NUMBER, OWN, TESTS, WORD, matching, one_of
from bubbles.controller.policy.lane.table import Tool

_REWRITES = "rewrites files"


_DART_TEST = Tool(
    flags="""--fail-fast --chain-stack-traces --no-chain-stack-traces --run-skipped --color --no-color --no-pub
    --coverage --machine --ignore-timeouts --no-retry --verbose-trace --track-widget-creation -v --verbose --offline""",
    takes={
        WORD: "-n --name -N --plain-name -t --tags -x --exclude-tags",
        NUMBER: "-j --concurrency --timeout --total-shards --shard-index",
        one_of("compact expanded json github failures-only silent"): "-r --reporter",
        one_of("vm chrome node"): "-p --platform",
        matching(r"random|\d+", "a seed"): "--test-randomize-ordering-seed",
    },
    traps={
        "--file-reporter --coverage-path": "writes a file",
        "--pause-after-load --start-paused": "waits for a debugger",
        "--update-goldens": "rewrites what the tests expect",
        "-d --device-id": "uses a device",
        "-P --preset --configuration": "names another configuration",
    },
    operands=TESTS,
)
_ANALYZE = Tool(
    flags="""--fatal-infos --no-fatal-infos --fatal-warnings --no-fatal-warnings --no-pub --pub --congratulate
    --no-congratulate --current-package --no-current-package --no-preamble --suppress-analytics --no-color""",
    takes={one_of("default json machine"): "--format"},
    traps={"--watch": "never ends", "--write": "writes a file"},
    operands=OWN,
)
_FLUTTER = Tool(
    flags="--version --no-version-check --suppress-analytics --no-color",
    verbs={"analyze": _ANALYZE, "test": _DART_TEST, "--version": Tool(flags="--machine")},
    traps={
        "run drive attach": "starts the program",
        "config": "changes settings of the whole machine",
        "pub": "changes what is installed",
        "clean": "deletes files",
        "upgrade channel": "installs programs",
    },
    bare=True,
)
DART = Tool(
    flags="--version --disable-analytics --suppress-analytics",
    verbs={
        "test": Tool(like=(_DART_TEST,), takes={FOLDER: "--coverage"}, operands=TESTS),
        "analyze": _ANALYZE,
        "format": Tool(
            flags="--set-exit-if-changed --output=none --output=show",
            takes={one_of("none show json"): "-o --output", NUMBER: "-l --line-length --page-width"},
            needs="-o --output --output=none --output=show",
            why=f"{_REWRITES} without --output=none",
            operands=OWN,
        ),
        "info": Tool(),
        "pub": Tool(verbs={"deps": Tool(flags="--json --no-dev", takes={one_of("tree list compact"): "-s --style"})}),
    },
    traps={"run": "runs a program", "fix": _REWRITES, "compile": "is rarely needed"},
    bare=True,
)


PROGRAMS: dict[str, Tool] = {"dart": DART, "flutter": _FLUTTER}
