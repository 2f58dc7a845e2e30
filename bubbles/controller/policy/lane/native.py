"""C and C++: CMake and kin, Make, and checkers."""

from __future__ import annotations

import re

from bubbles.controller.policy.lane.kinds import FOLDER, MOVE, NAME, NUMBER, OWN, REPORT, WORD, matching, one_of
from bubbles.controller.policy.lane.table import Kind, Site, Tool
from bubbles.controller.policy.lane.words import BUILD_FOLDER, GOAL, NEW_FOLDER, SOURCE_FOLDER, TARGET

_CODE = "runs a script"

_BOOLEAN = frozenset("ON OFF TRUE FALSE YES NO 0 1 on off true false".split())
_DEFINITION = re.compile(r"(\w+)(?::(?:BOOL|STRING|UNINITIALIZED))?=(.*)", re.ASCII)
_PROGRAM_LIKE = re.compile(
    "COMPILER|LAUNCHER|PROGRAM|COMMAND|EXECUTABLE|TOOLCHAIN|LINKER|WRAPPER|EMULATOR|PATH|DIR$|PREFIX|(?<!PRO)FILE|INCLUDE|RULE|HOOK"
    "|INSTALL|DEPLOY|PUBLISH"
)
_DEFINED = {
    "CMAKE_BUILD_TYPE": re.compile("Debug|Release|RelWithDebInfo|MinSizeRel|Asan|Coverage|debug|release"),
    "CMAKE_EXPORT_COMPILE_COMMANDS": re.compile("ON|OFF|1|0|YES|NO|TRUE|FALSE"),
    "CMAKE_VERBOSE_MAKEFILE": re.compile("ON|OFF|1|0|YES|NO|TRUE|FALSE"),
    "CMAKE_CXX_STANDARD": re.compile(r"\d+"),
    "CMAKE_C_STANDARD": re.compile(r"\d+"),
    "CMAKE_CONFIGURATION_TYPES": re.compile(r"[\w;]+"),
    "CMAKE_UNITY_BUILD_BATCH_SIZE": re.compile(r"\d+"),
}
_FLAG = re.compile(r"-(?:[WOgf][\w=+,-]*|std=[\w+]+|D\w+(?:=\w*)?|march=native|pedantic)", re.ASCII).fullmatch
_FLAG_THAT_LOADS = re.compile(r"-fplugin|-fuse-ld|-fprofile|-Wl,|-Wp,|-Wa,|-fdump|-flto=|-fsanitize-|-fpass")


def _define(text: str, _site: Site) -> str | None:
    """``NAME=value``: an on-or-off switch of the project, or one of a few that cannot name a program or a place."""
    if (match := _DEFINITION.fullmatch(text)) is None:
        return f"{text} is not a plain NAME=value"
    name, value = match.groups()
    if name in ("CMAKE_C_FLAGS", "CMAKE_CXX_FLAGS"):
        fine = all(map(_FLAG, value.split())) and not _FLAG_THAT_LOADS.search(value)
    elif (known := _DEFINED.get(name)) is not None:
        fine = known.fullmatch(value) is not None
    else:
        fine = value in _BOOLEAN and not _PROGRAM_LIKE.search(name.upper())
    return None if fine else f"{text} may change what is run, or where files go"


DEFINE = Kind(check=_define)
_GENERATOR = one_of("Ninja Xcode", "Unix Makefiles", "Ninja Multi-Config", "MinGW Makefiles")
_NATIVE = Tool(
    flags="-v --verbose -s --silent --keep-going --no-print-directory",
    maybe={NUMBER: "-j --jobs -k -l"},
    operands=one_of("VERBOSE=1 V=1 all test check"),
)

