"""The stream through stdin and stdout, for a place that no socket can be brought into: two threads that copy."""

from __future__ import annotations

import os
import socket
import threading

from . import wire


def connect() -> socket.socket:
    """A socket whose other end is this process's stdin and stdout, which nobody else can use from here on.

    The threads run without the runner's system call filter, which belongs to the thread that installs it; all they do
    is here, and no command is started from them.
    """
    inward, outward = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    ours, theirs = socket.socketpair()
    for copy in (_copy_in, _copy_out):
        threading.Thread(target=copy, args=(theirs, inward if copy is _copy_in else outward), daemon=True).start()
    return ours


def _copy_in(sock: socket.socket, fd: int) -> None:
    try:
        while True:
            data = os.read(fd, wire.CHUNK)
            if not data:
                break
            sock.sendall(data)
    except OSError:
        pass
    _end(sock)


def _copy_out(sock: socket.socket, fd: int) -> None:
    try:
        while True:
            data = memoryview(sock.recv(wire.CHUNK))
            if not data:
                break
            while data:
                data = data[os.write(fd, data) :]
    except OSError:
        pass
    _end(sock)


def _end(sock: socket.socket) -> None:
    """One way ended, so the other does: the runner sees its stream end."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
