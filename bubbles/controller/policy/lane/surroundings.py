"""What may stand around a command: assignments before it, and redirects."""

from __future__ import annotations

import re
from collections.abc import Callable

from bubbles.controller.policy.contract import Context
from bubbles.controller.policy.lane import files
from bubbles.controller.policy.lane.table import Site, spread
from bubbles.controller.policy.lane.walk import shown
from bubbles.controller.policy.places import inside
from bubbles.controller.policy.shell.reading import Assignment, Directories, Redirect

# Assignments -------------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[\w.,:=+@%* -]*", re.ASCII).fullmatch
_SWITCH = re.compile(r"(?i:0|1|true|false|yes|no|on|off|y|n|)", re.ASCII).fullmatch
_NUMBER = re.compile(r"\d{1,9}", re.ASCII).fullmatch
_LOCALE = re.compile(r"[A-Za-z0-9_.@-]{0,40}", re.ASCII).fullmatch
_ZONE = re.compile(r"(?!.*\.\.)[A-Za-z][A-Za-z0-9_+/-]{0,40}", re.ASCII).fullmatch
_COMPILER = re.compile(r"(?:gcc|g\+\+|clang|clang\+\+|cc|c\+\+)(?:-\d{1,2})?", re.ASCII).fullmatch
_NUMBERS = re.compile(r"(?:\w+=(?:\d+|true|false)(?::|$))*", re.ASCII).fullmatch
_NODE = re.compile(
    r"(?:(?:^| )--(?:max[-_]old[-_]space[-_]size=\d+|no-warnings|experimental-vm-modules|trace-warnings"
    r"|trace-deprecation|no-deprecation|stack-trace-limit=\d+|unhandled-rejections=\w+|enable-source-maps|no-experimental-fetch))*",
    re.ASCII,
).fullmatch
_MODULE = re.compile(r"(?!.*(?:prod|stag|live))[A-Za-z_]\w*(?:\.\w+)*", re.ASCII).fullmatch


def _one_of(*values: str) -> Callable[[str], object]:
    return frozenset(values).__contains__


_INERT: dict[str, Callable[[str], object]] = spread(
    {
        """CI NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONUTF8
        PYTHONFAULTHANDLER PYTHONASYNCIODEBUG PYTHONDEVMODE PYTHONSAFEPATH PYTHONNOUSERSITE PYTHONTRACEMALLOC VERBOSE
        V DEBUG CARGO_INCREMENTAL CARGO_NET_OFFLINE CGO_ENABLED CTEST_OUTPUT_ON_FAILURE NEXT_TELEMETRY_DISABLED
        DO_NOT_TRACK CCACHE_DISABLE TOKENIZERS_PARALLELISM HF_HUB_OFFLINE TRANSFORMERS_OFFLINE UV_OFFLINE UV_FROZEN
        UV_NO_SYNC UV_LOCKED GIT_TERMINAL_PROMPT GIT_OPTIONAL_LOCKS TSC_COMPILE_ON_ERROR CHOKIDAR_USEPOLLING
        PYTHONWARNDEFAULTENCODING TF_ENABLE_ONEDNN_OPTS GITHUB_ACTIONS TESTING TEST SKIP_SLOW RUN_SLOW""": _SWITCH,
        """RUST_BACKTRACE RUST_LIB_BACKTRACE GOTRACEBACK RUST_LOG LOG_LEVEL LOGLEVEL TERM COLORTERM CARGO_TERM_COLOR
        CARGO_TERM_VERBOSE CARGO_TERM_PROGRESS_WHEN HYPOTHESIS_PROFILE PYTHONIOENCODING GOOS GOARCH GO111MODULE
        FORCE_TTY TF_CPP_MIN_LOG_LEVEL CUDA_VISIBLE_DEVICES PY_COLORS PYTEST_DISABLE_PLUGIN_AUTOLOAD DEBUG_COLORS
        NODE_NO_WARNINGS BABEL_ENV""": _WORD,
        """COLUMNS LINES RUST_MIN_STACK RUST_TEST_THREADS CARGO_BUILD_JOBS GOMAXPROCS PYTHONHASHSEED OMP_NUM_THREADS
        OPENBLAS_NUM_THREADS MKL_NUM_THREADS NUMEXPR_NUM_THREADS CMAKE_BUILD_PARALLEL_LEVEL CTEST_PARALLEL_LEVEL
        SOURCE_DATE_EPOCH PYTEST_TIMEOUT UV_THREADPOOL_SIZE PORT""": _NUMBER,
        "LANG LANGUAGE LC_ALL LC_CTYPE LC_MESSAGES LC_COLLATE LC_NUMERIC LC_TIME": _LOCALE,
        "TZ": _ZONE,
        "CC CXX": _COMPILER,
        "ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS LSAN_OPTIONS MSAN_OPTIONS": _NUMBERS,
        "NODE_OPTIONS": _NODE,
        "NODE_ENV": _one_of("test", "development", "production"),
        "RAILS_ENV RACK_ENV MIX_ENV APP_ENV FLASK_ENV DJANGO_ENV ENVIRONMENT PYTHON_ENV GO_ENV": _one_of(
            "test", "testing", "ci"
        ),
        "DJANGO_SETTINGS_MODULE": _MODULE,
        "PYTHONWARNINGS": _one_of("default", "error", "ignore", "always", "once", "module"),
        "RUSTFLAGS RUSTDOCFLAGS": _one_of("-D warnings", "-Dwarnings", "-Awarnings", "-A warnings", ""),
        "GOFLAGS": _one_of("-count=1", "-mod=vendor", "-mod=readonly", "-race", "-v", ""),
        "PAGER GIT_PAGER MANPAGER": _one_of("cat", ""),
        "BROWSER": _one_of("none"),
        "CMAKE_GENERATOR": _one_of("Ninja", "Unix Makefiles"),
        "QT_QPA_PLATFORM": _one_of("offscreen", "minimal"),
        "SDL_VIDEODRIVER SDL_AUDIODRIVER": _one_of("dummy"),
        "MPLBACKEND": _one_of("Agg", "agg"),
    }
)


