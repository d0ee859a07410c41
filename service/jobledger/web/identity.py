"""Who asks, and whose jobs they may see: the gateway's headers narrow, they prove nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from aiohttp import web

from jobledger import errors
from jobledger.model.principal import Principal
from jobledger.web import parameters

Identify: TypeAlias = Callable[[web.BaseRequest], Principal]
"""Who makes a request."""


class Owners(NamedTuple):
    """The user and the account that a caller's headers name, "" where they name none."""

    user_id: str
    account_id: str

    def narrow(self, *, user_id: str, account_id: str) -> None:
        """Refuse somebody else's job.

        Raises:
            errors.NotPermitted: A header names another owner.
        """
        same_owner("userID", self.user_id, user_id)
        same_owner("accountID", self.account_id, account_id)


def owners(given: parameters.Parameters) -> Owners:
    """Whose jobs the caller's headers narrow to; read before anything is looked up.

    Raises:
        errors.InvalidRequest: One is malformed or given twice.
    """
    return Owners(given.header("userID"), given.header("accountID"))


def same_owner(name: str, given: str, owner: str) -> None:
    """Refuse if a header names another owner; whose it is, is not told.

    Raises:
        errors.NotPermitted: It does.
    """
    if given and owner and given != owner:
        raise errors.NotPermitted(f"the job is not that of {name} {errors.shown(given)}")


def no_job(job_id: str, region: str, *, at: int | None = None) -> errors.NotFound:
    """What is said of a job that is not there, or was not."""
    when = "" if at is None else f" as of position {at}"
    return errors.NotFound(f"there is no job {errors.shown(job_id)} in region {errors.shown(region)}{when}")
