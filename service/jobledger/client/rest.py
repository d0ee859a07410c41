"""One job as the console sees it, over REST."""

from __future__ import annotations

import aiohttp
import msgspec

from jobledger import errors

TIMEOUT_SECONDS = 30.0
"""How long one answer may take."""


class _Envelope(msgspec.Struct):
    """What every answer comes in; success has a returnObj, failure an errorCode and a message."""

    status_code: int = msgspec.field(name="statusCode")
    returned: msgspec.Raw = msgspec.field(name="returnObj", default=msgspec.Raw(b"{}"))
    error_code: str = msgspec.field(name="errorCode", default="")
    message: str = ""


async def job(url: str, job_id: str, region: str) -> bytes:
    """A job's CWAI description (the ``returnObj``) as JSON.

    Raises:
        errors.NotFound: there is no such job in this region.
        errors.ServerRefused: the service says no; ``status`` is its errorCode.
        errors.ServerUnreachable: nobody answers, or not as JobLedger does.
    """
    # As query parameters, since an id may be ".." or hold a slash.
    query = {"jobID": job_id, "regionID": region}
    try:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{url.rstrip('/')}/v4/cwai/job", params=query) as response,
        ):
            body = await response.read()
        envelope = msgspec.json.decode(body, type=_Envelope)
    except aiohttp.InvalidURL as error:
        raise errors.InvalidRequest(
            f"{errors.shown(url)} is no URL, such as http://127.0.0.1:8080"
        ) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise errors.ServerUnreachable(url, str(error) or f"not within {TIMEOUT_SECONDS:g} s") from error
    except msgspec.DecodeError as error:
        raise errors.ServerUnreachable(url, f"what listens there is no JobLedger ({error})") from error
    if not envelope.error_code:
        return bytes(envelope.returned)
    if envelope.error_code == "Cwai.Api.NotFound":
        raise errors.NotFound(envelope.message)
    raise errors.ServerRefused(envelope.message, status=envelope.error_code)