def inert(assignment: Assignment, context: Context, directories: Directories = None) -> bool:
    """Whether a variable set before a command certainly changes nothing of which programs run and where files go.

    ``directories``: where that command may run; None: the variable is for all that follows, wherever that will run.
    """
    name, value = assignment.name, assignment.value
    if assignment.append or not value.exact:
        return False
    if (fine := _INERT.get(name)) is not None:
        return bool(fine(value.text))
    if name == "PYTHONPATH":
        # What `python -m pytest` does of itself, for other folders of the project.
        return value.text.count(":") < _MOST_FOLDERS and all(
            _plain_folder(part) and _inside(part, directories, context) for part in value.text.split(":")
        )
    if name in ("DATABASE_URL", "TEST_DATABASE_URL"):
        return _local_database(value.text, directories, context)
    return False


_MOST_FOLDERS = 9
_USUAL_FOLDERS = frozenset(". ./ src ./src src/ lib ./lib tests test app backend python".split())


def _inside(path: str, directories: Directories, context: Context) -> bool:
    """Within the roots. In a folder that is not known yet, any but a usual name may be a link that leads elsewhere."""
    if directories is not None:
        return inside(path, directories, context)
    usual = path[:1] == "/" or path in _USUAL_FOLDERS or path == f"{context.cwd}/"
    return usual and inside(path, frozenset({context.cwd}), context)


_PLAIN = re.compile(r"[\w./+-]+", re.ASCII).fullmatch


def _plain_folder(path: str) -> bool:
    return _PLAIN(path) is not None and not any(part[:1] == "." and part != "." for part in path.split("/"))


def _local_database(url: str, directories: Directories, context: Context) -> bool:
    """``sqlite:///file`` within the roots, or in memory."""
    if url in ("sqlite://", "sqlite:///:memory:", "sqlite+aiosqlite:///:memory:", "sqlite::memory:"):
        return True
    scheme, separator, path = url.partition(":///")
    return (
        bool(separator)
        and scheme in ("sqlite", "sqlite3", "sqlite+aiosqlite", "sqlite+pysqlite")
        and _PLAIN(path) is not None
        and ".." not in path.split("/")
        and path.rsplit(".", 1)[-1] in ("db", "sqlite", "sqlite3")
        and inside(path, directories or frozenset({context.cwd}), context)
    )


# Redirects ---------------------------------------------------------------------------------------------------------

_NAMES = {"<<": "text given in place (<<)", "<<-": "text given in place (<<-)", "<<<": "text given in place (<<<)"}


def harmless(redirect: Redirect, directories: Directories, context: Context) -> str | None:
    """Why a redirect takes a command out of the lane, or None: it opens nothing, or a file that it may."""
    operator, target = redirect.operator, redirect.target
    said = f"{redirect.descriptor}{operator}"
    if redirect.descriptor and not redirect.descriptor.isdecimal():
        return f"{said} opens a descriptor of its own"
    if operator in _NAMES:
        return f"{_NAMES[operator]} is not certain to be only data"
    if not target.exact:
        return f"it is not known what {said} {shown(target.text)} opens"
    text = target.text
    if operator in (">&", "<&"):
        if text == "-" or (text.isdecimal() and text.isascii()):
            return None
        return f"{said} {shown(text)} writes a file, though it looks like a descriptor"
    if operator == "<":
        reason = files.read(text, Site.of(directories, context)) if text != "-" else f"{text} is not a plain path"
    elif operator in (">", ">>", "&>", "&>>"):
        reason = files.report(text, Site.of(directories, context))
    else:
        return f"{said} is rarely needed and may overwrite files"
    return None if reason is None else f"{said}: {reason}"
