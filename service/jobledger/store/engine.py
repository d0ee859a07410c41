"""Connections to Postgres, and the one place where its errors become ours.

Hot statements go to asyncpg directly; each is prepared once a connection. Functions of this package take
a connection and never commit: who opens the transaction, ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, Generator
from typing import TypeAlias
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg
import asyncpg.pool

from jobledger import errors

Connection: TypeAlias = (
    "asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
)
"""A connection of one's own, or one that is lent by a pool."""

Own: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
"""A connection of one's own."""

CONNECT_TIMEOUT_SECONDS = 3.0
"""A server that does not answer for so long is away; callers hear that instead of waiting."""

SEND_BYTES = 4 * 1024 * 1024
"""What the kernel is asked to take of a batch at once; it allows twice its ``net.core.wmem_max`` at most."""

STATEMENT_TIMEOUT_SECONDS = 10.0
"""The longest that a hot statement may take before its connection counts as lost."""

_SESSION = {
    "application_name": "jobledger",
    "timezone": "UTC",
    # The planner's guess can switch the JIT compiler on for a short statement: 317 of 335 ms, seen once.
    "jit": "off",
    # Every hot statement goes by a key. One that was planned while the tables were small keeps its plan, a
    # scan of all rows, long after they have grown: 174 ms instead of 3 for a batch's jobs, seen.
    "enable_seqscan": "off",
}


CALLER_PATIENCE_SECONDS = 1.0
"""How long a REST caller's read waits for a connection: longer, and it is told to come back."""


_log = logging.getLogger(__name__)


class DataRefused(errors.LedgerError):
    """Postgres refuses a value, for what it is: trying again does not help."""


_REFUSED = (
    asyncpg.DataError,
    asyncpg.CheckViolationError,
    asyncpg.NotNullViolationError,
    asyncpg.ProgramLimitExceededError,  # an index entry that is too large
)

_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.InvalidAuthorizationSpecificationError,  # a wrong password, or pg_hba.conf being edited
    asyncpg.InvalidCatalogNameError,  # no such database, or not yet
    asyncpg.InternalClientError,
    asyncpg.PostgresSystemError,  # its disk fails
    asyncpg.OperatorInterventionError,  # restart, terminated backend, cancelled statement
    asyncpg.InsufficientResourcesError,  # disk full, too many connections
    asyncpg.ReadOnlySQLTransactionError,  # the server became a standby
    asyncpg.ObjectNotInPrerequisiteStateError,  # the database lets nobody in, as while it is restored
    asyncpg.InvalidTransactionStateError,  # ended by idle_in_transaction_session_timeout
    OSError,
    TimeoutError,
)


@contextlib.contextmanager
def translated() -> Generator[None]:
    """Turn the driver's errors into the ones that callers can decide on.

    Raises:
        errors.DatabaseUnavailable: The server does not answer, refuses, or gave up the statement.
        errors.AppendLockHeld: The statement waited for a lock until its time-out.
        DataRefused: A value is at fault.
    """
    try:
        yield
    except _REFUSED as error:
        raise DataRefused(str(error)) from error
    except asyncpg.InterfaceError as error:
        # The driver's own refusal of a value is an InterfaceError too, and a ValueError.
        raise (DataRefused(str(error)) if isinstance(error, ValueError) else _away(error)) from error
    except asyncpg.TransactionRollbackError as error:
        # A deadlock, or somebody's other isolation level. The same again goes through; but who else locks
        # the ledger's rows should be known.
        _log.warning("Postgres gave up a transaction: %s", error)
        raise _away(error) from error
    except asyncpg.LockNotAvailableError as error:
        message = f"another replica holds the append lock ({error}); try again"
        raise errors.AppendLockHeld(message) from error
    except _AWAY as error:
        raise _away(error) from error


def _away(error: Exception) -> errors.DatabaseUnavailable:
    # The first line: Postgres' details and hints are for whoever runs it.
    reason = str(error).partition("\n")[0] or type(error).__name__
    return errors.DatabaseUnavailable(f"Postgres is not available ({reason}); try again")


@contextlib.contextmanager
def reading_dsn() -> Generator[None]:
    """Tell that a DSN cannot be read, and show nothing of it: what was taken for a port may be of a password.

    Raises:
        errors.DatabaseUnsuitable: It cannot.
    """
    try:
        yield
    except OSError:  # a certificate that is refused is both
        raise
    except ValueError:  # the driver's own class for it is one, too
        message = (
            "the DSN of Postgres cannot be read; is it postgresql://user:password@host:port/database, with "
            "what is special in a password percent-encoded (/ as %2F, @ as %40)?"
        )
        raise errors.DatabaseUnsuitable(message) from None


