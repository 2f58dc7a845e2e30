"""The loop: requests in, answers out, every command's pipes in between.

One thread, and nothing in it waits for a command. It does wait for the disk: a file that is slow to read holds up the
session's other commands for as long.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import socket
import sys
import time

from . import kernel, wire
from .connection import Connection, Disconnected
from .files import UMASK, Confined, FileWrite, describe
from .processes import (
    NOT_STARTED,
    Command,
    end_descendants,
    end_others,
    end_tree,
    end_unmarked,
    expose,
    leads_nowhere,
    process_table,
    reap_now,
    send_signal,
    start_time,
)
from .wire import Failure

TYPE_CHECKING = False  # typing itself costs every place a megabyte and some milliseconds
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set, Tuple

    from .wire import Meta


LEFTOVERS = 8  # fewer than these are never ended to make room
ROOM_S = 1.0  # how long the end of what finished commands left is awaited
LINGER_S = 0.05  # how long the output of a background child is awaited after its command ended
OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
BRIDGE_PAUSE_S = 0.2  # before the bridge is started again
PIPE_BYTES = 1 << 20  # no pipe holds more
MAX_WAIT_S = 3600.0  # epoll_wait(2) counts milliseconds in 31 bits


class Runner:
    """Serves one connection until it ends."""

    def __init__(self, sock: socket.socket) -> None:
        self.selector = selectors.DefaultSelector()
        self.connection = Connection(sock, self.selector, self.on_frame)
        self.connection.on_pressure = self.on_pressure
        self.send = self.connection.send
        self.commands: Dict[int, Command] = {}  # by request
        self.leaders: Dict[int, Command] = {}  # by pid
        self.writes: Dict[int, FileWrite] = {}  # by request
        self.files: Optional[Confined] = None
        self.hard = False
        self.name = ""
        self.env: Dict[str, str] = {}  # of commands that bring none of their own
        self.cwd = -1
        self.oom_fd = -1
        self.bridge: Optional[int] = None
        self.bridge_argv: List[str] = []
        self.bridge_due: Optional[float] = None  # when it is to be started again
        self.actions = {
            wire.EXEC: self.do_exec,
            wire.STDIN: self.do_stdin,
            wire.SIGNAL: self.do_signal,
            wire.READ: self.do_read,
            wire.WRITE: self.do_write,
            wire.DATA: self.do_data,
            wire.LIST: self.do_list,
            wire.STAT: self.do_stat,
            wire.PING: self.do_ping,
        }

    # -- the loop --

    def run(self) -> None:
        """Until the connection ends; then everything that was started ends too."""
        waker, wake = os.pipe()
        for fd in (waker, wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(waker, selectors.EVENT_READ, lambda mask: self.on_wake(waker))
        self.send(wire.HELLO, 0, self.hello())
        try:
            while True:
                self.connection.flush()
                for key, mask in self.selector.select(self.next_timeout()):
                    if key.fd in self.selector.get_map():  # an earlier event of this round may have closed it
                        key.data(mask)
                self.on_time()
        except (Disconnected, wire.FrameError):
            pass
        finally:
            self.end_everything()

    @staticmethod
    def hello() -> Meta:
        return {
            "version": wire.VERSION,
            "machine": os.uname().machine,
            "python": "%d.%d.%d" % sys.version_info[:3],
            "uid": os.getuid(),
            "caps": kernel.held_capabilities() if kernel.LINUX else "",
        }

    def next_timeout(self) -> Optional[float]:
        times = [] if self.bridge_due is None else [self.bridge_due]
        for command in self.commands.values():
            if command.linger is None:
                times += [] if command.deadline is None else [command.deadline]
            elif not self.connection.pressed:
                times.append(command.linger)
        return min(MAX_WAIT_S, max(0.0, min(times) - time.monotonic())) if times else None

    def on_time(self) -> None:
        now = time.monotonic()
        for command in list(self.commands.values()):
            if command.linger is not None:
                if now >= command.linger and not self.connection.pressed:
                    self.drain(command)
                    if command.request in self.commands:
                        self.finish(command)
            elif command.deadline is not None and now >= command.deadline:
                command.timed_out, command.deadline = True, None
                began = start_time(command.pid)
                end_tree(command.pid, command.xid, self.spare())
                if self.hard:
                    end_unmarked(self.name, began, self.running(), self.spare())
        if self.bridge_due is not None and now >= self.bridge_due:
            self.start_bridge()

    def on_wake(self, waker: int) -> None:
        try:
            while os.read(waker, 4096):
                pass
        except BlockingIOError:
            pass
        self.reap()

    def reap(self) -> None:
        for pid, status in reap_now():
            if pid == self.bridge:
                self.bridge, self.bridge_due = None, time.monotonic() + BRIDGE_PAUSE_S
            command = self.leaders.pop(pid, None)
            if command is not None:
                command.status = status
                command.linger = time.monotonic() + LINGER_S
                if not command.outputs:
                    self.finish(command)

    def on_frame(self, frame: wire.Frame) -> None:
        kind, request, meta, data = frame
        try:
            if kind == wire.INIT and self.files is None:
                self.do_init(meta, data)
            elif self.files is None or kind not in self.actions:
                raise Failure("invalid", "request type %d is not known" % kind)
            else:
                self.actions[kind](self.files, request, meta, data)
        except Failure as failure:
            self.fail(request, failure.code, failure.message)
        except OSError as error:
            self.fail(request, "io", "%s: %s" % (error.filename or "the runner", error.strerror))
        except Exception as error:  # noqa: BLE001 - one request that makes no sense must not cost the others
            self.fail(request, "invalid", "the request cannot be read: %s: %s" % (type(error).__name__, error))

    def fail(self, request: int, code: str, message: str) -> None:
        self.send(wire.FAIL, request, {"code": code, "message": message[:2000]})

    def on_pressure(self, pressed: bool) -> None:
        """Read commands' output only while little waits to be sent: a command then blocks as on any full pipe."""
        for command in self.commands.values():
            if command.linger is not None and not pressed:
                command.linger = time.monotonic() + LINGER_S
            for fd in command.outputs:
                if pressed:
                    self.selector.unregister(fd)
                else:
                    self.watch(command, fd)

    # -- start and end --

    def do_init(self, meta: Meta, data: bytes) -> None:
        self.hard, self.name = bool(meta["hard"]), str(meta["id"])
        if self.hard and kernel.LINUX and kernel.held_capabilities():
            raise Failure("invalid", "the sandbox was started with capabilities: " + kernel.held_capabilities())
        os.umask(UMASK)
        for limit, value in meta["rlimits"].items():
            number = getattr(resource, "RLIMIT_" + limit)
            hard = resource.getrlimit(number)[1]
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (bound, bound))
        try:
            files = Confined(meta["roots"], meta["cwd"])
        except OSError as error:
            raise Failure("not_found", "%s cannot be opened inside: %s" % (error.filename, error.strerror)) from error
        if data:
            kernel.install_filter(data)
        if meta["bridge"]:
            here = os.path.dirname(os.path.abspath(__file__))
            self.bridge_argv = [sys.executable, "-I", "-S", "-B", here + "/bridge.py", *meta["bridge"]]
            self.open_bridge()
        self.cwd = files.open(".", os.O_RDONLY | os.O_DIRECTORY)
        counter = next((f for f in OOM_COUNTERS if self.hard and os.path.exists(f)), None)
        if counter is not None:
            self.oom_fd = os.open(counter, os.O_RDONLY | os.O_CLOEXEC)
        self.env = meta["env"]
        self.files = files
        self.send(wire.READY, 0, {"pid": os.getpid()})

    def open_bridge(self) -> None:
        """Start the bridge to the egress proxy and wait until it listens, so that the first command finds it."""
        ready, told = os.pipe()
        os.set_inheritable(told, True)
        argv = self.bridge_argv
        self.bridge = os.posix_spawn(argv[0], [*argv, "--ready-fd", str(told)], {}, setsid=True)
        os.close(told)
        listening = os.read(ready, 1)
        os.close(ready)
        if not listening:
            raise Failure("io", "the way to the egress proxy could not be opened inside")

    def start_bridge(self) -> None:
        """Start it again after a command killed it; if that fails, once more a little later."""
        self.bridge_due = None
        try:
            self.bridge = os.posix_spawn(self.bridge_argv[0], self.bridge_argv, {}, setsid=True)
        except OSError:
            self.bridge_due = time.monotonic() + BRIDGE_PAUSE_S

    def spare(self) -> Set[int]:
        """Processes that a command's end must not touch."""
        return {pid for pid in (1, os.getpid(), os.getppid(), self.bridge) if pid}

    def end_everything(self) -> None:
        for write in list(self.writes.values()):
            write.abort()
        if self.hard and os.getpid() == 1:
            send_signal(-1, signal.SIGKILL)
        else:
            end_descendants({os.getpid()})

    # -- commands --

    def oom_kills(self) -> int:
        if self.oom_fd < 0:
            return 0
        rows = os.pread(self.oom_fd, 4096, 0).splitlines()
        return sum(int(row.split()[1]) for row in rows if row.startswith(b"oom_kill "))

    def do_exec(self, files: Confined, request: int, meta: Meta, data: bytes) -> None:
        if request in self.commands:
            raise Failure("invalid", "request %d is running already" % request)
        argv, env = meta["argv"], meta["env"]
        cwd = files.open(meta["cwd"], os.O_RDONLY | os.O_DIRECTORY) if meta["cwd"] else self.cwd
        # The last dot: request 1 must not be taken for the beginning of request 12.
        command = Command(request, "%s.%d." % (self.name, request), meta)
        command.ooms = self.oom_kills()
        try:
            os.fchdir(cwd)
            env = self.env if env is None else env
            try:
                command.start(argv, env, meta["stdin"], meta["merge"])
            except BlockingIOError:  # EAGAIN: no process is left to be had
                if not self.hard:
                    raise
                self.make_room()
                command.start(argv, env, meta["stdin"], meta["merge"])
        except OSError as error:
            text = "bubbles: cannot run %s: %s%s\n" % (argv[0], error.strerror, leads_nowhere(argv[0]))
            self.send(wire.OUT, request, {"stream": "stderr"}, text.encode("utf-8", "surrogateescape"))
            code = NOT_STARTED.get(error.errno or 0, 126)
            done = {"outcome": "exited", "code": code, "dropped": 0, "detached": False, "duration": 0.0}
            self.send(wire.DONE, request, done)
            return
        finally:
            if cwd != self.cwd:
                os.close(cwd)
        if self.hard:
            expose(command.pid)
        self.commands[request] = self.leaders[command.pid] = command
        if not self.connection.pressed:
            for fd in command.outputs:
                self.watch(command, fd)

    def running(self) -> List[Tuple[int, str]]:
        return [(command.pid, command.xid) for command in self.leaders.values()]

    def make_room(self) -> None:
        """End what finished commands left running, if it holds most of the processes that there are."""
        ended = end_others(self.running(), self.spare(), at_least=LEFTOVERS)
        deadline = time.monotonic() + ROOM_S
        while ended.intersection(process_table()) and time.monotonic() < deadline:
            time.sleep(0.005)
            self.reap()

    def watch(self, command: Command, fd: int) -> None:
        self.selector.register(fd, selectors.EVENT_READ, lambda mask: self.on_output(command, fd))

    def on_output(self, command: Command, fd: int) -> bool:
        """Take a piece of output; whether there was one."""
        try:
            chunk = os.read(fd, wire.CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        if not chunk:
            self.selector.unregister(fd)
            os.close(fd)
            del command.outputs[fd]
            if not command.outputs and command.request in self.commands:
                self.look_for_end(command)
            return False
        if command.kept is None:
            pass  # the command has ended: a background child's output is read and thrown away
        elif command.streaming:
            self.send(wire.OUT, command.request, {"stream": command.outputs[fd]}, chunk)
        else:
            command.kept[command.outputs[fd]].feed(chunk)
        return True

    def look_for_end(self, command: Command) -> None:
        """Answer for a command whose pipes are closed, if it has ended: mostly it has, just before SIGCHLD says so."""
        if command.status is None:
            pid, status = os.waitpid(command.pid, os.WNOHANG)
            if not pid:
                return
            del self.leaders[pid]
            command.status = status
        self.finish(command)

    def drain(self, command: Command) -> None:
        """Take what the command wrote before it ended; a background child that floods is not followed for ever."""
        for fd in list(command.outputs):
            for _ in range(PIPE_BYTES // wire.CHUNK + 1):
                if not self.on_output(command, fd):
                    break

    def finish(self, command: Command) -> None:
        """Answer for a command whose leader has ended."""
        outcome, code = command.outcome()
        if code in (-9, 137) and self.oom_kills() > command.ooms:
            outcome, code = "oom", None
        dropped = 0
        for name, kept in (command.kept or {}).items():
            value = kept.value()
            dropped += kept.dropped
            for at in range(0, len(value), wire.CHUNK):
                self.send(wire.OUT, command.request, {"stream": name}, value[at : at + wire.CHUNK])
        done = {"outcome": outcome, "code": code, "dropped": dropped, "detached": bool(command.outputs)}
        self.send(wire.DONE, command.request, dict(done, duration=time.monotonic() - command.started))
        command.kept = None
        self.close_stdin(command)
        del self.commands[command.request]
        if self.connection.pressed:
            for fd in command.outputs:
                self.watch(command, fd)  # on_pressure no longer knows it, and what it writes is thrown away

    def do_stdin(self, files: Confined, request: int, meta: Meta, data: bytes) -> None:
        command = self.commands.get(request)
        if command is None:
            return  # it has been answered already, and that answers this too
        if command.stdin is None:
            self.send(wire.ACK, request, {"closed": True})
            return
        command.pending.append((memoryview(data), bool(meta["eof"])))
        if len(command.pending) == 1:
            self.on_stdin(command, command.stdin)

    def on_stdin(self, command: Command, fd: int) -> None:
        """Write what the command takes; acknowledge each piece once it is all in the pipe."""
        watched = fd in self.selector.get_map()
        while command.pending:
            data, eof = command.pending[0]
            try:
                while data:
                    data = data[os.write(fd, data) :]
            except BlockingIOError:
                command.pending[0] = (data, eof)
                if not watched:
                    self.selector.register(fd, selectors.EVENT_WRITE, lambda mask: self.on_stdin(command, fd))
                return
            except OSError:
                self.close_stdin(command)
                return
            command.pending.pop(0)
            self.send(wire.ACK, command.request, {"closed": False})
            if eof:
                self.close_stdin(command)
                return
        if watched:
            self.selector.unregister(fd)

    def close_stdin(self, command: Command) -> None:
        if command.stdin is not None:
            if command.stdin in self.selector.get_map():
                self.selector.unregister(command.stdin)
            os.close(command.stdin)
            command.stdin = None
        if command.request in self.commands and command.kept is not None:
            for _ in command.pending:
                self.send(wire.ACK, command.request, {"closed": True})
        command.pending = []

    def do_signal(self, files: Confined, request: int, meta: Meta, data: bytes) -> None:
        write = self.writes.pop(request, None)
        if write is not None:
            write.abort()
            raise Failure("io", "the file was given up")
        command = self.commands.get(request)
        if command is None or command.status is not None:
            return
        if meta["signal"] == signal.SIGKILL:
            end_tree(command.pid, command.xid, self.spare())
        else:
            send_signal(-command.pid, meta["signal"])

    # -- files --

    def do_read(self, files: Confined, request: int, meta: Meta, data: bytes) -> None:
        for chunk in files.read(meta["path"], meta["offset"], min(meta["limit"], wire.MAX_READ)):
            self.send(wire.OUT, request, {"stream": "stdout"}, chunk)
        self.send(wire.DONE, request)

    def do_write(self, files: Confined, request: int, meta: Meta, data: bytes) -> None:
        if request in self.writes:
            raise Failure("invalid", "request %d is being written already" % request)
        self.writes[request] = FileWrite(files, meta["path"], meta["mode"])
        self.do_data(files, request, meta, data)

    def do_data(self, files: Confined, request: int, meta: Meta, data: bytes) -> None:
        write = self.writes.get(request)
        if write is None:
            return  # it failed already and the caller has been told
        try:
            write.write(data)
            if meta["eof"]:
                write.commit()
                self.send(wire.DONE, request)
        except BaseException:
            del self.writes[request]
            write.abort()
            raise
        if meta["eof"]:
            del self.writes[request]

    def do_list(self, files: Confined, request: int, meta: Meta, data: bytes) -> None:
        entries, truncated = files.list(meta["path"], wire.MAX_ENTRIES)
        rows = "".join(json.dumps(entry) + "\n" for entry in entries).encode("ascii")
        for at in range(0, len(rows), wire.CHUNK):
            self.send(wire.OUT, request, {"stream": "stdout"}, rows[at : at + wire.CHUNK])
        self.send(wire.DONE, request, {"truncated": truncated})

    def do_stat(self, files: Confined, request: int, meta: Meta, data: bytes) -> None:
        self.send(wire.DONE, request, {"stat": describe(files.stat(meta["path"]))})

    def do_ping(self, files: Confined, request: int, meta: Meta, data: bytes) -> None:
        self.send(wire.DONE, request)
