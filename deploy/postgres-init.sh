# Run by the Postgres image when it makes its data directory: the role that the replicas log in as, and the one
# whose members audit. What they may do is granted by `jobledger migrate`: append to the log and read it, or only
# read it; never change it. `migrate` would make both, but a dump is restored before it, and names them.
psql --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
    --set password="$(cat /run/jobledger/app/password)" <<'SQL'
CREATE ROLE jobledger_app LOGIN PASSWORD :'password';
CREATE ROLE jobledger_auditor NOLOGIN;
SQL
