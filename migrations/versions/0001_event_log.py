"""The event log, its view, subscribers, and the facts about the ledger.

What each column means is said once, in ``jobledger.store.tables``; the words are put on the tables after
the migration.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    """
    CREATE TABLE job_events (
        position       bigint      NOT NULL CONSTRAINT job_events_pkey PRIMARY KEY
                                   CONSTRAINT job_events_position_check CHECK (position > 0),
        uuid           uuid        NOT NULL CONSTRAINT job_events_uuid_key UNIQUE,
        job_id         text        COLLATE "C" NOT NULL,
        operator       text        NOT NULL CONSTRAINT job_events_operator_check
                                   CHECK (operator IN ('add', 'delete')),
        job_status     text        NOT NULL,
        job_name       text        COLLATE "C" NOT NULL,
        namespace      text        COLLATE "C" NOT NULL,
        framework      text        NOT NULL,
        job_time       timestamptz,
        delete_time    timestamptz,
        cm_index       integer,
        total          integer,
        shared_tor_ip  text        NOT NULL,
        master_addr    text        NOT NULL,
        sid            text        NOT NULL,
        region         text        NOT NULL,
        account_id     text        NOT NULL,
        user_id        text        NOT NULL,
        publisher      text        NOT NULL,
        hccl           text,
        detail         text,
        signal         bytea       NOT NULL,
        content_hash   bytea       NOT NULL CONSTRAINT job_events_content_hash_check
                                   CHECK (octet_length(content_hash) = 32),
        size           integer     NOT NULL,
        left_namespace text        COLLATE "C",
        left_framework text,
        recorded_at    timestamptz NOT NULL,
        hash           bytea       NOT NULL CONSTRAINT job_events_hash_check
                                   CHECK (octet_length(hash) = 32)
    )
    """,
    """
    CREATE INDEX job_events_job_id_position_idx ON job_events (job_id, position)
    """,
    """
    CREATE TABLE jobs (
        job_id           text        COLLATE "C" NOT NULL CONSTRAINT jobs_pkey PRIMARY KEY,
        region           text        NOT NULL,
        account_id       text        NOT NULL,
        user_id          text        NOT NULL,
        job_name         text        COLLATE "C" NOT NULL,
        namespace        text        COLLATE "C" NOT NULL,
        framework        text        NOT NULL,
        job_status       text        NOT NULL,
        job_time         timestamptz,
        delete_time      timestamptz,
        cm_index         integer,
        total            integer,
        shared_tor_ip    text        NOT NULL,
        master_addr      text        NOT NULL,
        sid              text        NOT NULL,
        hccl_digest      bytea,
        detail           text,
        create_time      timestamptz NOT NULL,
        ended_at         timestamptz,
        version          bigint      NOT NULL,
        last_position    bigint      NOT NULL,
        last_uuid        uuid        NOT NULL,
        changed_at       timestamptz NOT NULL,
        deleted_at       timestamptz,
        signal_positions bigint[]    NOT NULL
    )
    """,
    """
    CREATE TABLE subscribers (
        client_id    text        COLLATE "C" NOT NULL CONSTRAINT subscribers_pkey PRIMARY KEY,
        role         text        NOT NULL,
        created_at   timestamptz NOT NULL DEFAULT now(),
        last_used_at timestamptz NOT NULL DEFAULT now(),
        stream_id    uuid
    )
    """,
    """
    CREATE INDEX subscribers_last_used_at_idx ON subscribers (last_used_at)
    """,
    """
    CREATE TABLE ledger_info (
        id             boolean NOT NULL DEFAULT true CONSTRAINT ledger_info_pkey PRIMARY KEY
                               CONSTRAINT ledger_info_id_check CHECK (id),
        default_region text    NOT NULL,
        floor          bigint  NOT NULL DEFAULT 0
    )
    """,
    """
    CREATE TABLE ledger_epochs (
        epoch         uuid   NOT NULL CONSTRAINT ledger_epochs_pkey PRIMARY KEY,
        from_position bigint NOT NULL CONSTRAINT ledger_epochs_from_position_key UNIQUE
    )
    """,
    """
    INSERT INTO ledger_epochs (epoch, from_position) VALUES (gen_random_uuid(), 1)
    """,
)

# Of the statement, not of the row: TRUNCATE has no row trigger, and an UPDATE that happens to meet no row
# is as wrong as one that does. ENABLE ALWAYS, or session_replication_role = replica would let it pass.
APPEND_ONLY = (
    """
    CREATE FUNCTION job_events_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'job_events is append-only: % refused', TG_OP
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'History is never changed; record a further event instead.';
    END
    $$
    """,
    """
    CREATE TRIGGER job_events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON job_events
        FOR EACH STATEMENT EXECUTE FUNCTION job_events_refuse_change()
    """,
    "ALTER TABLE job_events ENABLE ALWAYS TRIGGER job_events_append_only",
)


def upgrade() -> None:
    """Make the tables, and what keeps the log from being changed."""
    for statement in (*TABLES, *APPEND_ONLY):
        op.execute(statement)
    default_region: str = context.config.attributes["default_region"]
    op.execute(
        sa.text("INSERT INTO ledger_info (default_region) VALUES (:region)").bindparams(region=default_region)
    )
