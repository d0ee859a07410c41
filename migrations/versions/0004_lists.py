"""What lists filter and sort by: columns of jobs that its description tells, and the indexes for pages.

The columns keep a default, so that a replica of the release before, still running, can go on writing jobs;
``jobledger.model.searchkeys`` says what is in them. docs/rest.md shows which list each index serves.
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0002"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    ALTER TABLE jobs
        ADD COLUMN shown_name        text COLLATE "C" NOT NULL DEFAULT '',
        ADD COLUMN shown_status      text NOT NULL DEFAULT '',
        ADD COLUMN train_frame       text NOT NULL DEFAULT '',
        ADD COLUMN queue_id          text NOT NULL DEFAULT '',
        ADD COLUMN resource_group_id text NOT NULL DEFAULT '',
        ADD COLUMN finish_time       timestamptz,
        ADD COLUMN live              boolean NOT NULL DEFAULT true
    """,
    # A database's own setting could make a moment without an offset another one; those kept all have one.
    """
    UPDATE jobs SET
        shown_name = coalesce(nullif(described ->> 'name', ''), jobs.job_name),
        shown_status = coalesce(
            nullif(described ->> 'status', ''),
            CASE jobs.job_status
                WHEN 'pending' THEN 'Pending' WHEN 'running' THEN 'Running'
                WHEN 'complete' THEN 'Succeeded' WHEN 'failed' THEN 'Failed' ELSE jobs.job_status
            END
        ),
        train_frame = coalesce(nullif(described ->> 'trainFrame', ''), jobs.framework),
        queue_id = coalesce(described ->> 'queueID', ''),
        resource_group_id = coalesce(described ->> 'resourceGroupID', ''),
        finish_time = coalesce((described ->> 'finishTime')::timestamptz, jobs.ended_at),
        live = jobs.deleted_at IS NULL
    FROM (SELECT job_id, detail::jsonb AS described FROM jobs) AS given
    WHERE given.job_id = jobs.job_id
    """,
    "CREATE INDEX jobs_status_created_idx ON jobs (region, live, job_status, create_time, job_id)",
    "CREATE INDEX jobs_namespace_created_idx ON jobs (region, live, namespace, create_time, job_id)",
    "CREATE INDEX jobs_user_created_idx ON jobs (region, live, user_id, create_time, job_id)",
    "CREATE INDEX jobs_account_created_idx ON jobs (region, live, account_id, create_time, job_id)",
    """
    CREATE INDEX jobs_queue_created_idx ON jobs (region, live, queue_id, create_time, job_id)
        WHERE queue_id <> ''
    """,
    """
    CREATE INDEX jobs_finished_idx ON jobs
        (region, live, coalesce(finish_time, '-infinity'::timestamptz), job_id)
    """,
    "CREATE INDEX jobs_changed_idx ON jobs (region, live, changed_at, job_id)",
    "CREATE INDEX jobs_name_idx ON jobs (region, live, shown_name, job_id)",
)


def upgrade() -> None:
    """Add the columns, fill them for the jobs that are there, and make the indexes."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
