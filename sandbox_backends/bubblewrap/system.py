"""The minimal read-only system inside: programs and libraries, and an /etc that says nothing of the host (SBX-04)."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

HOME = "/home/agent"
HOST_NAME = "sandbox"
UID = 1000

MERGED_USR = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SHOWN_OF_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "timezone", "os-release"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates.conf", "ca-certificates", "crypto-policies", "mime.types"),
    *("pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/ca-trust/extracted", "debian_version"),
    *("services", "protocols", "magic", "fonts"),
)
"""Of the host's /etc: what linkers, TLS libraries, time zones and fonts need. No key, no account, no address is there;
whole directories that also hold keys (ssl, pki) are not."""
SHOWN_OF_ETC_BY_PATTERN = ("java-*-openjdk",)
_FILES = {
    "passwd": (
        "root:x:0:0:root:/root:/usr/sbin/nologin\n"
        f"agent:x:{UID}:{UID}:agent:{HOME}:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    ),
    "group": f"root:x:0:\ntty:x:5:\nagent:x:{UID}:\nnogroup:x:65534:\n",
    "hosts": f"127.0.0.1 localhost {HOST_NAME}\n::1 localhost ip6-localhost\n",
    "hostname": f"{HOST_NAME}\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    # Everything inside is the session's own; a root may belong to another user of its group.
    "gitconfig": "[safe]\n\tdirectory = *\n",
}


def system_options() -> list[str]:
    """/usr with its usual entries in /, read-only, and the part of /etc that programs need. Blocks on files."""
    options = ["--ro-bind", "/usr", "/usr"]
    for path in MERGED_USR:
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            options += ["--ro-bind", path, path]
    etc = Path("/etc")
    shown = [etc / name for name in SHOWN_OF_ETC if (etc / name).exists()]
    shown += [path for pattern in SHOWN_OF_ETC_BY_PATTERN for path in sorted(etc.glob(pattern))]
    for source in shown:
        options += ["--ro-bind", str(source), str(source)]
    return [*options, "--symlink", "../proc/self/mounts", "/etc/mtab"]


def proc_options(*, host_root: bool) -> list[str]:
    """A /proc of the place's own pids, in which no setting of the kernel can be changed. Blocks on files.

    bwrap does not cover /proc/sys: it takes a directory that nobody may write to for safe. To an ordinary user some of
    its own namespaces' settings, and pressure triggers, would be open. ``host_root``, uid 0 of the host, owns them
    all, without a capability: it could set kernel.core_pattern and so rule the host. For it everything that mode bits
    alone shut is covered.
    """
    options = ["--proc", "/proc"]
    if not host_root:
        for path in ("/proc/sys", "/proc/pressure"):
            options += ["--ro-bind", path, path] if os.path.exists(path) else []
        return options
    with os.scandir("/proc") as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.isdigit() or entry.is_symlink():
                continue  # processes: inside they are others
            if entry.is_dir():
                options += ["--ro-bind", entry.path, entry.path]
            elif stat.S_IMODE(entry.stat().st_mode) & 0o222 or not entry.stat().st_mode & 0o004:
                options += ["--ro-bind", "/dev/null", entry.path]
    return options


def etc_files(*, resolver: bool) -> dict[str, bytes]:
    """Files made for the inside: path and content. ``resolver``: the host's name servers, for a shared network."""
    files = {f"/etc/{name}": text.encode() for name, text in _FILES.items()}
    if resolver:
        try:
            files["/etc/resolv.conf"] = Path("/etc/resolv.conf").read_bytes()
        except OSError:
            pass
    return files


def find_python(tool_dirs: Sequence[Path]) -> str | None:
    """The Python that runs the runner: one that is to be seen inside at this path."""
    places = [Path("/usr/bin"), Path("/usr/local/bin"), *(tool / "bin" for tool in tool_dirs), *tool_dirs]
    return next((str(place / "python3") for place in places if os.access(place / "python3", os.X_OK)), None)