async def connect(dsn: str) -> Own:
    """Open a connection of one's own.

    Raises:
        errors.DatabaseUnavailable: The server does not answer.
        errors.DatabaseUnsuitable: The DSN cannot be read.
    """
    with translated(), reading_dsn():
        return await asyncpg.connect(
            dsn,
            timeout=CONNECT_TIMEOUT_SECONDS,
            command_timeout=STATEMENT_TIMEOUT_SECONDS,
            server_settings=_SESSION,
        )


async def connect_for_writing(dsn: str) -> Own:
    """Open a connection for the appender: large values are compressed with lz4 where the server has it."""
    connection = await connect(dsn)
    try:
        with translated():
            # Not in the schema's DDL, so that a dump restores on a server without lz4.
            await connection.execute(
                "select set_config('default_toast_compression', 'lz4', false) from pg_settings"
                " where name = 'default_toast_compression' and 'lz4' = any (enumvals)"
            )
            _send_much_at_once(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


def unsent_bytes(connection: Own) -> int:
    """How much of a statement waits until the server takes more."""
    transport = _transport(connection)
    return transport.get_write_buffer_size() if transport is not None else 0


def _send_much_at_once(connection: Own) -> None:
    """Let the kernel take a whole batch, so that the server has it before this thread does anything else.

    TCP sees to that by itself; a Unix socket takes 208 KiB, less than 256 events.
    """
    transport = _transport(connection)
    own: socket.socket | None = transport.get_extra_info("socket") if transport is not None else None
    if own is not None and own.family == socket.AF_UNIX:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)


def _transport(connection: Own) -> asyncio.WriteTransport | None:
    """The driver's, which it keeps to itself: only an economy goes with it."""
    transport = getattr(connection, "_transport", None)
    return transport if isinstance(transport, asyncio.WriteTransport) else None


async def _keep_session(_: object) -> None:
    """What a reader leaves behind is nothing: no transaction, no setting. A reset costs a round trip."""


def values(count: int, *, after: int = 0) -> str:
    """SQL for a row of so many parameters, numbered on from those before."""
    return f"values ({', '.join(f'${after + nth + 1}' for nth in range(count))})"


def without_password(dsn: str) -> str:
    """A DSN that may be shown."""
    parts = urlsplit(dsn)
    user, at, host = parts.netloc.rpartition("@")
    query = "&".join(pair for pair in parts.query.split("&") if not pair.startswith("password="))
    return urlunsplit(parts._replace(netloc=user.partition(":")[0] + at + host, query=query))


def with_password(dsn: str, password: str) -> str:
    """A DSN with its password, which it had not."""
    parts = urlsplit(dsn)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}{at or '@'}{host}"))


def has_password(dsn: str) -> bool:
    """Whether a DSN bears a password."""
    parts = urlsplit(dsn)
    return parts.password is not None or any(pair.startswith("password=") for pair in parts.query.split("&"))


class ReadPool:
    """Connections for reading: single statements, each in a snapshot of its own."""

    def __init__(self, dsn: str, *, size: int) -> None:
        self._dsn = dsn
        self._size = size
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        """Make the pool; connections are opened when they are needed."""
        self._pool = await asyncpg.create_pool(
            self._dsn,
            min_size=0,
            max_size=self._size,
            timeout=CONNECT_TIMEOUT_SECONDS,
            command_timeout=STATEMENT_TIMEOUT_SECONDS,
            server_settings=_SESSION,
            reset=_keep_session,
        )

    async def close(self) -> None:
        """Close every connection, at once."""
        if self._pool is not None:
            self._pool.terminate()

    @property
    def has_more(self) -> bool:
        """Whether who asks for a connection now would have one without waiting for another to come back."""
        pool = self._pool
        return pool is not None and (pool.get_idle_size() > 0 or pool.get_size() < pool.get_max_size())

    @contextlib.asynccontextmanager
    async def connection(
        self, *, patience_seconds: float = STATEMENT_TIMEOUT_SECONDS
    ) -> AsyncGenerator[Connection]:
        """Borrow a connection; errors that mean "Postgres is away" come out as ours.

        Raises:
            errors.DatabaseUnavailable: None can be had, or the statement failed for that reason.
            errors.Overloaded: All are in use for longer than the patience.
        """
        if self._pool is None:
            message = "the service is not connected to Postgres yet; try again"
            raise errors.DatabaseUnavailable(message)
        with translated():
            patience = asyncio.timeout(patience_seconds)  # the pool's own makes a task for it
            try:
                async with patience:
                    connection = await self._pool.acquire()
            except TimeoutError:
                # Some are still being opened, or came free while the loop told this one: that is load, too.
                if not (patience.expired() and self._pool.get_size()):
                    raise
                message = f"none of {self._size} reading connections was free for {patience_seconds:g} s"
                raise errors.Overloaded(message) from None
            try:
                yield connection
            finally:
                # One that was lost meanwhile is the pool's affair. Raised here, that would take the place of
                # a cancellation: a loop would go on, and the shutdown wait for it for ever.
                with contextlib.suppress(*_AWAY, asyncpg.InterfaceError):
                    await self._pool.release(connection)
