"""Finds and loads the rule files of every layer. Nothing in them, and nothing about them, is an exception.

Files are read where they lie and never copied (DEC-05). What cannot be read is a warning that names the file and the
mend; the rest is in force.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bubbles.config.schema import Settings
from bubbles.config.values import with_home
from bubbles.controller.policy.contract import Layer
from bubbles.controller.policy.rules import Notice, Parsed, Rulebook, bind, parse_rules
from bubbles.controller.policy.rules.parse import MAX_BYTES, MAX_RULES
from bubbles.errors import ConfigError

SUFFIX = ".rules"
MAX_FILES = 200
"""In one layer."""
MAX_LAYER_BYTES = 4 * MAX_BYTES
MAX_LAYER_RULES = 2 * MAX_RULES

LayerPath = tuple[Layer, Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLayer:
    """One directory of rule files."""

    layer: Layer
    path: str
    files: tuple[str, ...] = ()
    """That were read, in their order."""
    count: int = 0
    """Rules in force."""
    notices: tuple[Notice, ...] = ()

    @property
    def warnings(self) -> tuple[Notice, ...]:
        return tuple(notice for notice in self.notices if notice.fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRules:
    """All layers, weakest first."""

    rulebook: Rulebook
    layers: tuple[LoadedLayer, ...]
    loaded_at: datetime
    """With its time zone, UTC."""

    @property
    def warnings(self) -> tuple[Notice, ...]:
        return tuple(warning for layer in self.layers for warning in layer.warnings)


def rule_layers(settings: Settings, session: str | None = None) -> tuple[LayerPath, ...]:
    """Where the rules of a session lie, weakest layer first (DEC-05). Raises ``ConfigError`` for a key that is none."""
    home = str(settings.person_home)
    codex = settings.host_env.get("CODEX_HOME")
    codex_home = Path(os.path.abspath(with_home(codex, home))) if codex else settings.person_home / ".codex"
    layers = [(Layer.GLOBAL, codex_home / "rules"), (Layer.ASSISTANT, settings.data_dir / "rules")]
    if session is not None:
        if session in ("", ".", "..") or "/" in session or "\0" in session:
            raise ConfigError(f"{session!r} is not the key of a session: give the name of a directory in sessions/.")
        layers.append((Layer.SESSION, settings.data_dir / "session_rules" / session))
    return tuple(layers)


def load_rulebook(layers: Sequence[LayerPath]) -> LoadedRules:
    """Reads every file anew. A directory that does not exist is an empty layer."""
    return RuleShelf().load(layers)


_Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    stamp: _Stamp
    parsed: Parsed


class RuleShelf:
    """Keeps what was read, and reads a file again when its name, size or times have changed.

    ``where`` says which layers a session has. One look costs a few system calls a file, and never stays behind a change
    by more than the file system's clock.
    """

    def __init__(self, where: Callable[[str | None], Sequence[LayerPath]] | None = None) -> None:
        self._where = where
        self._kept: dict[tuple[Layer, str], _Kept] = {}
        self._books: dict[tuple[LayerPath, ...], tuple[object, LoadedRules]] = {}

    def rulebook(self, session: str | None = None) -> LoadedRules:
        """The rules in force for a session."""
        assert self._where is not None
        return self.load(self._where(session))

    def load(self, layers: Sequence[LayerPath]) -> LoadedRules:
        """The rules of these directories as they are now."""
        key = tuple(layers)
        looks = [_look(layer, path) for layer, path in key]
        seen = tuple(look.signature for look in looks)
        before = self._books.get(key)
        if before is not None and before[0] == seen:
            return before[1]
        parsed = [(look, self._parsed(look)) for look in looks]
        loaded = LoadedRules(
            rulebook=bind(rule for _, files in parsed for each in files for rule in each.rules),
            layers=tuple(_summed(look, files) for look, files in parsed),
            loaded_at=datetime.now(UTC),
        )
        self._books[key] = (seen, loaded)
        return loaded

    def _parsed(self, look: _Look) -> list[Parsed]:
        """One for each file of ``look``."""
        found: list[Parsed] = []
        rules = size = 0
        for path, stamp in look.files:
            size += _size(stamp)
            kept = self._kept.get((look.layer, path))
            if kept is None or kept.stamp != stamp or not stamp:
                too_much = size > MAX_LAYER_BYTES
                kept = _Kept(stamp, Parsed(rules=()) if too_much else _read_rules(path, look.layer))
                if not too_much:
                    self._kept[look.layer, path] = kept
            parsed = kept.parsed
            if size > MAX_LAYER_BYTES or rules + len(parsed.rules) > MAX_LAYER_RULES:
                limit = f"{MAX_LAYER_BYTES:,} bytes and {MAX_LAYER_RULES:,} rules"
                parsed = _refused(path, f"with it the directory would have more than {limit}: remove some")
            rules += len(parsed.rules)
            found.append(parsed)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What a directory holds at one moment."""

    layer: Layer
    path: str
    files: tuple[tuple[str, _Stamp], ...] = ()
    notices: tuple[Notice, ...] = ()

    @property
    def signature(self) -> object:
        return self.path, self.files, self.notices


