"""Runs INSIDE a place: how much one session can take. Measured, never believed; all of it is given back."""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import signal
import tempfile
import time
from typing import TYPE_CHECKING

from sandbox_backends.probes.inside.frame import MIB, first_open, held, name_of, opened, probe

if TYPE_CHECKING:
    from sandbox_backends.probes.inside.frame import Answer, Config

CHUNK = 32 * MIB
RESERVATION = 256 * MIB
MOST_RESERVED = 256
MAP_NORESERVE = 0x4000
"""Linux; keeps the host's overcommit rule out of it."""
FILE = 25 * MIB
"""One file may have a limit that the place has not, so space is claimed in many."""


@probe("process-count")
def process_count(config: Config) -> Answer:
    ceiling = config["ceilings"]["processes"]
    hold_end, release_end = os.pipe()
    children: list[int] = []
    refusal = ""
    while len(children) < ceiling and not refusal:
        try:
            child = os.fork()
        except OSError as error:
            refusal = name_of(error.errno)
            continue
        if child == 0:
            os.close(release_end)
            os.read(hold_end, 1)
            os._exit(0)
        children.append(child)
    os.close(release_end)
    for child in children:
        os.waitpid(child, 0)
    count = f"{len(children)} processes"
    return held(f"{count}, then {refusal}") if refusal else opened(count + " and no end")


def allocate(limit_bytes: int) -> list[bytes]:
    """Memory that is really written to, as much as is given."""
    kept: list[bytes] = []
    try:
        kept.extend(b"\x01" * CHUNK for _ in range(limit_bytes // CHUNK))
    except MemoryError:
        pass
    return kept


def die_first() -> None:
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
    except OSError:
        pass  # it only chooses who is killed


@probe("memory-one")
def memory_one(config: Config) -> Answer:
    """Really taken up to the ceiling; beyond it only asked for, which a limit on a process's data still refuses."""
    die_first()
    ceiling = config["ceilings"]["memory_bytes"]
    kept = allocate(ceiling)
    taken = CHUNK * len(kept)
    if taken < ceiling:
        return held(f"{taken // MIB} MiB in one process, then no more")
    reserved: list[mmap.mmap] = []
    try:
        while len(reserved) < MOST_RESERVED:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
            reserved.append(mmap.mmap(-1, RESERVATION, flags=flags))
    except (OSError, ValueError):
        return held(f"{(taken + RESERVATION * len(reserved)) // MIB} MiB asked for by one process, then no more")
    return opened(f"{taken // MIB} MiB in one process and no end")


@probe("memory-together")
def memory_together(config: Config) -> Answer:
    """Four processes with a quarter each: a limit on every single process does not hold this."""
    die_first()
    share = config["ceilings"]["memory_bytes"] // 4
    report_end, child_end = os.pipe()
    hold_end, release_end = os.pipe()
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            os.close(release_end)
            os.close(report_end)
            kept = allocate(share)
            os.write(child_end, f"{CHUNK * len(kept)}\n".encode())
            os.close(child_end)
            os.read(hold_end, 1)
            os._exit(0)
        children.append(child)
    os.close(child_end)
    reports = b""
    while piece := os.read(report_end, 100):
        reports += piece
    os.close(release_end)
    killed = sum(1 for child in children if os.waitpid(child, 0)[1] == signal.SIGKILL)
    taken = sum(int(line) for line in reports.split())
    size = f"{taken // MIB} MiB in 4 processes, {killed} of them killed"
    return held(size) if killed or taken < 4 * share else opened(size)


def fill(directory: str, ceiling_bytes: int) -> Answer:
    try:
        nest = tempfile.mkdtemp(prefix=".bubbles-probe-", dir=directory)
    except OSError as error:
        return held(f"{directory} cannot be written: {name_of(error.errno)}")
    taken = 0
    try:
        while taken < ceiling_bytes:
            fd = os.open(os.path.join(nest, str(taken)), os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.posix_fallocate(fd, 0, FILE)
            finally:
                os.close(fd)
            taken += FILE
    except OSError as error:
        return held(f"{taken // MIB} MiB in {directory}, then {name_of(error.errno)}")
    finally:
        shutil.rmtree(nest, ignore_errors=True)
    return opened(f"{taken // MIB} MiB in {directory} and no end")


def home() -> str:
    return os.environ.get("HOME", "/")


@probe("disk-roots")
def disk_roots(config: Config) -> Answer:
    return first_open([fill(place, config["ceilings"]["disk_bytes"]) for place in (os.getcwd(), home())])


probe("disk-tmp")(lambda config: fill("/tmp", config["ceilings"]["disk_bytes"]))
probe("disk-shm")(lambda config: fill("/dev/shm", config["ceilings"]["disk_bytes"]))
probe("disk-home")(lambda config: fill(home(), config["ceilings"]["disk_bytes"]))


@probe("core-dumps")
def core_dumps(_config: Config) -> Answer:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    return hard == 0, f"soft {soft}, hard {hard}"


@probe("open-files")
def open_files(config: Config) -> Answer:
    ceiling = config["ceilings"]["open_files"]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 0
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        while count <= ceiling:
            os.dup(0)
            count += 1
    except OSError as error:
        return held(f"{count} more descriptors, then {name_of(error.errno)}")
    return opened(f"{count} more descriptors and no end")


@probe("cpu-share")
def cpu_share(config: Config) -> Answer:
    """Two busy processes for a second against what was demanded; a busy machine can only make it look better."""
    demanded = config["cpus"]
    if not demanded:
        return opened("no limit can be demanded here")
    began = time.monotonic()
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            while time.monotonic() - began < 1.0:
                pass
            os._exit(0)
        children.append(child)
    used = [os.wait4(child, 0)[2] for child in children]
    share = sum(usage.ru_utime + usage.ru_stime for usage in used) / (time.monotonic() - began)
    seen = f"{share:.2f} processors used, {demanded:.2f} demanded"
    return held(seen) if share < demanded * 1.5 else opened(seen)