CMAKE = Tool(
    flags="""-Wdev -Wno-dev -Werror=dev -Wno-error=dev -Wdeprecated -Wno-deprecated
    -Werror=deprecated -Wno-error=deprecated --fresh -N -L -LA -LH -LAH --log-context --debug-output
    --debug-find --debug-trycompile --trace --trace-expand --warn-uninitialized --no-warn-unused-cli
    --check-system-vars --compile-no-warning-as-error""",
    takes={
        OWN: "-S",
        NEW_FOLDER: "-B",
        _GENERATOR: "-G",
        DEFINE: "-D",
        NAME: "--preset --log-level --debug-find-pkg --debug-find-var",
    },
    maybe={one_of("configure build test all"): "--list-presets"},
    traps={
        "-P": _CODE,
        "-E": "runs commands that copy, delete or start programs",
        "-C --toolchain": "loads a script",
        "-U": "removes settings",
        "-A -T": "chooses another toolset",
        "--install --install-prefix": "installs files",
        "--open": "opens another program",
        "--workflow": "may install or package",
        "--graphviz --trace-redirect --profiling-output": "writes a file",
    },
    verbs={
        "--build": Tool(
            flags="-v --verbose --clean-first",
            takes={TARGET: "-t --target", NAME: "--config --preset"},
            maybe={NUMBER: "-j --parallel", one_of("configure build test all"): "--list-presets"},
            # Without a folder (--preset) the first operand may be a further target.
            lead=(BUILD_FOLDER,),
            operands=TARGET,
            after=_NATIVE,
            bundles=False,
            glued="-j",
        ),
        "--version --help -h": Tool(),  # a file after --version would be written
    },
    bare=True,
    operands=SOURCE_FOLDER,
    most=1,
    bundles=False,
    glued="-S -B -G -D",
    dashes=False,
)

CTEST = Tool(
    flags="""-V -VV --verbose --extra-verbose --debug --output-on-failure --stop-on-failure --progress -Q --quiet -F
    -N -U --union --rerun-failed --schedule-random --no-label-summary --no-subproject-summary
    --force-new-ctest-process --print-labels --list-presets --version --help -h""",
    takes={
        OWN: "--test-dir",
        NAME: "-C --build-config --preset",
        WORD: """-R --tests-regex -E --exclude-regex -L --label-regex -LE --label-exclude -FA --fixture-exclude-any
        -FS --fixture-exclude-setup -FC --fixture-exclude-cleanup""",
        NUMBER: """--timeout --max-width --test-load --repeat-until-fail --test-output-size-passed
        --test-output-size-failed --interactive-debug-mode""",
        matching(r"[\d,]+", "a range of numbers"): "-I --tests-information",
        matching(r"until-(?:fail|pass):\d+|after-timeout:\d+", "a way to repeat"): "--repeat",
        one_of("error ignore"): "--no-tests",
        one_of("tail middle head"): "--test-output-truncation",
        REPORT: "-O --output-log --output-junit",
    },
    maybe={NUMBER: "-j --parallel", one_of("human json-v1"): "--show-only"},
    traps={
        "-S -SP --script --script-new-process": _CODE,
        "-D -M -T --dashboard --test-model --test-action": "may update sources and upload results",
        "--build-and-test --test-command": "runs any command",
        "--overwrite": "changes the configuration",
        "-A --add-notes --extra-submit": "uploads files",
    },
    bundles=False,
    glued="-j",
)

MAKE = Tool(
    flags="""-k -s -w -B -i -S -r -R -d -v --keep-going --no-keep-going --stop --silent --quiet --print-directory
    --no-print-directory --always-make --ignore-errors --warn-undefined-variables --trace --version --no-silent""",
    takes={MOVE: "-C --directory"},
    maybe={NUMBER: "-j --jobs -l --load-average --max-load", one_of("none line target recurse"): "-O --output-sync"},
    traps={
        "-n --dry-run --just-print --recon": "still runs what is in $(shell …), and recipes with $(MAKE)",
        "-q --question -t --touch -p --print-data-base": "is rarely needed",
        "-f --file --makefile -I --include-dir": "names other makefiles",
        "-E --eval": "holds a statement of its own",
        "-e --environment-overrides": "lets the environment replace programs",
        "-W -o --what-if --new-file --assume-new --old-file --assume-old": "is rarely needed",
        "clean distclean": "deletes files",
        "install uninstall": "installs or removes files",
    },
    verbs={"--version -v": Tool()},
    operands=GOAL,
    bare=True,
)

