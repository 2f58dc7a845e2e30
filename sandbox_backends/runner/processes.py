"""Starting a command and ending everything that it started."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time

from .wire import HeadTail

TYPE_CHECKING = False  # typing itself costs every place a megabyte and some milliseconds
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Set, Tuple

    from .wire import Meta


MARKER = "BUBBLES_XID"
NOT_STARTED = {errno.ENOENT: 127, errno.ENOTDIR: 127}  # as a shell says it; anything else is 126
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
MAX_ENVIRON = 1 << 20
MAX_TIMEOUT_S = 1e8


class Command:
    """One running command, its pipes and what is kept of its output."""

    def __init__(self, request: int, xid: str, meta: Meta) -> None:
        self.request = request
        self.xid = xid
        self.streaming = bool(meta["stream"])
        keep = int(meta["keep"])
        self.kept: Optional[Dict[str, HeadTail]] = {name: HeadTail(keep) for name in ("stdout", "stderr")}
        self.started = time.monotonic()
        limit = meta["timeout"]
        self.deadline: Optional[float] = None if limit is None else self.started + min(float(limit), MAX_TIMEOUT_S)
        self.linger: Optional[float] = None  # once the leader has ended: until when its pipes are still read
        self.status: Optional[int] = None
        self.timed_out = False
        self.pid = 0
        self.ooms = 0  # of the whole place, when it started
        self.outputs: Dict[int, str] = {}  # descriptor -> name, while open
        self.stdin: Optional[int] = None
        self.pending: List[Tuple[memoryview, bool]] = []  # what stdin has not taken yet, and whether it ends there

    def start(self, argv: List[str], env: Mapping[str, str], want_stdin: bool, merge: bool) -> None:
        """Spawn; the caller has made the working directory current. Raises OSError as execve does."""
        reads, writes = [], []
        try:
            for _ in range(1 if merge else 2):
                r, w = os.pipe()
                reads.append(r)
                writes.append(w)
            if want_stdin:
                r, self.stdin = os.pipe()
                writes.append(r)
            actions = [
                (os.POSIX_SPAWN_DUP2, writes[-1], 0)
                if want_stdin
                else (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writes[0], 1),
                (os.POSIX_SPAWN_DUP2, writes[0 if merge else 1], 2),
            ]
            self.pid = os.posix_spawn(
                find_program(argv[0], env.get("PATH", DEFAULT_PATH)),
                argv,
                dict(env, **{MARKER: self.xid}),
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP),
            )
        except BaseException:
            for fd in reads + ([self.stdin] if self.stdin is not None else []):
                os.close(fd)
            self.stdin = None
            raise
        finally:
            for fd in writes:
                os.close(fd)
        self.outputs = dict(zip(reads, ("stdout", "stderr")))
        for fd in list(reads) + ([self.stdin] if self.stdin is not None else []):
            os.set_blocking(fd, False)

    def outcome(self) -> Tuple[str, Optional[int]]:
        """(outcome, code) from the wait status."""
        assert self.status is not None
        if self.timed_out:
            return "timed_out", None
        if os.WIFSIGNALED(self.status):
            return "signaled", -os.WTERMSIG(self.status)
        return "exited", os.WEXITSTATUS(self.status)


def find_program(name: str, path: str) -> str:
    """The file that execvp would run, ``name`` itself if it holds a slash or is nowhere on ``path``."""
    if "/" in name:
        refuse_leased(name)
        return name
    denied = None
    for directory in path.split(":"):
        candidate = (directory or ".") + "/" + name
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                refuse_leased(candidate)
                return candidate
            denied = denied or candidate
    if denied:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), denied)
    raise FileNotFoundError(errno.ENOENT, "command not found", name)


def leads_nowhere(program: str) -> str:
    """Words for a program that is a link to what is not there, as a virtual environment's is to a hidden Python."""
    if "/" in program and os.path.islink(program) and not os.path.exists(program):
        return " (it leads to %s, which is not shown here)" % os.path.realpath(program)
    return ""


def refuse_leased(program: str) -> None:
    """Raise for a program that another process holds a lease on: execve would wait for it, and everybody with it."""
    try:
        os.close(os.open(program, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY))
    except BlockingIOError as error:
        raise OSError(errno.ETXTBSY, os.strerror(errno.ETXTBSY), program) from error
    except OSError:
        pass  # execve says it better