def _look(layer: Layer, directory: Path) -> _Look:
    path = str(directory)
    try:
        names = sorted(name for name in os.listdir(os.fsencode(path)) if _is_rule_file(name))
    except FileNotFoundError:
        return _Look(layer=layer, path=path)
    except NotADirectoryError:
        return _Look(layer=layer, path=path, notices=(_note(path, "It is not a directory: put the rule files in one"),))
    except (OSError, ValueError) as error:
        why = f"The directory cannot be read, and none of its rules is in force ({_why(error)}): give its owner access"
        return _Look(layer=layer, path=path, notices=(_note(path, why),))
    notices: tuple[Notice, ...] = ()
    if len(names) > MAX_FILES:
        last = os.fsdecode(names[MAX_FILES - 1])
        text = (
            f"Of its {len(names):,} rule files those after {last} are not in force: put the rules in {MAX_FILES} files"
        )
        notices = (_note(path, text),)
    files = (os.path.join(path, os.fsdecode(name)) for name in names[:MAX_FILES])
    return _Look(layer=layer, path=path, files=tuple((file, _stamp(file)) for file in files), notices=notices)


def _is_rule_file(name: bytes) -> bool:
    """Not the locks that Emacs puts beside a file being edited."""
    return name.endswith(SUFFIX.encode()) and len(name) > len(SUFFIX) and not name.startswith(b".#")


def _stamp(path: str) -> _Stamp:
    """Another for another content; empty if there is none to be had."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)


def _size(stamp: _Stamp) -> int:
    return min(stamp[2], MAX_BYTES) if stamp else 0


def _read_rules(path: str, layer: Layer) -> Parsed:
    """A file's rules, or the one warning why there are none."""
    try:
        # Without O_NONBLOCK the opening of a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        target = f" to {os.readlink(path)}" if os.path.islink(path) else ""
        return _refused(path, f"the link{target} leads nowhere: correct or remove it" if target else "it has just gone")
    except (OSError, ValueError) as error:
        return _refused(path, f"it cannot be opened ({_why(error)}): give its owner read permission")
    try:
        if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
            return _refused(path, f"it is {_kind(mode)}, not a file: rename or remove it")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1) or b""  # None where nothing comes at once
    except OSError as error:
        return _refused(path, f"it cannot be read ({_why(error)}): give its owner read permission")
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        return _refused(path, f"it is larger than {MAX_BYTES:,} bytes: split it, or remove what is not needed")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _refused(path, "it is UTF-16 text: save it as UTF-8")
    return parse_rules(data.decode("utf-8", "surrogateescape"), file=path, layer=layer)


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    return "a pipe" if stat.S_ISFIFO(mode) else "a device or socket"


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _refused(path: str, why: str) -> Parsed:
    return Parsed(rules=(), notices=(_note(path, f"None of its rules is in force, restrictions included: {why}"),))


def _note(path: str, text: str) -> Notice:
    return Notice(file=path, line=0, text=f"{text}.")


def _summed(look: _Look, files: Sequence[Parsed]) -> LoadedLayer:
    return LoadedLayer(
        layer=look.layer,
        path=look.path,
        files=tuple(path for path, _ in look.files),
        count=sum(len(each.rules) for each in files),
        notices=(*look.notices, *(notice for each in files for notice in each.notices)),
    )