NINJA = Tool(
    flags="-v --verbose --quiet -n --version -h --help",
    takes={MOVE: "-C", NUMBER: "-j -k -l", one_of("stats explain keepdepfile keeprsp"): "-d"},
    traps={"-f": "names another build file", "-t": "runs a tool of its own, deletion included"},
    operands=TARGET,
)

MESON = Tool(
    flags="--version",
    verbs={
        "test": Tool(
            flags="-v --verbose -q --quiet --list --no-rebuild --print-errorlogs --no-stdsplit --no-suite --benchmark",
            takes={
                OWN: "-C",
                NAME: "--suite --no-suite --logbase",
                NUMBER: "-j --num-processes -t --timeout-multiplier --repeat --maxfail --max-lines",
            },
            traps={"--wrapper --wrap --gdb --setup --gdb-path": "names a program to run"},
            operands=NAME,
        ),
        "compile": Tool(
            flags="-v --verbose --clean", takes={OWN: "-C", NUMBER: "-j --jobs -l --load-average"}, operands=TARGET
        ),
        "setup": Tool(
            flags="--reconfigure --fatal-meson-warnings --werror",
            takes={
                one_of("debug debugoptimized release minsize plain"): "--buildtype",
                NUMBER: "--warnlevel",
                one_of("ninja"): "--backend",
                one_of("shared static both"): "--default-library",
            },
            traps={"--native-file --cross-file": "names programs to run", "--prefix": "names where to install"},
            operands=FOLDER,
            least=1,
            most=2,
            why="needs a build folder",
        ),
        "introspect": Tool(flags="--targets --tests --buildoptions --projectinfo --dependencies -a", operands=OWN),
    },
)


PROGRAMS: dict[str, Tool] = {
    "cmake": CMAKE,
    "ctest": CTEST,
    "make gmake": MAKE,
    "clang-format": Tool(
        flags="--dry-run -n --Werror --verbose --version --fallback-style=none",
        takes={one_of("file file:.clang-format llvm google chromium mozilla webkit gnu microsoft"): "--style -style"},
        traps={"-i": "rewrites files", "--files": "takes its paths from a file"},
        operands=OWN,
        bundles=False,
        dashes=False,
    ),
    "clang-tidy": Tool(
        flags="--quiet -quiet --use-color --version --list-checks --verify-config --system-headers",
        takes={
            OWN: "-p",
            WORD: """--checks -checks --warnings-as-errors -warnings-as-errors --header-filter -header-filter
            --line-filter""",
        },
        traps={
            "--fix -fix --fix-errors -fix-errors --fix-notes": "rewrites files",
            "-load --load": "loads code",
            "--extra-arg --extra-arg-before --config --config-file --vfsoverlay": "changes how files are compiled",
            "--export-fixes -export-fixes --store-check-profile": "writes a file",
        },
        operands=OWN,
        bundles=False,
        dashes=False,
    ),
    "cppcheck": Tool(
        flags="""-q -v --quiet --verbose --inline-suppr --force -f --check-config --errorlist --version --xml
        --inconclusive""",
        takes={one_of("c c++"): "--language -x", NUMBER: "-j", OWN: "-I -i"},
        # It takes the next word for a path.
        joined={
            WORD: "--enable --disable --std --suppress --platform --template",
            NUMBER: "--error-exitcode --max-ctu-depth --max-configs",
        },
        traps={"--addon --rule-file --library": "names code to load", "--cppcheck-build-dir --dump": "writes files"},
        operands=OWN,
    ),
    "ninja": NINJA,
    "meson": MESON,
}
