"""What ``web_fetch`` may reach: public hosts, and what ``tools.web.allow`` lists (TOOL-03).

A name is looked up once, and its addresses are what is dialled: what it leads to afterwards, or in another program,
does not matter (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence

from bubbles.controller.addresses import AllowList, IPAddress, entry_for, is_global, plain
from bubbles.tools.contract import ToolError
from bubbles.tools.web.address import WebAddress
from bubbles.tools.web.threads import Threads

PORTS = frozenset({80, 443, 8000, 8080, 8443})
"""Of public hosts. Others are mail, shells and databases, which a request for a page can be made to speak to."""
MAX_ADDRESSES = 8
MAX_LOOKUPS = 16
"""At once. One may take half a minute, whether or not anybody still waits for it."""
_OTHER_PORT = f"of public hosts only ports {', '.join(map(str, sorted(PORTS)))} are reached"

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name, as text. Raises ``OSError`` if it has none."""


def system_resolver() -> Resolver:
    """The system's own. It cannot be told to stop, so the end of the program does not wait for it."""
    threads = Threads(MAX_LOOKUPS)

    async def resolve(host: str, port: int) -> Sequence[str]:
        found = await threads.run(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        return [str(entry[4][0]) for entry in found]

    return resolve


class UnknownHostError(ToolError):
    """A name that cannot be looked up here; a proxy may know it."""


class Reach:
    def __init__(self, allow: AllowList, resolver: Resolver | None = None) -> None:
        self._allow = allow
        self._resolver = resolver or system_resolver()

    def lists(self, address: WebAddress) -> bool:
        """Whether the owner has opened this very host and port, wherever its name leads."""
        return self._allow.refusal(address.host, address.port) is None

    def check(self, address: WebAddress) -> None:
        """What can be said before a name is looked up. Raises ``ToolError``, with the mend."""
        if self.lists(address):
            return
        if not isinstance(address.host, str):
            self._permitted(address, [address.host])
        elif address.port not in PORTS and not any(address.port in ports for _, ports in self._allow.ranges):
            raise _refused(address, _OTHER_PORT)

    async def addresses(self, address: WebAddress) -> tuple[IPAddress, ...]:
        """What to dial, the first one first. Raises ``ToolError``."""
        self.check(address)
        host = address.host
        if not isinstance(host, str):
            return (host,)
        try:
            texts = await self._resolver(host, address.port)
            found = list(dict.fromkeys(plain(ipaddress.ip_address(text)) for text in texts))
        except (OSError, ValueError):
            found = []
        if not found:
            raise UnknownHostError(
                f"The name {host} has no address: check how it is spelt, and that this machine is online."
            )
        return tuple(self._permitted(address, found)[:MAX_ADDRESSES])

    def _permitted(self, address: WebAddress, found: Sequence[IPAddress]) -> list[IPAddress]:
        """Those of ``found`` that may be dialled: at least one. Raises ``ToolError``."""
        if self.lists(address):
            return list(found)
        public = [one for one in found if is_global(one)]
        reached = public if address.port in PORTS else []
        permitted = [one for one in found if one in reached or self._allow.refusal(one, address.port) is None]
        if permitted:
            return permitted
        if public:
            raise _refused(address, _OTHER_PORT)
        leads = f"{address.host} leads to {found[0]}, which" if isinstance(address.host, str) else f"{found[0]}"
        raise _refused(address, f"{leads} is not on the public internet")


def _refused(address: WebAddress, why: str) -> ToolError:
    entry = entry_for(address.host, address.port)
    return ToolError(f"{address.origin} is not fetched: {why}. Its owner can open it by '{entry}' in tools.web.allow.")
