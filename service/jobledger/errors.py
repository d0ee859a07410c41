"""What can go wrong, and what a caller can do: one class for each decision.

::

    LedgerError
    ├── EventError                 one event is refused; its neighbours are not
    │   ├── InvalidEvent           mend the field and send it again
    │   ├── EventTooLarge          make it smaller, or raise the limit here and at the clients
    │   └── EventConflict          another life, region or content holds that name
    ├── RequestError               the request as a whole is wrong
    │   ├── InvalidRequest         mend the parameter
    │   │   ├── WrongMethod        use one that the path has
    │   │   ├── BodyTooLarge       send less at a time
    │   │   ├── TooBroad           narrow the list
    │   │   └── UnsupportedMedia   send JSON in UTF-8
    │   ├── NotFound               no such job
    │   └── NotPermitted           it is somebody else's
    ├── CursorError                a stream cannot start where it was asked to
    │   ├── MalformedUuid          not a uuid
    │   ├── UnknownUuid            the log does not hold it
    │   ├── PrunedUuid             the log held it once
    │   └── OtherEpoch             the log's history is another one
    ├── SubscriptionRefused        too many, or not registered
    ├── StreamEnd                  a running stream ends; resume as it says
    │   ├── TakenOver              the same client subscribed again
    │   ├── SlowReader             nothing was read for too long
    │   └── ShuttingDown           this replica goes away
    ├── Unavailable                try again; nothing was half done
    │   ├── DatabaseUnavailable    Postgres is away
    │   │   └── AppendLockHeld     another replica appends, or was stopped while it did
    │   ├── Overloaded             the queue is full
    │   └── ServerUnreachable      at a client: nobody answers there
    ├── ServerRefused              at a client: the service says why not, and what to do
    ├── StreamBroken               at a client: the stream left out or repeated a position
    ├── DataLoss                   the log has a hole: stop, and look at the database
    │   └── LogReplaced            another log is in its place: restart the service
    └── SetupError                 the service cannot start as it is set up
        ├── SchemaError            the schema is not ours, newer, or older
        ├── DatabaseUnsuitable     version or encoding
        ├── EmbeddedPostgresError  the private Postgres does not run
        └── WorkerFailed           a worker ends whenever it is started

Messages give what, the values, and what to do. The outward mapping is one table an edge: ``rpc.status``
and ``web.envelope``.
"""

from __future__ import annotations

from uuid import UUID

SHOWN_VALUE_LENGTH = 80
"""Characters of a refused value that a message shows: enough to find it, too few to flood a log."""


def shown(value: str) -> str:
    """A refused value as a message shows it: quoted, cut, and with nothing unprintable in it."""
    cut = value if len(value) <= SHOWN_VALUE_LENGTH else value[:SHOWN_VALUE_LENGTH] + "…"
    return ascii(cut) if not cut.isprintable() else repr(cut)


class LedgerError(Exception):
    """Anything that JobLedger itself raises."""