def process_table() -> Dict[int, Tuple[int, int]]:
    """{pid: (parent, session)} of every process that can be seen."""
    if not sys.platform.startswith("linux"):
        return _table_by_ps()
    table: Dict[int, Tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as row:
                fields = row.read(1024).rsplit(b")", 1)[1].split()
        except (OSError, IndexError):
            continue
        table[int(name)] = (int(fields[1]), int(fields[3]))
    return table


def _table_by_ps() -> Dict[int, Tuple[int, int]]:
    r, w = os.pipe()
    pid = os.posix_spawn("/bin/ps", ["ps", "-axo", "pid=,ppid="], {}, file_actions=[(os.POSIX_SPAWN_DUP2, w, 1)])
    os.close(w)
    with os.fdopen(r) as rows:
        pairs = [row.split() for row in rows]
    os.waitpid(pid, 0)
    table: Dict[int, Tuple[int, int]] = {}
    for process, parent in pairs:
        try:
            table[int(process)] = (int(parent), os.getsid(int(process)))
        except OSError:
            continue
    return table


def carries(pid: int, xid: str) -> bool:
    """Whether the process was started with our marker in its environment."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as environ:
            return (MARKER + "=" + xid).encode() in environ.read(MAX_ENVIRON)
    except OSError:
        return False


def find_tree(leader: int, xid: Optional[str], spare: Set[int]) -> Set[int]:
    """Every process of a command: its session, its descendants, and what carries its marker; never one of ``spare``."""
    table = process_table()
    found: Set[int] = set()
    sessions = {leader}
    checked: Set[int] = set()
    while True:
        before = len(found)
        for pid, (parent, session) in table.items():
            if pid in found or pid in spare:
                continue
            if not (pid == leader or session in sessions or parent in found):
                if xid is None or pid in checked:
                    continue
                checked.add(pid)
                if not carries(pid, xid):
                    continue
            found.add(pid)
            sessions.add(session)
        sessions -= {table[pid][1] for pid in spare if pid in table}
        if len(found) == before:
            return found


def end_tree(leader: int, xid: Optional[str], spare: Set[int]) -> None:
    """Stop all of it, look again until nothing new appears, then kill: a forking child cannot outrun this."""
    seen: Set[int] = set()
    for _ in range(20):
        try:
            new = find_tree(leader, xid, spare) - seen
        except OSError:  # /proc cannot be read: no descriptor is left
            send_signal(-leader, signal.SIGKILL)
            seen.add(leader)
            break
        if not new:
            break
        for pid in new:
            send_signal(pid, signal.SIGSTOP)
        seen |= new
    for pid in seen:
        send_signal(pid, signal.SIGKILL)


def end_unmarked(name: str, since: int, running: List[Tuple[int, str]], spare: Set[int]) -> None:
    """Kill what belongs to no running command, hides whose it is and began ``since``; only in a hard place.

    A process that left its command's session and cleared its environment would outlive its command's time limit. What
    began before that command is spared: a server that writes its title over its environment hides by accident.
    """
    seen: Set[int] = set()
    for _ in range(20):
        kept = set(spare)
        for leader, xid in running:
            kept |= find_tree(leader, xid, spare)
        others = set(process_table()) - kept - seen
        new = {pid for pid in others if start_time(pid) >= since and hides(pid, name + ".")}
        if not new:
            return
        for pid in new:
            send_signal(pid, signal.SIGKILL)
        seen |= new


def start_time(pid: int) -> int:
    """When a process began, in clock ticks since boot (proc(5)); -1 when it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as row:
            return int(row.read(2048).rsplit(b")", 1)[1].split()[19])
    except (OSError, IndexError):
        return -1


def hides(pid: int, name: str) -> bool:
    """Whether the environment of a process can be read and does not carry our marker."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as environ:
            return (MARKER + "=" + name).encode() not in environ.read(MAX_ENVIRON)
    except OSError:
        return False


def end_descendants(spare: Set[int]) -> None:
    """Kill whatever descends from this process, children first found or reparented here (it is a subreaper)."""
    for _ in range(20):
        table = process_table()
        below = {os.getpid()}
        while True:
            more = {p for p, (parent, _) in table.items() if parent in below} - below
            if not more:
                break
            below |= more
        victims = below - spare
        if not victims:
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in victims:
                send_signal(pid, number)
        reap_now()


def end_others(running: List[Tuple[int, str]], spare: Set[int], at_least: int) -> Set[int]:
    """Kill what is left of commands that have ended, if that is most of all and ``at_least`` so many; which it was.

    A detached fork bomb would otherwise hold all the processes that the session may have, for good. Only for a place
    where every process is the session's.
    """
    seen: Set[int] = set()
    for _ in range(50):
        kept = set(spare)
        for leader, xid in running:
            kept |= find_tree(leader, xid, spare)
        others = set(process_table()) - kept
        if not seen and (len(others) < at_least or len(others) <= len(kept)):
            return seen
        if not others - seen:
            break
        for pid in others - seen:
            send_signal(pid, signal.SIGSTOP)
        seen |= others
    for pid in seen:
        send_signal(pid, signal.SIGKILL)
    return seen


def reap_now() -> List[Tuple[int, int]]:
    """Wait for every child that has ended already: (pid, status) pairs."""
    ended: List[Tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def expose(pid: int) -> None:
    """Make this process and what it starts the kernel's first choice when memory runs out, before the runner."""
    try:
        score = os.open("/proc/%d/oom_score_adj" % pid, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(score, b"500")
    except OSError:
        pass
    finally:
        os.close(score)


def send_signal(pid: int, number: int) -> None:
    """kill(2) that does not mind a process that is gone."""
    try:
        os.kill(pid, number)
    except OSError:
        pass
