"""Ruby."""

from __future__ import annotations

from bubbles.controller.policy.lane.files import code
from bubbles.controller.policy.lane.kinds import NAME, NUMBER, OWN, REPORT, TESTS, WORD, matching, one_of
from bubbles.controller.policy.lane.table import Kind, Site, Tool
from bubbles.controller.policy.lane.words import TASK

_REWRITES = "rewrites files"


def _pattern(text: str, site: Site) -> str | None:
    """Patterns with commas between them, each taken as it is."""
    if "{" in text or text.count(",") > 8:
        return f"{text} is not a plain pattern"
    return next(filter(None, (code(part.strip(), site) for part in text.split(","))), None)


RSPEC = Tool(
    flags="""-b -c -w --backtrace --color --colour --no-color --force-color --dry-run --only-failures --next-failure
    -n --fail-fast --no-fail-fast --no-profile --warnings --bisect=verbose -v --version -h --help""",
    takes={
        WORD: "-e --example -E --example-matches -t --tag --exclude-pattern",
        Kind(check=_pattern): "-P --pattern",
        NUMBER: "--seed --failure-exit-code",
        matching(r"defined|random|rand(?::\d+)?|recently-modified", "an order"): "--order",
        one_of("progress documentation doc json html failures p d j h f"): "-f --format",
        REPORT: "-o --out",
    },
    maybe={NUMBER: "-p --profile --fail-fast"},
    traps={"-r --require -I": "names code to load", "-O --options": "names another configuration"},
    operands=TESTS,
)
_RUBY: dict[str, Tool] = {
    "rspec": RSPEC,
    "rubocop standardrb": Tool(
        flags="""-L -D -S -P --parallel --no-parallel --list-target-files --display-cop-names --display-style-guide
        --force-exclusion --no-color --color -v --version -V --fail-fast --only-guide-cops --lint -l --no-fix""",
        takes={
            NAME: "--only --except --fail-level",
            one_of("progress simple clang emacs json offenses quiet github files worst p s o q"): "-f --format",
        },
        traps={
            "-a -A -x --autocorrect --autocorrect-all --auto-correct --fix --fix-layout": _REWRITES,
            "-r --require --plugin": "names code to load",
            "-c --config": "names another configuration",
        },
        operands=OWN,
    ),
    "rake": Tool(
        flags="-q -s -t --quiet --silent --trace -m --multitask",
        takes={NUMBER: "-j --jobs"},
        traps={"-f --rakefile -r --require -I -e --execute -E": "names code to load"},
        operands=TASK,
        least=1,
        why="runs the default task, which may be anything",
    ),
    "rails": Tool(
        verbs={
            "test": Tool(
                flags="-v -b -f -d --verbose --backtrace --fail-fast --defer-output --color",
                takes={WORD: "-n --name", NUMBER: "-s --seed"},
                operands=TESTS,
            ),
            "routes": Tool(takes={WORD: "-g -c"}),
            "zeitwerk:check": Tool(),
        }
    ),
    "srb": Tool(verbs={"tc": Tool(flags="--no-config --quiet", operands=OWN)}),
}


PROGRAMS: dict[str, Tool] = {
    **_RUBY,
    "bundle": Tool(
        flags="--version",
        verbs={
            "exec": Tool(verbs=_RUBY, permutes=False),
            "check": Tool(),
            "list": Tool(flags="--name-only --paths"),
        },
    ),
}
