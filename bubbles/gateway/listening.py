"""Where the gateway may listen, and the sockets for it (OPS-02).

What listens on an address of this machine alone is there for the programs of this machine. Anything else can be asked
from elsewhere: it needs a token, and a sandbox in which that token cannot be read.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bubbles.errors import BubblesError, ConfigError

if TYPE_CHECKING:
    from bubbles.config.schema import Settings

BACKLOG = 32
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Every address of this machine, and what a program of this machine takes instead."""
LOCALHOST = "localhost"


def authority(host: str, port: int) -> str:
    """``host:port`` as it stands in an address (RFC 3986, 3.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bare(host: str) -> str:
    """Without the brackets that an IPv6 address has in an address."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there. A name that must be looked up is not believed."""
    if host.lower().rstrip(".") == LOCALHOST:
        return True
    try:
        found = ipaddress.ip_address(bare(host))
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def refuse_open(settings: Settings, enforces_filesystem: bool) -> None:
    """Raises ConfigError if the gateway must not listen where the settings say.

    ``enforces_filesystem`` is what the configured sandbox does on this machine.
    """
    chosen = settings.gateway
    if chosen.port == 0 or is_loopback(chosen.host):
        return
    where = f"gateway.host {chosen.host!r} can be reached from other machines"
    if chosen.token is None:
        raise ConfigError(
            f"{where}, and gateway.token is not set: set one ('openssl rand -hex 32' makes one), or take 127.0.0.1, or "
            "set gateway.port to 0."
        )
    if not enforces_filesystem:
        raise ConfigError(
            f"{where}, and what runs in the sandbox {settings.tools.sandbox.backend!r} could read gateway.token: set "
            "tools.sandbox.backend to bubblewrap or docker, or take 127.0.0.1, or set gateway.port to 0."
        )


async def listening_on(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address that ``host`` stands for; whoever calls closes them. None is half open.

    Raises BubblesError for an address that this machine has not, or not yet, and for a port that is taken.
    """
    import asyncio  # not at the top: who only looks whether a gateway runs needs none of it

    name = bare(host)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:  # a name over 63 characters is no name
        raise BubblesError(_no_address(host, getattr(error, "strerror", None) or str(error))) from error
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    if is_loopback(host) and not all(is_loopback(str(address[0])) for _, address in addresses):
        raise ConfigError(f"gateway.host {host!r} leads to another address than this machine's own: take 127.0.0.1.")
    opened: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, address in addresses:
            try:
                opened.append(_opened(family, address))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise BubblesError(_hindered(host, port, error)) from error
                absent = error  # localhost is ::1 too, in the hosts file of a machine that has no IPv6
    except BaseException:
        _close(opened)
        raise
    if not opened:
        raise BubblesError(_no_address(host, str(absent and absent.strerror))) from absent
    return opened


def _opened(family: int, address: Any) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        # A gateway that starts again must not wait until old connections are forgotten.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # ``::`` is then the same on every system
        made.bind(address)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _close(sockets: Sequence[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _no_address(host: str, why: str) -> str:
    return f"gateway.host {host!r} is no address of this machine ({why}): name one, such as 127.0.0.1."


def _hindered(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"gateway.port {port} is in use on {host} by another program: set gateway.port to a free one, or to 0 for "
            "none."
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"gateway.port {port} may not be used ({error.strerror}): set gateway.port to one above 1023."
    return f"gateway.host {host!r}, gateway.port {port} cannot be listened on ({error.strerror or error}): change one."