class EventError(LedgerError):
    """One event is refused; the others of its batch are not.

    ``code`` is a stable word for programs, ``field`` the field at fault as it is called on the wire.
    """

    code: str = "invalid"

    def __init__(self, *, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class InvalidEvent(EventError):
    """A field's value cannot be recorded; mend it and send the event again."""

    code = "invalid"

    def __init__(self, *, field: str, value: str | None = None, problem: str, remedy: str) -> None:
        what = problem if value is None else f"{shown(value)} {problem}"
        super().__init__(field=field, reason=f"{what}; {remedy}")


class EventTooLarge(EventError):
    """The event could not be delivered to a client with the default message limit."""

    code = "too_large"

    def __init__(self, *, field: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            field=field,
            reason=f"{size_bytes} bytes exceed the limit of {limit_bytes}; send a smaller one, or raise the "
            "limit here and the message limit of every subscriber",
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class EventConflict(EventError):
    """What the log already holds contradicts the event."""

    code = "conflict"


class RequestError(LedgerError):
    """The request as a whole is wrong."""


class InvalidRequest(RequestError):
    """A parameter is missing, malformed, repeated or contradictory."""


class WrongMethod(InvalidRequest):
    """The path has no such method; ``allowed`` are those that it has."""

    def __init__(self, method: str, path: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"method {method} does not apply to {shown(path)}; use {', '.join(allowed)}")
        self.allowed = allowed


class BodyTooLarge(InvalidRequest):
    """The request's body is larger than the limit."""


class TooBroad(InvalidRequest):
    """A list looks at more jobs than its time allows."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"this list takes longer than {seconds:g} s; narrow it by status, namespace, userID, accountID, "
            "queueID or the beginning of the name, or go on by its cursor instead of pageNo"
        )


class UnsupportedMedia(InvalidRequest):
    """The request's body is labelled as something that is not read here."""


class NotFound(RequestError):
    """There is no such thing."""


class NotPermitted(RequestError):
    """It belongs to somebody else, or the caller may not do this."""


class CursorError(LedgerError):
    """A stream cannot start where it was asked to; ``reason`` is the word in ``ledger-reason``."""

    reason = "refused"


class MalformedUuid(CursorError):
    """What was given as the last seen uuid is no uuid."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"lastSeenUuid {shown(text)} is not a uuid; send the uuid of the last message you handled, "
            "or leave it empty"
        )


_FROM_A_SNAPSHOT = (
    "Start again from a snapshot (startFrom=START_FROM_SNAPSHOT; jobledger subscribe --from snapshot)"
)


class UnknownUuid(CursorError):
    """The log does not hold the last seen uuid."""

    reason = "unknown-uuid"

    def __init__(self, uuid: UUID) -> None:
        super().__init__(
            f"lastSeenUuid {uuid} is not in this log; was the database restored from a backup, or is this "
            f"another ledger? {_FROM_A_SNAPSHOT}"
        )


class PrunedUuid(CursorError):
    """What follows the last seen uuid is no longer kept."""

    reason = "pruned"

    def __init__(self, uuid: UUID, first_available: UUID | None) -> None:
        first = first_available or "none yet"
        super().__init__(
            f"events after lastSeenUuid {uuid} were pruned; the first one available is {first}. "
            f"{_FROM_A_SNAPSHOT}"
        )
        self.first_available = first_available


class OtherEpoch(CursorError):
    """The cursor comes from a history that this log does not share."""

    reason = "other-epoch"

    def __init__(self, epoch: UUID, uuid: UUID, agreed: int | None) -> None:
        known = (
            f"epoch {epoch} is none of this log's"
            if agreed is None
            else f"epoch {epoch} and this log agree up to {agreed}, but lastSeenUuid {uuid} is not in that"
        )
        super().__init__(
            f"{known}; the database was restored from a backup, or this is another ledger. "
            f"{_FROM_A_SNAPSHOT}, without ledgerEpoch"
        )


class SubscriptionRefused(LedgerError):
    """A subscription is not admitted; its message is exactly what existing clients look for."""

    reason = "refused"


class StreamEnd(LedgerError):
    """A running stream ends; resume after the last uuid that was handled."""

    reason = "refused"


class TakenOver(StreamEnd):
    """The same client id subscribed again, here or on another replica."""

    reason = "takeover"

    def __init__(self, client_id: str) -> None:
        super().__init__(f"client {shown(client_id)} subscribed again; this older stream ends")


class SlowReader(StreamEnd):
    """The subscriber read nothing for longer than the send time-out."""

    reason = "slow-reader"

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"nothing was read for {seconds:g} s; read faster, or resume from the last uuid handled"
        )


class ShuttingDown(StreamEnd):
    """This process goes away; another one, or the next, carries on."""

    reason = "shutdown"

    def __init__(self, resume_uuid: str = "") -> None:
        where = f", resume from {resume_uuid}" if resume_uuid else ""
        super().__init__(f"shutting down{where}")


class Unavailable(LedgerError):
    """Not now; try again. Nothing was half done."""


class DatabaseUnavailable(Unavailable):
    """Postgres does not answer, or refuses."""


class AppendLockHeld(DatabaseUnavailable):
    """Another replica held the append lock for as long as is waited for it."""


class Overloaded(Unavailable):
    """More is waiting than may wait; come back in a moment."""


class ServerUnreachable(Unavailable):
    """A client gets no answer from the service, or none that it understands."""

    def __init__(self, server: str, cause: str) -> None:
        super().__init__(f"no JobLedger answers at {server}: {cause}")
        self.server = server


class ServerRefused(LedgerError):
    """The service answered a client's call with an error that trying again would not mend.

    ``status`` is the gRPC status' name or the REST errorCode; ``reason`` and ``resume_uuid`` are what
    came as ``ledger-reason`` and ``resume-uuid``, or empty.
    """

    def __init__(self, message: str, *, status: str, reason: str = "", resume_uuid: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.resume_uuid = resume_uuid


class StreamBroken(LedgerError):
    """A stream did not go on at the next position: what it says is no longer the whole log."""

    def __init__(self, *, after: int, got: int) -> None:
        super().__init__(
            f"the stream went from position {after} to {got}, not to {after + 1}; something between here and "
            "the log loses or repeats messages: subscribe again after the last uuid handled, and report it"
        )
        self.after = after
        self.got = got


class DataLoss(LedgerError):
    """A position is missing from the log: nothing after it can be trusted to be complete."""

    reason = "data-loss"

    def __init__(self, position: int) -> None:
        super().__init__(
            f"position {position} is missing from the log; stop publishing and look at the database: "
            "a row was removed by hand, or a restore was incomplete"
        )
        self.position = position


class LogReplaced(DataLoss):
    """The database holds another history than the one that was followed: it was restored under us."""

    def __init__(self, position: int, head: int) -> None:
        super().__init__(position)
        message = (
            f"the log was followed up to position {position}, but now it ends at {head} or holds another "
            "event there; if the database was restored, run `jobledger epoch new` and restart this service"
        )
        self.args = (message,)


class SetupError(LedgerError):
    """The service cannot start as it is set up."""


class SchemaError(SetupError):
    """The database's schema is older, newer or not ours."""


class DatabaseUnsuitable(SetupError):
    """The server's version or the database's encoding will not do."""


class EmbeddedPostgresError(SetupError):
    """The private Postgres could not be set up, started or reached."""


class WorkerFailed(SetupError):
    """A worker ends whenever it is started."""

    def __init__(self, number: int, *, tries: int, status: int) -> None:
        super().__init__(
            f"worker {number} ended {tries} times soon after its start, the last time with {status}; "
            "its own log lines say why. All workers are ended"
        )
