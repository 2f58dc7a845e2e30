"""Build tools of the JVM, .NET, PHP, Swift and Elixir."""

from __future__ import annotations

import re

from bubbles.controller.policy.lane import files
from bubbles.controller.policy.lane.kinds import (
    CODE,
    NAME,
    NUMBER,
    OWN,
    PLAIN_NAME,
    REPORT,
    TESTS,
    WHEN,
    WORD,
    matching,
    one_of,
)
from bubbles.controller.policy.lane.table import Kind, Site, Tool
from bubbles.controller.policy.lane.words import TASK


def _jvm_task(text: str, _site: Site) -> str | None:
    """``test``, ``:app:test``: the last part is the task, the others are projects."""
    *projects, task = text.removeprefix(":").split(":")
    fine = _JVM_TASK(task) and all(map(_PROJECT, projects))
    return None if fine else f"{text} is not a task that only builds, tests or lists"


_PROJECT = re.compile(r"[\w-]+", re.ASCII).fullmatch
_JVM_TASK_NAMES = (
    "test|check|build|assemble|classes|testClasses|lint|spotlessCheck|ktlintCheck|detekt|javadoc|dependencies"
    "|tasks|projects"
)
_JVM_TASK = re.compile(rf"{_JVM_TASK_NAMES}|(?:compile|checkstyle)(?:[A-Z]\w*)?", re.ASCII).fullmatch
_TASKS = Kind(check=_jvm_task)
GRADLE = Tool(
    flags="""--no-daemon --offline --info -i --stacktrace -s --quiet -q --warn -w --debug -d --continue --parallel
    --no-parallel --build-cache --no-build-cache --configuration-cache --no-configuration-cache --rerun-tasks
    --version -v --all --dry-run -m --console=plain""",
    takes={
        WORD: "--tests",
        _TASKS: "-x --exclude-task",
        NUMBER: "--max-workers",
        one_of("plain auto rich verbose"): "--console",
        one_of("all fail summary none"): "--warning-mode",
    },
    traps={
        "-I --init-script": "runs a script",
        "-b --build-file -c --settings-file -p --project-dir --include-build": "names another build",
        "-P -D --project-prop --system-prop": "sets values that may name programs",
        "--scan": "uploads a report",
        "-t --continuous": "never ends",
    },
    operands=_TASKS,
    least=1,
    why="needs a task",
    bundles=False,
)

_MAVEN_VALUE = matching(
    r"(?:test|it\.test)=[\w.,*#+!$-]+|skipTests(?:=true|=false)?|maven\.test\.skip=true"
    r"|surefire\.failIfNoSpecifiedTests=false|failIfNoTests=false|checkstyle\.skip(?:=true)?|style\.color=never",
    "a value that only chooses tests",
)
MAVEN = Tool(
    flags="""-q -B -o -e -X -U -ntp -fae -ff -fn -am -amd --quiet --batch-mode --offline --errors
    --no-transfer-progress --fail-at-end --fail-fast --also-make --version -version -v""",
    takes={NAME: "-pl --projects", NUMBER: "-T --threads", _MAVEN_VALUE: "-D"},
    traps={"-f --file -s --settings -gs -P --activate-profiles": "names another build or its settings"},
    operands=one_of(
        "validate compile test-compile test verify checkstyle:check spotless:check dependency:tree process-classes"
    ),
    least=1,
    why="needs a phase",
    bundles=False,
    glued="-D -T",
)


def _project(text: str, site: Site) -> str | None:
    """MSBuild takes any file for a project, whatever its name."""
    _, dot, ending = text.rstrip("/").rpartition("/")[2].lstrip(".").rpartition(".")
    if dot and ending not in _PROJECT_ENDINGS and not ending[:1].isupper():
        return f"{text} is not the name of a project"
    return files.code(text, site)


_PROJECT_ENDINGS = frozenset("csproj fsproj vbproj sln slnx slnf".split())
_PROJECTS = Kind(check=_project)

_DOTNET = Tool(
    flags="--no-restore --no-build --nologo --list-tests -t --blame --force --no-incremental --no-dependencies",
    takes={
        PLAIN_NAME: "-c --configuration -f --framework --runtime -v --verbosity --arch --os",
        WORD: "--filter",
        one_of("trx html console", "XPlat Code Coverage", "Code Coverage"): "--collect",
        matching(r"(?:console|trx|html)(?:;verbosity=\w+)?", "a logger of dotnet's own"): "-l --logger",
    },
    traps={
        "-s --settings -p --property -o --output --artifacts-path": "can set what is run, or where files go",
        "-a --test-adapter-path -d --diag --results-directory": "loads code or writes files",
    },
    operands=_PROJECTS,
    most=1,
    bundles=False,
    dashes=False,  # settings would follow it
)
DOTNET = Tool(
    flags="--version --info --list-sdks --list-runtimes",
    verbs={
        "test build": _DOTNET,
        "format": Tool(
            like=(_DOTNET,),
            flags="--verify-no-changes",
            needs="--verify-no-changes",
            dashes=False,
            why="rewrites files",
            operands=_PROJECTS,
        ),
    },
    bare=True,
)


PROGRAMS: dict[str, Tool] = {
    "gradle": GRADLE,
    "mvn": MAVEN,
    "dotnet": DOTNET,
    "composer": Tool(
        flags="--version",
        verbs={
            "validate": Tool(flags="--strict --no-check-all --no-check-publish"),
            "run run-script": Tool(lead=(TASK,), least=1),
        },
        lead=(TASK,),
    ),
    "phpunit": Tool(
        flags="--testdox --stop-on-failure --no-coverage --verbose --debug --version",
        takes={WORD: "--filter --group --exclude-group --testsuite", REPORT: "--log-junit", WHEN: "--colors"},
        traps={"--bootstrap -c --configuration": "loads code", "-d": "changes the settings of PHP"},
        operands=CODE,
    ),
    "swift": Tool(
        flags="--version",
        verbs={
            "test build": Tool(
                flags="-v --verbose -q --quiet --parallel --enable-code-coverage --skip-build --build-tests -l",
                takes={
                    WORD: "--filter --skip",
                    one_of("debug release"): "-c --configuration",
                    NAME: "--product --target",
                },
                maybe={NUMBER: "-j --jobs"},
                bundles=False,
            )
        },
    ),
    "mix": Tool(
        flags="--version",
        verbs={
            "test": Tool(
                flags="--trace --failed --stale --cover --color --no-color --slowest",
                takes={NUMBER: "--seed --max-failures --timeout --slowest", WORD: "--only --exclude --include"},
                operands=TESTS,
            ),
            "compile": Tool(flags="--warnings-as-errors --force"),
            "format": Tool(
                flags="--check-formatted --dry-run", needs="--check-formatted --dry-run", why="rewrites files"
            ),
            "credo": Tool(flags="--strict", operands=OWN),
        },
    ),
}
