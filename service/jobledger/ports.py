"""Ports to listen on, each for one process or shared by several.

Sharing is the kernel's (SO_REUSEPORT): each process listens for itself, each new connection goes to one.
A process that dies takes along the connections that it had, and no others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

BACKLOG: Final = 1024
"""Connections waiting to be accepted: a thousand subscribers come back at once after a restart."""

PAUSE_SECONDS: Final = 0.2
"""Before the next try when no connection can be accepted: file descriptors may have run out."""

_log = logging.getLogger(__name__)

_Place = tuple[socket.AddressFamily, tuple[str, int]]


async def listening(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket that listens; port 0 takes a free one. A name is resolved to its first address.

    ``shared`` lets other processes of this user listen there too, as long as each of them says so.

    Raises:
        OSError: the port is taken or the address is not ours.
    """
    family, address = await _resolved(host, port)
    return socket.create_server(
        address, family=family, backlog=BACKLOG, reuse_port=shared, dualstack_ipv6=_dual(family, address)
    )


def accepting(
    listener: socket.socket,
    protocol: Callable[[], asyncio.Protocol],
    *,
    turn: Callable[[], Awaitable[None]],
) -> asyncio.Task[None]:
    """Take new connections, each when it is its turn, until cancelled; then nobody listens any more.

    asyncio's own server takes all that wait in one pass of its loop: a thousand at once, and nobody else was
    served for seconds.
    """
    listener.settimeout(0)
    task = asyncio.create_task(_accept(listener, protocol, turn))
    task.add_done_callback(lambda _: listener.close())
    return task


async def _accept(
    listener: socket.socket, protocol: Callable[[], asyncio.Protocol], turn: Callable[[], Awaitable[None]]
) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            accepted, _ = await loop.sock_accept(listener)
        except OSError as error:
            _log.warning("no connection can be accepted now: %s", error)
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        try:
            await turn()
            await loop.connect_accepted_socket(protocol, accepted)
        except OSError as error:
            accepted.close()
            _log.debug("a new connection was lost: %s", error)
        except Exception:  # noqa: BLE001 - a bug, for which it must not be the last connection
            accepted.close()
            _log.exception("a new connection could not be served")
        except asyncio.CancelledError:
            accepted.close()
            raise


@contextlib.asynccontextmanager
async def reserved(host: str, port: int) -> AsyncGenerator[int]:
    """A port for processes of this user to share, for as long as the block lasts; 0 takes a free one.

    No connection comes here: only those who listen get any.

    Raises:
        OSError: the port is taken, be it by processes that share it, or the address is not ours.
    """
    family, address = await _resolved(host, port)
    if port:
        # Without this look, two services of one user would share a port, each with a half of the clients.
        (await listening(host, port)).close()
    with socket.socket(family, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family is socket.AF_INET6:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not _dual(family, address)))
        holder.bind(address)
        bound: int = holder.getsockname()[1]
        yield bound


async def _resolved(host: str, port: int) -> _Place:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return family, (str(address[0]), int(address[1]))


def _dual(family: socket.AddressFamily, address: tuple[str, int]) -> bool:
    """Whether IPv4 is listened to as well: at the address that means all."""
    return family is socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
