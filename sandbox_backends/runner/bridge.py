"""The inner end of the egress proxy: 127.0.0.1:PORT inside the place leads to the proxy's unix socket.

    python3 -I -S -B bridge.py --listen 3128 --unix /run/bubbles/egress.sock [--ready-fd N]

One file, standard library, Python 3.8 or newer, Linux. One thread and epoll: asyncio would cost 50 ms and megabytes.
It decides nothing, so it need not be trusted: what may pass is checked at the other end of the socket.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import sys

# Above what the proxy takes at once (128), so that it is the proxy that answers, with a sentence, when it is too much.
MAX_CONNECTIONS = 192
CHUNK_BYTES = 64 * 1024
CONNECT_TIMEOUT_S = 5
RETRY_ACCEPT_S = 1.0
TURN_AWAY_S = 0.2
GONE = (
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"The egress proxy of this sandbox does not answer.\n"
)


class Side:
    """One socket of a pair, and the one piece of bytes that waits to be sent to it."""

    __slots__ = ("ended", "finished", "mask", "other", "pending", "registered", "sock")

    other: Side

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.pending = b""
        self.ended = False  # it sends no more
        self.finished = False  # nothing more is sent to it
        self.mask = 0
        self.registered = False


class Bridge:
    def __init__(self, port: int, path: str) -> None:
        self.path = path
        self.sides: dict[int, Side] = {}
        self.poll = select.epoll()
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(512)
        self.listener.setblocking(False)
        self.accepting = False

    def run(self) -> None:
        while True:
            if not self.accepting and len(self.sides) < 2 * MAX_CONNECTIONS:
                self.poll.register(self.listener.fileno(), select.EPOLLIN)
                self.accepting = True
            for fd, event in self.poll.poll(-1 if self.accepting else RETRY_ACCEPT_S):
                if fd == self.listener.fileno():
                    self.accept()
                elif fd in self.sides:  # else it was closed by an event before this one
                    self.serve(self.sides[fd], event)

    def accept(self) -> None:
        try:
            inner, _ = self.listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # out of descriptors: wait until some connection ends
            self.pause()
            return
        outer = None
        try:
            inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            outer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            # A connect that does not block fails at once when the proxy has others to accept first, and nothing tells
            # when to try again. It accepts in an instant, or the whole controller stands still.
            outer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", CONNECT_TIMEOUT_S, 0))
            outer.connect(self.path)
            outer.setblocking(False)
            inner.setblocking(False)
        except OSError:
            self.turn_away(inner)
            if outer is not None:
                outer.close()
            return
        first, second = Side(inner), Side(outer)
        first.other, second.other = second, first
        for side in (first, second):
            self.sides[side.sock.fileno()] = side
            self.watch(side)
        if len(self.sides) >= 2 * MAX_CONNECTIONS:
            self.pause()

    def turn_away(self, inner: socket.socket) -> None:
        try:
            # The request first: closing before it came could take the answer away. Nobody else is kept from anything.
            inner.settimeout(TURN_AWAY_S)
            inner.recv(CHUNK_BYTES)
            inner.send(GONE)
            inner.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        inner.close()

    def pause(self) -> None:
        self.poll.unregister(self.listener.fileno())
        self.accepting = False

    def serve(self, side: Side, event: int) -> None:
        other = side.other
        try:
            if event & select.EPOLLOUT and side.pending:
                self.send(side, b"")
            if event & ~select.EPOLLOUT and not side.ended and not other.pending:
                self.receive(side)
        except BlockingIOError:
            pass
        except OSError:  # reset: nothing can follow in either direction
            self.close(side)
            return
        # Both ways of this socket are shut. Without this, a proxy that closed after its half of a tunnel had ended
        # would leave a pair open for as long as the client keeps its own end.
        if event & (select.EPOLLHUP | select.EPOLLERR) and side.ended:
            self.lose(side)
        if side.finished and other.finished:
            self.close(side)
            return
        self.watch(side)
        self.watch(other)

    def receive(self, side: Side) -> None:
        data = side.sock.recv(CHUNK_BYTES)
        if data:
            self.send(side.other, data)
            return
        side.ended = True
        self.finish(side.other)  # nothing waits for it: this side is not read while something does

    def send(self, side: Side, data: bytes) -> None:
        """Send what waits, or ``data`` when nothing does, and keep what the socket does not take."""
        data = side.pending or data
        side.pending = b""
        if side.finished:
            return  # it takes nothing any more: what still comes for it is read and thrown away
        try:
            sent = side.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # it closed, but what it sent before is still to be read
            self.lose(side)
            return
        side.pending = data[sent:]

    def finish(self, side: Side) -> None:
        if not side.finished:
            side.finished = True
            try:
                side.sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    def lose(self, side: Side) -> None:
        side.finished = True
        side.pending = b""

    def watch(self, side: Side) -> None:
        """Ask for the events that can be acted on: one that nobody wants would come again and again."""
        mask = 0
        if side.pending:
            mask |= select.EPOLLOUT
        if not side.ended and not side.other.pending:
            mask |= select.EPOLLIN
        # An end and a reset are always told of registered sockets; they matter until this one can take nothing more.
        wanted = bool(mask) or (side.ended and not side.finished)
        fd = side.sock.fileno()
        if wanted and not side.registered:
            self.poll.register(fd, mask)
        elif wanted and mask != side.mask:
            self.poll.modify(fd, mask)
        elif side.registered and not wanted:
            self.poll.unregister(fd)
        side.registered, side.mask = wanted, mask

    def close(self, side: Side) -> None:
        for each in (side, side.other):
            del self.sides[each.sock.fileno()]
            each.sock.close()  # which also takes it out of the epoll set


def guard() -> None:
    """Die with the parent, and let nothing of the same user look inside or take descriptors."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return
    pr_set_pdeathsig, pr_set_dumpable = 1, 4
    prctl(pr_set_pdeathsig, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    prctl(pr_set_dumpable, ctypes.c_ulong(0), 0, 0, 0)


def main(argv: list[str]) -> int:
    options = dict(zip(argv[::2], argv[1::2]))
    guard()
    try:
        bridge = Bridge(int(options["--listen"]), options["--unix"])
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write("The bridge to the egress proxy cannot start: %r\n" % error)
        return 1
    ready = int(options.get("--ready-fd", -1))
    if ready >= 0:
        os.write(ready, b"1")  # raises when the parent is gone already: then this must not go on either
        os.close(ready)
    bridge.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
