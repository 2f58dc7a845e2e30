"""A Docker engine of the tests' own, to be killed and restarted: the machine's is never touched.

Its image is a few links: what runs there is this machine's /usr, shown read-only (``BackendSettings.tool_dirs``).
"""

from __future__ import annotations

import io
import secrets
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

IMAGE = "bubbles-bare:latest"
TOOL_DIRS = (Path("/usr"),)
START_S = 15.0


class PrivateEngine:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.url = f"unix://{base}/docker.sock"
        self._name = f"bubbles.{secrets.token_hex(6)}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        with (self.base / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the private dockerd did not start: {(self.base / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def _command(self) -> list[str]:
        return [
            # A network of its own: an engine without a bridge removes docker0, and this machine's is another engine's.
            *("unshare", "--net", "--"),
            *("dockerd", "--data-root", f"{self.base}/data", "--exec-root", f"{self.base}/exec"),
            *("--pidfile", f"{self.base}/pid", "--host", self.url, "--bridge=none", "--iptables=false"),
            *("--ip-forward=false", "--log-level=warn", "--config-file", f"{self.base}/daemon.json"),
            *("--containerd-namespace", self._name, "--containerd-plugins-namespace", f"{self._name}.plugins"),
        ]

    def end(self, number: int = signal.SIGTERM) -> None:
        """Signal it and wait for its end, and for that of the containerd it started."""
        if self._process is None:
            return
        pid_file = self.base / "exec" / "containerd" / "containerd.pid"
        containerd = int(pid_file.read_text())
        self._process.send_signal(number)
        self._process.wait(timeout=15)
        self._process = None
        deadline = time.monotonic() + 10
        while _runs(containerd) and time.monotonic() < deadline:
            time.sleep(0.01)
        pid_file.unlink(missing_ok=True)  # while its zombie waits to be reaped, the next engine takes it for alive

    def pause(self) -> None:
        """It takes connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self) -> Any:
        import docker

        return docker.APIClient(base_url=self.url, version="auto", timeout=20)

    def import_image(self) -> None:
        client = self.client()
        try:
            client.import_image_from_data(bare_image(), repository=IMAGE.partition(":")[0], tag="latest")
        finally:
            client.close()

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.settimeout(2)
                sock.connect(self.url.removeprefix("unix://"))
                sock.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b" 200 " in sock.recv(100)
            except OSError:
                return False


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def bare_image() -> bytes:
    """A root file system of directories and links, as a tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("usr", "etc", "tmp", "run", "proc", "sys", "dev", "home", "home/agent", "var", "var/tmp"):
            row = tarfile.TarInfo(name)
            row.type, row.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(row)
        for name in ("bin", "sbin", "lib", "lib64"):
            row = tarfile.TarInfo(name)
            row.type, row.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(row)
    return buffer.getvalue()


@contextmanager
def private_engine() -> Iterator[PrivateEngine]:
    """Running, with :data:`IMAGE` in it; gone with all its containers at the end."""
    with tempfile.TemporaryDirectory(prefix="bubbles-engine-", ignore_cleanup_errors=True) as base:
        (Path(base) / "daemon.json").write_text("{}")
        engine = PrivateEngine(Path(base))
        try:
            engine.start()
            engine.import_image()
            yield engine
        finally:
            engine.end()
            _unmount_below(base)


def _unmount_below(base: str) -> None:
    """A killed engine leaves the mounts of its containers."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(base + "/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)
