"""Names of a project's own tasks, scripts and build targets, told apart by the words that they are made of."""

from __future__ import annotations

import re

from bubbles.controller.policy.lane.files import folder, own
from bubbles.controller.policy.lane.table import Kind, Site

_PARTS = re.compile(r"[:/._-]+")

# A name with one of these, and otherwise only of the words below, is validation.
_VALIDATION = frozenset(
    """test tests testing unittest unittests unit lint linter lints typecheck typechecks typescript types tsc check
    checks checker build builds compile coverage cov spec specs pytest jest vitest mocha ava eslint ruff mypy pyright
    clippy rspec phpunit bench benchmark benchmarks vet ctest tap""".split()
)
_QUALIFIERS = frozenset(
    """all ci format fmt formatting formatted prettier black isort type style styles css scss less html md markdown
    docs doc js jsx ts tsx py python rust go cpp c java node deno bun web browser server client api app apps core lib
    libs library libraries src backend frontend ui common shared utils package packages pkg pkgs esm cjs umd cli main
    module modules smoke fast quick slow quiet silent strict verbose debug dev development local integration component
    components functional regression parallel serial only once single run no fix dry changed related syntax stylelint
    biome oxlint code static imports import spelling spell links schema config json yaml yml asan ubsan tsan
    sanitizers sanitizer x86 x64 arm64 linux wasm native engine parser model models typings dts declaration bundle
    vite webpack rollup esbuild swc tsup""".split()
)
_OTHER_TARGETS = frozenset(
    """install uninstall deploy publish upload release package dist push flash exec start serve stop destroy drop
    purge wipe edit nightly experimental continuous submit sign notarize distclean mrproper clobber maintainer sudo
    docker compose provision migrate seed update upgrade commit tag menuconfig config erase burn program download
    fetch clone sync pull debug gdb debugserver attach openocd jlink dfu qemu simulate emulate watch listen reset
    recover reboot cache drop run_server repl shell console""".split()
)
_OTHER_BEGINNINGS = (
    "nightly",
    "continuous",
    "experimental",
    "deploy",
    "flash",
    "upload",
    "erase",
    "monitor",
    "publish",
)
_OTHER_ENDINGS = ("deploy", "flash", "upload", "monitor", "config", "publish")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])", re.ASCII).sub


def _task(text: str, _site: Site) -> str | None:
    parts = [part for part in _PARTS.split(text) if part]
    known = all(part in _VALIDATION or part in _QUALIFIERS for part in parts)
    if not known or _VALIDATION.isdisjoint(parts) or not _NAMED(text):
        return f"{text} is not a name that says test, lint, check or build and no more"
    if ("fix" in parts and "no" not in parts) or ("run" in parts and _RUNS.isdisjoint(parts)):
        return f"{text} may do more than test, lint, check or build"
    return None


_NAMED = re.compile(r"[a-z0-9]+(?:[:/._-][a-z0-9]+)*", re.ASCII).fullmatch
_RUNS = frozenset("test tests unittest unittests unit spec specs check checks lint".split())


def _goal(text: str, site: Site) -> str | None:
    """A goal of make: a task, or a variable that only makes it talk."""
    if text in ("all", "help", "V=0", "V=1", "VERBOSE=1", "VERBOSE=0", "CI=1", "CI=true"):
        return None
    return _task(text, site)


def _target(text: str, _site: Site) -> str | None:
    """A target of a build that was generated: any that is not named for more than building."""
    parts = [part for part in _PARTS.split(f"{text}/{_HUMPS('/', text)}".lower()) if part]
    if not _TARGET(text) or ".." in text.split("/") or text[:1] == "/":
        return f"{text} is not a plain name of a target"
    more = any(part.startswith(_OTHER_BEGINNINGS) or part.endswith(_OTHER_ENDINGS) for part in parts)
    if more or not _OTHER_TARGETS.isdisjoint(parts) or ("run" in parts and _RUNS.isdisjoint(parts)):
        return f"the target {text} may do more than build"
    if not _FORMATTERS.isdisjoint(parts) and "check" not in parts:
        return f"the target {text} may rewrite files"
    return None


_FORMATTERS = frozenset("format fmt fix reformat autofix".split())
_INSTALLERS = frozenset("install uninstall package deploy publish upload".split())
_TARGET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+:-]*", re.ASCII).fullmatch


def _build_folder(text: str, site: Site) -> str | None:
    """A build folder. With ``--preset`` cmake takes the word for a target."""
    if not _INSTALLERS.isdisjoint(_PARTS.split(text.lower())):
        return f"{text} may be taken for a target that installs"
    return folder(text, site)


def _package(text: str, site: Site) -> str | None:
    """Packages of Go: ``./...``, ``./pkg/x``, ``example.org/mod/pkg``, ``all``, several with commas."""
    if not _PACKAGE(text) or text.count(",") > 16:
        return f"{text} is not a plain package"
    return next(filter(None, (own(part.replace("...", "x"), site) for part in text.split(","))), None)


_PACKAGE = re.compile(r"[A-Za-z0-9_./~+,-]+", re.ASCII).fullmatch


def _source_folder(text: str, site: Site) -> str | None:
    """What cmake is given alone: it builds where it is run."""
    return own(text, site) or (_AMONG_SOURCES if _is_root(text, site) and _is_root(".", site) else None)


def _new_folder(text: str, site: Site) -> str | None:
    if (reason := folder(text, site)) is not None:
        return reason
    name = text.rstrip("/").rpartition("/")[2]
    return _AMONG_SOURCES if _is_root(text, site) or not _BUILD_LIKE(name) else None


_BUILD_LIKE = re.compile(
    r"(?i:.*(?:build|debug|release|target|dist|out|obj|bin|tmp|cmake|asan|tsan|ubsan|coverage).*)"
).fullmatch


_AMONG_SOURCES = "it would build among the sources, over a Makefile that is there"


def _is_root(text: str, site: Site) -> bool:
    return any(place in site.roots for place in site.lead(text))


TASK = Kind(check=_task)
GOAL = Kind(check=_goal)
TARGET = Kind(check=_target)
BUILD_FOLDER = Kind(check=_build_folder)
PACKAGE = Kind(check=_package)
SOURCE_FOLDER = Kind(check=_source_folder)
NEW_FOLDER = Kind(check=_new_folder)
