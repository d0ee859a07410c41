"""What our errors are to a gRPC client: one table."""

from __future__ import annotations

from typing import Final

from grpclib import const

from jobledger import errors
from jobledger.rpc import streaming

STATUSES: Final[tuple[tuple[type[errors.LedgerError], const.Status], ...]] = (
    (errors.InvalidRequest, const.Status.INVALID_ARGUMENT),
    (errors.NotFound, const.Status.NOT_FOUND),
    (errors.NotPermitted, const.Status.PERMISSION_DENIED),
    (errors.MalformedUuid, const.Status.INVALID_ARGUMENT),
    (errors.UnknownUuid, const.Status.NOT_FOUND),
    (errors.PrunedUuid, const.Status.OUT_OF_RANGE),
    (errors.OtherEpoch, const.Status.ABORTED),
    # ClusterD's own status for every refusal; its clients know the messages.
    (errors.SubscriptionRefused, const.Status.UNKNOWN),
    (errors.TakenOver, const.Status.CANCELLED),
    (errors.SlowReader, const.Status.RESOURCE_EXHAUSTED),
    (errors.ShuttingDown, const.Status.UNAVAILABLE),
    (errors.Overloaded, const.Status.RESOURCE_EXHAUSTED),
    (errors.Unavailable, const.Status.UNAVAILABLE),
    (errors.DataLoss, const.Status.DATA_LOSS),
)
"""The first class that an error is an instance of decides."""


def explain(error: Exception, _call: streaming.Call) -> streaming.CallError | None:
    """The status, message and ``ledger-reason`` of an error; None for one that is not meant for clients."""
    for kind, status in STATUSES:
        if isinstance(error, kind):
            reason: str = getattr(error, "reason", "refused")
            return streaming.CallError(status, str(error), {"ledger-reason": reason})
    return None
