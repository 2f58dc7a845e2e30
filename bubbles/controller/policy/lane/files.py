"""What a path may be in the lane: something to read, a folder of the project, a report to write."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from bubbles.controller.policy.lane.table import Site

NULL = "/dev/null"

_MACHINE = ("/dev/", "/proc/", "/sys/", "/run/")

_SECRET_NAMES = frozenset(
    """.env .envrc .netrc _netrc .pgpass .npmrc .yarnrc .pypirc .git-credentials .htpasswd .my.cnf .vault-token .s3cfg
    .boto .dockercfg .credentials credentials credentials.json credentials.yml credentials.yaml credentials.toml
    secrets.json secrets.yml secrets.yaml secrets.toml secrets.env secret.json secret.yml secret.yaml secret.txt
    secrets.txt token.txt token.json passwords.txt password.txt client_secret.json master.key shadow gshadow sudoers
    terraform.tfvars""".split()
)
_SECRET_FOLDERS = frozenset(
    ".ssh .aws .gnupg .kube .docker .azure .gcloud gcloud .bubbles .codex .claude .password-store .terraform.d".split()
)
_SECRET_ENDINGS = (".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".env", ".tfstate", ".ovpn")
_SECRET_BEGINNINGS = ("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".env.", "service-account", "service_account",
                      "client_secret", "credentials.")  # fmt: skip
_SPECIMENS = (
    *".env .env.local .env.production .env.development .env.staging .env.test".split(),
    *"id_rsa id_ed25519 server.key server.pem credentials.json secrets.yml".split(),
)
_SAMPLES = (".example", ".sample", ".template", ".dist", ".pub", ".md", ".py", ".ts", ".js", ".go", ".rs")

_LOG_ENDINGS = frozenset("log out err lcov tap prof trace".split())
_REPORT_ENDINGS = frozenset("txt xml json html csv info junit sarif tsv ndjson jsonl".split())
_REPORT_WORDS = frozenset(
    """report reports result results output outputs out junit coverage cov log logs lint errors warnings bench
    benchmark timings summary stats pytest ruff mypy eslint diagnostics profile findings lcov nosetests testresults
    stdout stderr""".split()
)
_ARTIFACT_FOLDERS = frozenset("bin build dist out target tmp .build".split())
# Words, endings and folders of files that a project keeps, whatever else their names say.
_KEPT_WORDS = frozenset(
    """requirements constraints config configs configuration settings schema manifest package packages fixture fixtures
    expected golden baseline snapshot snapshots template base robots license readme changelog options rules""".split()
)
_KEPT_BEGINNINGS = ("requirements", "constraints", "tsconfig", "jsconfig", "package", "cmakelists", "appsettings")
_KEPT_NAMES = frozenset("lint.xml eslint.json profile.json coverage.json lint.json log.html".split())
_SOURCE_FOLDERS = frozenset(
    """src lib app apps templates views pages components public static assets fixtures testdata test_data golden
    expected snapshots __snapshots__ requirements migrations locale locales i18n content tests test spec""".split()
)
_COVERAGE_WORDS = frozenset("cov htmlcov covhtml coverage report reports".split())
_CACHE_NAMES = frozenset(".mypy_cache mypy_cache mypy-cache .cache .mypy-cache".split())


# An alternative of a pattern: {a,../b}.
_CLIMBS = re.compile(r"(?:^|[/{,(!|])\.\.(?:$|[/},)|])").search


@lru_cache(maxsize=4096)
def secret(path: str) -> bool:
    """Whether the name of ``path`` (relative, or absolute outside the roots) says that it holds credentials."""
    # In a pattern of git's a backslash makes the next character plain.
    parts = path.lower().replace("\\", "").split("/")
    name = parts[-1]
    if not _SECRET_FOLDERS.isdisjoint(parts) or parts[-2:] == [".git", "config"]:
        return True
    if "*" in path or "?" in path or "[" in path:
        return len(path) > _LONGEST_PATTERN or _may_be_secret(parts[:-1], name)
    if name.endswith(_SAMPLES):
        return False
    return name in _SECRET_NAMES or name.endswith(_SECRET_ENDINGS) or name.startswith(_SECRET_BEGINNINGS)


def _may_be_secret(folders: list[str], name: str) -> bool:
    """Whether a pattern could match what holds credentials; a pattern without a fixed ending mostly could."""
    for part in folders:
        if _WILD(part) and part.strip("*") and _matches_any(part, _SECRET_FOLDERS):
            return True
    if not _WILD(name):
        return secret(name)
    ending = _WILD_SPLIT(name)[-1]
    if ending.endswith(_SECRET_ENDINGS) or _matches_any(name, _SPECIMENS):
        return True
    beginning = _WILD_SPLIT(name)[0]
    if ending.endswith(_PLAIN_ENDINGS) or beginning.startswith(_PLAIN_BEGINNINGS):
        return False
    if beginning and any(other.startswith(beginning) or beginning.startswith(other) for other in _SECRET_BEGINNINGS):
        return True
    # A fixed ending with a dot in it is the whole one: none of those above.
    return _matches_any(name, _SECRET_NAMES) or ("." not in ending and any(map(_ends_with(ending), _SECRET_ENDINGS)))


def _ends_with(ending: str) -> Callable[[str], bool]:
    return lambda secret_ending: secret_ending.endswith(ending)


def _matches_any(pattern: str, names: Iterable[str]) -> bool:
    if "[" in pattern:  # as wide as it could be
        pattern = f"{pattern.partition('[')[0]}*{pattern.rpartition(']')[2] if ']' in pattern else ''}"
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


_WILD = re.compile(r"[*?\[]").search
_WILD_SPLIT = re.compile(r"[*?\[\]]").split
_PLAIN_ENDINGS = (
    *_SAMPLES, ".tsx", ".jsx", ".mjs", ".cjs", ".rb", ".java", ".kt", ".c", ".h", ".cc", ".cpp", ".hpp", ".cs",
    ".css", ".scss", ".html", ".rst", ".sh", ".vue", ".svelte", ".php", ".swift", ".dart", ".ex", ".exs", ".proto",
    ".log", ".csv", ".lock", ".snap", ".cmake", ".gradle", ".svg",
)  # fmt: skip
_PLAIN_BEGINNINGS = ("readme", "license", "licence", "changelog", "contributing", "makefile", "dockerfile")
_LONGEST_PATTERN = 200
"""Characters: making a pattern ready takes time that grows with the square of its length."""


def within(place: str, roots: tuple[str, ...]) -> str | None:
    """``place`` as seen from the innermost root that holds it ("" is the root itself), or None."""
    found: str | None = None
    for root in roots:
        if place == root:
            return ""
        prefix = root if root.endswith("/") else root + "/"
        if place.startswith(prefix) and (found is None or len(place) - len(prefix) < len(found)):
            found = place[len(prefix) :]
    return found


def _inner(text: str, site: Site, *, reach: bool) -> tuple[list[str], str | None]:
    """Where ``text`` may lead, as seen from the roots, and why it may not be used. ``reach``: what the sandbox shows
    will do as well as what lies in the roots.
    """
    if not text or text[0] == "@":
        # pytest, ruff, mypy, gcc and others read further arguments from @file.
        return [], f"{text or 'an empty word'} is not a plain path"
    if ".." in text and any(c in text for c in "*?[{") and _CLIMBS(text):
        return [], f"{text} is a pattern that may leave the folder"
    places = site.lead(text)
    if not places:
        return [], f"it is not known where {text} lies"
    found: list[str] = []
    for place in places:
        inner = within(place, site.roots)
        if inner is None:
            if not (reach and site.context.contained):
                return [], f"{text} lies outside the folders of this session"
            if f"{place}/".startswith(_MACHINE) and place != NULL:
                return [], f"{text} is a device, or a file that the kernel or a service makes up"
            inner = place
        found.append(inner)
    return found, None


def look(text: str, site: Site) -> str | None:
    """A path whose name or size is looked at, not its content."""
    return None if text in ("-", NULL) else _inner(text, site, reach=True)[1]


def read(text: str, site: Site) -> str | None:
    """A path whose content is shown."""
    if text in ("-", NULL):
        return None
    found, reason = _inner(text, site, reach=True)
    if reason is None and (secret(text.rsplit("/", 1)[-1]) or any(map(secret, found))):
        return f"{text} may hold credentials"
    return reason


def own(text: str, site: Site) -> str | None:
    """A path in the roots: code that is run or checked, a folder that is built in."""
    if text[:1] == "-":
        # After -- most tools would take it for a path; but yarn and others drop the --.
        return f"{text} looks like an option"
    return _inner(text, site, reach=False)[1]


def code(text: str, site: Site) -> str | None:
    """A path in the roots whose content is run: no file that a command of the lane may have written just before, and
    no pattern that may match one.
    """
    found, reason = ([], own(text, site)) if text[:1] == "-" else _inner(text, site, reach=False)
    if reason is not None:
        return reason
    name = text.rstrip("/").rpartition("/")[2]
    if (_WILD(name) or "{" in name) and not _matches_code(name):
        return f"{text} may match a file that is no program"
    if any(_is_output(path) for path in (text, *found)):
        return f"{text} is a log or a report, not a program"
    return None


def _matches_code(pattern: str) -> bool:
    """Whether the ending of a pattern is fixed, ``*.{ts,tsx}``, and not one of a report."""
    _, dot, ending = pattern.lower().rpartition(".")
    choices = ending.strip("{}").split(",")
    return bool(dot and _FIXED(ending)) and (_LOG_ENDINGS | _REPORT_ENDINGS).isdisjoint(choices)


_FIXED = re.compile(r"\w+|\{\w+(?:,\w+)*\}", re.ASCII).fullmatch


def _is_output(path: str) -> bool:
    _, dot, ending = path.rpartition("/")[2].lower().rpartition(".")
    return bool(dot) and (ending == "txt" or ending in _LOG_ENDINGS or _report_named(path))


def coverage_folder(text: str, site: Site) -> str | None:
    """A folder in the roots for coverage reports, by its name."""
    return _output_folder(text, site, _is_coverage, "a folder for coverage reports")


def cache_folder(text: str, site: Site) -> str | None:
    """A folder in the roots for a cache, or the device that keeps nothing."""
    if text == NULL:
        return None
    return _output_folder(text, site, lambda name: name in _CACHE_NAMES, "a folder for a cache")


def _is_coverage(name: str) -> bool:
    return name[:1] != "." and not _COVERAGE_WORDS.isdisjoint(_words(name))


def _output_folder(text: str, site: Site, fits: Callable[[str], bool], what: str) -> str | None:
    found, reason = _inner(text, site, reach=False) if _PLAIN(text) else ([], f"{text} is not {what}")
    if reason is not None:
        return reason
    for path in (text, *found):
        *folders, name = path.rstrip("/").lower().split("/")
        outer = [part for part in folders if part not in (".", "")] if path is not text else []
        if not fits(name) or ".." in folders or ".git" in folders or not _SOURCE_FOLDERS.isdisjoint(outer):
            return f"{text} is not {what}"
    return None


def folder(text: str, site: Site) -> str | None:
    """A folder in the roots that a tool writes to: no hidden one."""
    found, reason = _inner(text, site, reach=False)
    if reason is None and _hidden(text, found):
        return f"{text} is hidden"
    return reason


def report(text: str, site: Site) -> str | None:
    """A file in the roots that may be overwritten, since its name says that it is a log or a report."""
    if text == NULL:
        return None
    found, reason = _inner(text, site, reach=False)
    if reason is not None:
        return reason
    if ".." in text.split("/") or _hidden(text, found) or not (_report_named(text) and all(map(_report_like, found))):
        return f"{text} is not the name of a log or a report"
    return None


def artifact(text: str, site: Site) -> str | None:
    """A file that a build makes, in a folder for such files."""
    if text == NULL:
        return None
    found, reason = _inner(text, site, reach=False)
    if reason is not None:
        return reason
    if _hidden(text, found) or any(_ARTIFACT_FOLDERS.isdisjoint(inner.split("/")[:-1]) for inner in found):
        return f"{text} is not in a build folder"
    return None


def settings(text: str, site: Site) -> str | None:
    """A configuration file of the project, by its usual kind of name."""
    if not _PLAIN(text):
        return f"{text} is not a plain path"
    found, reason = _inner(text, site, reach=False)
    if reason is None and any(map(secret, found)):
        return f"{text} may hold credentials"
    name = text.rsplit("/", 1)[-1].lower()
    usual = name in _SETTINGS or name.endswith(_SETTINGS_ENDINGS) or ("config" in name and _ends_as_settings(name))
    if reason is None and (not usual or any(_is_output(path) for path in (text, *found))):
        return f"{text} is not a usual name of a configuration file"
    return reason


def _ends_as_settings(name: str) -> bool:
    """``jest.config.mjs``; ``.config/nextest`` may do without an ending."""
    _, dot, ending = name.rpartition(".")
    return not dot or ending in _CONFIG_ENDINGS


_PLAIN = re.compile(r"[\w@./-]+", re.ASCII).fullmatch
_SETTINGS = frozenset(
    "pyproject.toml setup.cfg tox.ini mypy.ini ruff.toml .ruff.toml .flake8 .pylintrc pylintrc".split()
)
_SETTINGS_ENDINGS = ("rc", "rc.json", "rc.js", "rc.cjs", "rc.yml", "rc.yaml")
_CONFIG_ENDINGS = frozenset("toml cfg ini json jsonc json5 js cjs mjs ts mts cts yml yaml py".split())


def _hidden(text: str, found: list[str]) -> bool:
    """By its own words, or because a link leads into git's own folder. The session may well lie in a hidden one."""
    return any(part[:1] == "." and part not in (".", "..") for part in text.split("/")) or any(
        ".git" in inner.split("/") for inner in found
    )


def _report_like(path: str) -> bool:
    """Whether what ``path`` names may be overwritten: it is named as a report, and not kept where sources are."""
    folders = path.lower().split("/")[:-1]
    log = path.rpartition(".")[2].lower() == "log"
    return _report_named(path) and (log or _SOURCE_FOLDERS.isdisjoint(folders))


def _report_named(path: str) -> bool:
    name = path.rsplit("/", 1)[-1].lower()
    stem, dot, ending = name.rpartition(".")
    if not dot or not stem:
        return False
    words = _words(stem)
    if ending == "log":
        return True
    if name in _KEPT_NAMES or name.startswith(_KEPT_BEGINNINGS) or not _KEPT_WORDS.isdisjoint(words):
        return False
    return ending in _LOG_ENDINGS or (ending in _REPORT_ENDINGS and not _REPORT_WORDS.isdisjoint(words))


def _words(name: str) -> list[str]:
    return name.replace("-", " ").replace("_", " ").replace(".", " ").split()
