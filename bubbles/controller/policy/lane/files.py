"""What a path may be in the lane: something to read, a folder of the project, a report to write."""

from __future__ import annotations

import fnmatch
import re
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
_SPECIMENS = (".env", ".env.local", "id_rsa", "id_ed25519", "server.key", "server.pem", "credentials.json",
              "secrets.yml")  # fmt: skip
_SAMPLES = (".example", ".sample", ".template", ".dist", ".pub", ".md", ".py", ".ts", ".js", ".go", ".rs")

_LOG_ENDINGS = frozenset("log out err lcov tap prof trace".split())
_REPORT_ENDINGS = frozenset("txt xml json html csv info junit sarif tsv ndjson jsonl".split())
_REPORT_WORDS = frozenset(
    """report reports result results output outputs out junit coverage cov log logs lint errors warnings bench
    benchmark timings summary stats pytest ruff mypy eslint diagnostics profile findings lcov nosetests testresults
    stdout stderr""".split()
)
_ARTIFACT_FOLDERS = frozenset("bin build dist out target tmp .build".split())


# An alternative of a pattern: {a,../b}.
_CLIMBS = re.compile(r"(?:^|[/{,(!|])\.\.(?:$|[/},)|])").search


@lru_cache(maxsize=4096)
def secret(path: str) -> bool:
    """Whether the name of ``path`` (relative, or absolute outside the roots) says that it holds credentials."""
    parts = path.lower().split("/")
    name = parts[-1]
    if not _SECRET_FOLDERS.isdisjoint(parts) or parts[-2:] == [".git", "config"]:
        return True
    if "*" in name or "?" in name or "[" in name:
        return len(name) > _LONGEST_PATTERN or any(fnmatch.fnmatchcase(specimen, name) for specimen in _SPECIMENS)
    if name.endswith(_SAMPLES):
        return False
    return name in _SECRET_NAMES or name.endswith(_SECRET_ENDINGS) or name.startswith(_SECRET_BEGINNINGS)


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
    if ".." in text.split("/") or _hidden(text, found) or not all(map(_report_like, [text, *found])):
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
    if reason is None and not (
        name in _SETTINGS
        or "config" in name
        or name.endswith(("rc", "rc.json", "rc.js", "rc.cjs", "rc.yml", "rc.yaml"))
    ):
        return f"{text} is not a usual name of a configuration file"
    return reason


_PLAIN = re.compile(r"[\w@./-]+", re.ASCII).fullmatch
_SETTINGS = frozenset(
    "pyproject.toml setup.cfg tox.ini mypy.ini ruff.toml .ruff.toml .flake8 .pylintrc pylintrc".split()
)


def _hidden(text: str, found: list[str]) -> bool:
    """By its own words, or because a link leads into git's own folder. The session may well lie in a hidden one."""
    return any(part[:1] == "." and part not in (".", "..") for part in text.split("/")) or any(
        ".git" in inner.split("/") for inner in found
    )


def _report_like(path: str) -> bool:
    stem, dot, ending = path.rsplit("/", 1)[-1].lower().rpartition(".")
    if not dot or not stem:
        return False
    if ending in _LOG_ENDINGS:
        return True
    words = stem.replace("-", " ").replace("_", " ").replace(".", " ").split()
    return ending in _REPORT_ENDINGS and not _REPORT_WORDS.isdisjoint(words)
