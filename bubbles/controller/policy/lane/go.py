"""Go."""

from __future__ import annotations

from bubbles.controller.policy.lane.kinds import ARTIFACT, MOVE, NAME, NUMBER, OWN, REPORT, WHEN, WORD, matching, one_of
from bubbles.controller.policy.lane.table import Tool
from bubbles.controller.policy.lane.words import PACKAGE

_REWRITES = "rewrites files"
_PROGRAM = "names a program to run"


_GO = Tool(
    flags="""-v -x -n -a -race -msan -asan -cover -trimpath -v=true -v=false -race=true -buildvcs=false -buildvcs=true
    -json""",
    takes={
        NUMBER: "-p",
        matching(r"[\w,.!-]+", "a list of tags"): "-tags",
        one_of("readonly vendor"): "-mod",
        one_of("set count atomic"): "-covermode",
        PACKAGE: "-coverpkg",
        one_of("-s -w", "-w -s"): "-ldflags",
        one_of("all=-N -l", "all=-m", "-m", "-N -l"): "-gcflags",
        MOVE: "-C",
    },
    traps={
        "-exec -toolexec -vettool": _PROGRAM,
        "-overlay -modfile -modcacherw -pkgdir": "replaces sources",
        "-ldflags -gcflags -asmflags -gccgoflags -compiler": "can name programs to run",
    },
    operands=PACKAGE,
    bundles=False,
    dashes=False,
)
_GO_TEST = Tool(
    like=(_GO,),
    flags="-short -failfast -benchmem -fullpath -bench=. -artifacts=false -test.v",
    takes={
        WORD: "-run -skip -bench -list",
        NUMBER: "-count -parallel -timeout -blockprofilerate -test.timeout",
        matching(r"\d+(?:\.\d+)?(?:x|[a-z]+)", "a time or a count"): "-benchtime -fuzztime",
        matching(r"[\d,]+", "a list of numbers"): "-cpu",
        matching(r"off|all|[a-z,]+", "a list of checks"): "-vet",
        matching(r"on|off|\d+", "on, off or a seed"): "-shuffle",
        REPORT: "-coverprofile -cpuprofile -memprofile -blockprofile -mutexprofile -trace",
    },
    traps={
        "-outputdir -o": "writes where it is told",
        "-fuzz": _REWRITES,
        "-args": "gives arguments to the tests unseen",
    },
    operands=PACKAGE,
    bundles=False,
    dashes=False,
)
GO = Tool(
    verbs={
        "test": _GO_TEST,
        "vet": _GO,
        "build": Tool(like=(_GO,), takes={ARTIFACT: "-o"}, operands=PACKAGE, bundles=False, dashes=False),
        "list": Tool(
            like=(_GO,),
            flags="-m -deps -test -e -find -json -compiled",
            takes={WORD: "-f"},
            operands=PACKAGE,
            bundles=False,
        ),
        "version": Tool(flags="-m -v", operands=OWN, bundles=False),
        "env": Tool(
            flags="-json", operands=NAME, bundles=False, traps={"-w -u": "changes settings of the whole machine"}
        ),
        "doc": Tool(flags="-all -short -src -u -c", operands=PACKAGE, bundles=False),
        "mod": Tool(
            verbs={"verify graph": Tool(), "why": Tool(flags="-m -vendor", operands=PACKAGE, bundles=False)},
            traps={"tidy download vendor edit init": "changes the modules"},
        ),
        "tool": Tool(
            verbs={
                "cover": Tool(
                    takes={REPORT: "-func"}, needs="-func", why="opens a browser or rewrites code", bundles=False
                )
            }
        ),
    },
    traps={
        "generate": "runs commands that are written in comments",
        "run": "runs a program",
        "install get": "installs packages",
        "fmt fix": _REWRITES,
        "clean": "deletes files",
    },
    takes={MOVE: "-C"},
    bundles=False,
)
_GOFMT = Tool(
    flags="-l -d -s -e",
    needs="-l -d",
    why="shows files whole without -l",
    traps={"-w": _REWRITES, "-r": "rewrites code", "-cpuprofile": "writes a file"},
    operands=OWN,
    bundles=False,
)
_GOLANGCI = Tool(
    flags="""-v --verbose --fast --no-config --new --tests --tests=false --issues-exit-code=0 --allow-parallel-runners
    --show-stats""",
    takes={
        NAME: "-E --enable -D --disable --build-tags --new-from-rev -p --presets --default",
        NUMBER: "-j --concurrency --timeout --max-issues-per-linter --max-same-issues --issues-exit-code",
        one_of(
            "colored-line-number line-number json tab checkstyle code-climate junit-xml github-actions"
        ): "--out-format",
        WHEN: "--color",
    },
    traps={"--fix": _REWRITES, "-c --config": "names another configuration", "--cpu-profile-path": "writes a file"},
    operands=PACKAGE,
)


PROGRAMS: dict[str, Tool] = {
    "go": GO,
    "gofmt gofumpt goimports": _GOFMT,
    "golangci-lint": Tool(verbs={"run": _GOLANGCI, "version linters": Tool()}, flags="--version"),
    "staticcheck": Tool(
        flags="-tests -version",
        takes={WORD: "-checks -tags -go", one_of("text stylish json sarif"): "-f"},
        operands=PACKAGE,
        bundles=False,
    ),
}
