"""What our errors are to a REST client."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest

from jobledger import errors
from jobledger.web import envelope

SAID = "the error's own words"


def kinds(root: type[errors.LedgerError] = errors.LedgerError) -> Iterator[type[errors.LedgerError]]:
    """Every class of the tree."""
    yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


KINDS: list[type[errors.LedgerError]] = list(dict.fromkeys(kinds()))


def told(error: Exception) -> dict[str, object]:
    body = envelope.failure(error).body
    assert isinstance(body, bytes)
    return json.loads(body)


def made(kind: type[errors.LedgerError]) -> errors.LedgerError:
    """An instance that says SAID, whatever its constructor takes."""
    error = kind.__new__(kind)
    Exception.__init__(error, SAID)
    if isinstance(error, errors.EventError):
        error.field, error.reason = "detail.name", SAID
    return error


CALLERS = {
    errors.EventError: "BadRequest",
    errors.InvalidRequest: "BadRequest",
    errors.NotFound: "NotFound",
    errors.NotPermitted: "StatusUnauthorized",
}


@pytest.mark.parametrize("kind", KINDS)
def test_error_that_is_the_callers_to_mend_is_told_and_any_other_is_not(
    kind: type[errors.LedgerError],
) -> None:
    code = next((code for base, code in CALLERS.items() if issubclass(kind, base)), "InternalServerError")

    failure = told(made(kind))

    assert failure["statusCode"] == 900
    assert failure["errorCode"] == f"Cwai.Api.{code}"
    assert (SAID in str(failure["message"])) is (code != "InternalServerError")
    assert ("(request " in str(failure["message"])) is (code == "InternalServerError")


def test_each_failure_has_an_id_of_its_own() -> None:
    assert told(ValueError())["message"] != told(ValueError())["message"]


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ("detail.envs[0].value", "envs[0].value: x"),
        ("region", "regionID: x"),
        ("signal.jobId", "jobID: x"),
        ("signal.HcclJson", "signal.HcclJson: x"),
    ],
)
def test_field_is_called_what_the_rest_caller_calls_it(field: str, shown: str) -> None:
    assert told(errors.EventConflict(field=field, reason="x"))["message"] == shown


def test_success_is_written_as_the_document_has_it() -> None:
    class Shown(msgspec.Struct):
        name: str

    answer = envelope.success(Shown("训练"))

    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.body == '{"statusCode":800,"returnObj":{"name":"训练"}}'.encode()
