"""The tables, and what each column means: the one source of both.

Migrations make and change them; the words here become ``COMMENT ON`` after each migration
(``store.schema``), so that psql says the same. A test holds the two against each other.
Wire names and texts stand as they were sent; "" is "not given".
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Column
from sqlalchemy.dialects import postgresql

metadata = sa.MetaData()

# Byte order, whatever the database's locale: prefixes by index, and the same order on every server.
_BYTEWISE = sa.Text(collation="C")
_MOMENT = sa.DateTime(timezone=True)
_UUID = postgresql.UUID(as_uuid=True)
_HASH_BYTES = 32

job_events = sa.Table(
    "job_events",
    metadata,
    Column(
        "position",
        sa.BigInteger,
        nullable=False,
        autoincrement=False,
        primary_key=True,
        comment="Place in the log: 1, 2, 3 ... without gaps, in commit order.",
    ),
    Column(
        "uuid",
        _UUID,
        nullable=False,
        comment="Names the event for ever; given by its publisher or made for it. Never compared for order.",
    ),
    Column("job_id", _BYTEWISE, nullable=False, comment="The job the event is about; opaque, never parsed."),
    Column("operator", sa.Text, nullable=False, comment="add (first seen, and every change) or delete."),
    Column(
        "job_status",
        sa.Text,
        nullable=False,
        comment="pending, running, complete or failed, after completion.",
    ),
    Column("job_name", _BYTEWISE, nullable=False, comment="Name of the job, after completion."),
    Column("namespace", _BYTEWISE, nullable=False, comment="Kubernetes namespace, after completion."),
    Column(
        "framework",
        sa.Text,
        nullable=False,
        comment="Wire field frameWork: pytorch, mindspore ..., free text.",
    ),
    Column("job_time", _MOMENT, comment="Wire field time (epoch seconds); null if not given."),
    Column(
        "delete_time",
        _MOMENT,
        comment="Wire field deleteTime (epoch seconds); always set on a delete, else null if not given.",
    ),
    Column(
        "cm_index", sa.Integer, comment="Wire field cmIndex: which part this is, from 0; null if not given."
    ),
    Column("total", sa.Integer, comment="Of how many parts; null if not given."),
    Column("shared_tor_ip", sa.Text, nullable=False, comment="JSON array of switch addresses, as sent."),
    Column("master_addr", sa.Text, nullable=False, comment="MASTER_ADDR of a PyTorch job, as sent."),
    Column("sid", sa.Text, nullable=False, comment="Wire field sid of newer ClusterD releases, as sent."),
    Column(
        "region", sa.Text, nullable=False, comment="The event's region, else its job's, else the default one."
    ),
    Column("account_id", sa.Text, nullable=False, comment="Account of the job, after completion."),
    Column("user_id", sa.Text, nullable=False, comment="User of the job, after completion."),
    Column(
        "publisher",
        sa.Text,
        nullable=False,
        comment="Who said it, as the service knows: anonymous@<address>.",
    ),
    Column("hccl", sa.Text, comment="Wire field HcclJson verbatim; null if none was given. Kept only here."),
    Column(
        "detail", sa.Text, comment="CWAI description, masked, JSON with sorted keys; null if none was given."
    ),
    Column(
        "signal",
        sa.LargeBinary,
        nullable=False,
        comment="JobSummarySignal in protobuf without fields 10 (HcclJson), 100 and 101; with them appended "
        "it is the delivered message.",
    ),
    Column(
        "content_hash",
        sa.LargeBinary,
        nullable=False,
        comment="sha256 of the event as its publisher gave it, masked, before completion: tells a retry from "
        "another event.",
    ),
    Column(
        "size",
        sa.Integer,
        nullable=False,
        comment="Bytes of the delivered message without fields 100 and 101; pages are cut by it.",
    ),
    Column(
        "left_namespace",
        _BYTEWISE,
        comment="The live job's namespace before this event if it changed, else null; filters match either.",
    ),
    Column(
        "left_framework",
        sa.Text,
        comment="The live job's framework before this event if it changed, else null; filters match either.",
    ),
    Column(
        "recorded_at",
        _MOMENT,
        nullable=False,
        comment="When it was being appended, by Postgres' clock; never decreases with position.",
    ),
    Column(
        "hash",
        sa.LargeBinary,
        nullable=False,
        comment="sha256 over the previous row's hash and this row's stored bytes (docs/audit.md).",
    ),
    Column(
        "servers",
        sa.Text,
        comment="Every server_id and server_name in hccl, a line each; null: job_events_servers finds them.",
    ),
    sa.CheckConstraint("position > 0", name="job_events_position_check"),
    sa.CheckConstraint("operator IN ('add', 'delete')", name="job_events_operator_check"),
    sa.CheckConstraint(f"octet_length(content_hash) = {_HASH_BYTES}", name="job_events_content_hash_check"),
    sa.CheckConstraint(f"octet_length(hash) = {_HASH_BYTES}", name="job_events_hash_check"),
    sa.UniqueConstraint("uuid", name="job_events_uuid_key"),
    sa.Index("job_events_job_id_position_idx", "job_id", "position"),
    # From a server to the events that name it; its cost to the append is in docs/audit.md.
    sa.Index(
        "job_events_servers_idx",
        sa.text("COALESCE(string_to_array(servers, chr(10)), job_events_servers(hccl))"),
        postgresql_using="gin",
        postgresql_where=sa.text("hccl IS NOT NULL"),
    ),
    comment="The log: every event, in the order of its commit. Rows are added and never changed.",
)

jobs = sa.Table(
    "jobs",
    metadata,
    Column("job_id", _BYTEWISE, primary_key=True, nullable=False, comment="The job; opaque, never parsed."),
    Column("region", sa.Text, nullable=False, comment="Its region, fixed for this life."),
    Column("account_id", sa.Text, nullable=False, comment="Its account."),
    Column("user_id", sa.Text, nullable=False, comment="Its user."),
    Column("job_name", _BYTEWISE, nullable=False, comment="Its name."),
    Column("namespace", _BYTEWISE, nullable=False, comment="Its Kubernetes namespace."),
    Column("framework", sa.Text, nullable=False, comment="Wire field frameWork of the newest add."),
    Column("job_status", sa.Text, nullable=False, comment="pending, running, complete or failed."),
    Column("job_time", _MOMENT, comment="Wire field time of the newest add; null if not given."),
    Column("delete_time", _MOMENT, comment="Wire field deleteTime of the newest event; null if not given."),
    Column("cm_index", sa.Integer, comment="Wire field cmIndex of the newest add; null if not given."),
    Column("total", sa.Integer, comment="Wire field total of the newest add; null if not given."),
    Column("shared_tor_ip", sa.Text, nullable=False, comment="Wire field sharedTorIp of the newest add."),
    Column("master_addr", sa.Text, nullable=False, comment="Wire field masterAddr of the newest add."),
    Column("sid", sa.Text, nullable=False, comment="Wire field sid of the newest add."),
    Column(
        "hccl_digest",
        sa.LargeBinary,
        comment="sha256 of the present HcclJson, of one joined from parts that of their sha256s; null if "
        "there is none. The text is in job_events.",
    ),
    Column("detail", sa.Text, comment="CWAI description that holds, JSON; null if none was ever given."),
    Column("create_time", _MOMENT, nullable=False, comment="When this life began; fixed by its first add."),
    Column(
        "ended_at",
        _MOMENT,
        comment="Since when it is complete or failed, unbroken, or when it was deleted before; else null.",
    ),
    Column(
        "version", sa.BigInteger, nullable=False, comment="Events of this life so far, its delete included."
    ),
    Column(
        "last_position", sa.BigInteger, nullable=False, comment="Position of the newest event in this row."
    ),
    Column("last_uuid", _UUID, nullable=False, comment="Uuid of the newest event in this row."),
    Column("changed_at", _MOMENT, nullable=False, comment="When that event was recorded."),
    Column("deleted_at", _MOMENT, comment="When the delete was recorded; null while the job lives."),
    Column(
        "signal_positions",
        postgresql.ARRAY(sa.BigInteger),
        nullable=False,
        comment="Positions of the adds that make the current state, ascending: those of the rank table, then "
        "the parts of the next one; a snapshot sends these.",
    ),
    Column(
        "arriving",
        sa.Text,
        comment="The parts that came last, as JSON: of how many, which (cmIndex), their sha256s; null if the "
        "newest add is whole.",
    ),
    Column(
        "shown_name",
        _BYTEWISE,
        nullable=False,
        server_default="",
        comment="The described name, else job_name; lists look for its beginning and sort by it.",
    ),
    Column(
        "shown_status",
        sa.Text,
        nullable=False,
        server_default="",
        comment="The status as shown: the publisher's own word while it holds, else the document's.",
    ),
    Column(
        "train_frame",
        sa.Text,
        nullable=False,
        server_default="",
        comment="The described trainFrame, else framework.",
    ),
    Column(
        "queue_id", sa.Text, nullable=False, server_default="", comment="The described queueID, or empty."
    ),
    Column(
        "resource_group_id",
        sa.Text,
        nullable=False,
        server_default="",
        comment="The described resourceGroupID, or empty.",
    ),
    Column(
        "finish_time",
        _MOMENT,
        comment="When it finished, as shown: described, else ended_at; null while it has not.",
    ),
    Column(
        "live",
        sa.Boolean,
        nullable=False,
        server_default=sa.true(),
        comment="Whether no delete has ended it; the indexes of lists keep both kinds apart.",
    ),
    # One for each order, and for what a console asks most in the order of creation. By status they also give
    # all jobs in that order: there are four.
    sa.Index("jobs_status_created_idx", "region", "live", "job_status", "create_time", "job_id"),
    sa.Index("jobs_namespace_created_idx", "region", "live", "namespace", "create_time", "job_id"),
    sa.Index("jobs_user_created_idx", "region", "live", "user_id", "create_time", "job_id"),
    sa.Index("jobs_account_created_idx", "region", "live", "account_id", "create_time", "job_id"),
    sa.Index(
        "jobs_queue_created_idx",
        "region",
        "live",
        "queue_id",
        "create_time",
        "job_id",
        postgresql_where=sa.text("queue_id <> ''"),
    ),
    sa.Index(
        "jobs_finished_idx",
        "region",
        "live",
        sa.text("COALESCE(finish_time, '-infinity'::timestamp with time zone)"),
        "job_id",
    ),
    sa.Index("jobs_changed_idx", "region", "live", "changed_at", "job_id"),
    sa.Index("jobs_name_idx", "region", "live", "shown_name", "job_id"),
    comment="The view: each job as its events make it, a pure fold of job_events. The newest life only.",
)

subscribers = sa.Table(
    "subscribers",
    metadata,
    Column(
        "client_id", _BYTEWISE, primary_key=True, nullable=False, comment="What the client subscribes as."
    ),
    Column("role", sa.Text, nullable=False, comment="The role that it registered."),
    Column(
        "created_at", _MOMENT, nullable=False, server_default=sa.func.now(), comment="When it was registered."
    ),
    Column(
        "last_used_at",
        _MOMENT,
        nullable=False,
        server_default=sa.func.now(),
        comment="When it last registered or had a stream; unused ids expire.",
    ),
    Column(
        "stream_id",
        _UUID,
        comment="Its newest stream, the fence of a takeover: streams of other ids must end. Null: none yet.",
    ),
    sa.Index("subscribers_last_used_at_idx", "last_used_at"),
    comment="Client ids, so that they survive disconnects, restarts and a switch of replica.",
)

ledger_info = sa.Table(
    "ledger_info",
    metadata,
    Column(
        "id",
        sa.Boolean,
        sa.CheckConstraint("id", name="ledger_info_id_check"),
        primary_key=True,
        nullable=False,
        server_default=sa.true(),
        comment="Always true: there is one row.",
    ),
    Column(
        "default_region",
        sa.Text,
        nullable=False,
        comment="Region of a job whose events name none; fixed by the first migration.",
    ),
    Column(
        "floor",
        sa.BigInteger,
        nullable=False,
        server_default=sa.text("0"),
        comment="The last pruned position; the log goes on gapless from the next. 0: nothing was pruned.",
    ),
    comment="Facts about this ledger, in one row.",
)

ledger_epochs = sa.Table(
    "ledger_epochs",
    metadata,
    Column("epoch", _UUID, primary_key=True, nullable=False, comment="Names one history of this log."),
    Column(
        "from_position",
        sa.BigInteger,
        nullable=False,
        comment="The first position of this history; below it, it agrees with the epoch before.",
    ),
    Column(
        "number",
        sa.Integer,
        nullable=False,
        comment="1, 2, 3 ... in the order in which they began; the highest is the present one.",
    ),
    sa.UniqueConstraint("number", name="ledger_epochs_number_key"),
    comment="Histories: a restored backup that goes on is a new one, so that cursors of the old are noticed.",
)

view_rebuilds = sa.Table(
    "view_rebuilds",
    metadata,
    Column(
        "number",
        sa.Integer,
        primary_key=True,
        nullable=False,
        autoincrement=False,
        comment="1, 2, 3 ... in the order in which they were committed.",
    ),
    Column(
        "head",
        sa.BigInteger,
        nullable=False,
        comment="The last position that it was made from.",
    ),
    Column(
        "differed",
        sa.Integer,
        nullable=False,
        comment="How many rows were not as the log says, and now are.",
    ),
    Column(
        "rebuilt_at",
        _MOMENT,
        nullable=False,
        server_default=sa.func.clock_timestamp(),
        comment="When; by the database's clock.",
    ),
    comment="Each time the view was made again and rows of it had been wrong.",
)
