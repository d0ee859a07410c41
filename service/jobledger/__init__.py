"""JobLedger: a ledger of job events for AI clusters.

The map of the package, outer to inner; a module imports only from its own line or from lines below
(held by import-linter):

    cli                     what people type
    workers                 several processes that serve as one
    app                     the composition root: everything is put together here, settings stop here
    database                the Postgres that it runs on: given or embedded, migrated, found fit
    rpc | web | client      the edges: gRPC, REST, and the Python client
    ledger                  appending, and reading in order; knows no transport
    store | wire            the only door to Postgres | protobuf to model and back
    model                   values and folds: no IO, no clock, no setting
    errors | logs | ports | heap    what can go wrong | how log lines look | listening | memory that is kept

``embedded`` runs a private Postgres and is used by ``database`` alone.
"""

__version__ = "0.1.0"
