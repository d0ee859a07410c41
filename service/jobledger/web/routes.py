"""Which handler answers which path and method; whatever goes wrong below comes out in the envelope.

Not the framework's router: it answers 404 and 405 as text, and job ids may hold what its patterns cannot.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from aiohttp import web

from jobledger import errors
from jobledger.web import envelope, health, jobs

Handler: TypeAlias = Callable[[web.BaseRequest, str], Awaitable[web.Response]]
"""Takes the request and the last segment of its path, undecoded; "" where the path is fixed."""

Methods: TypeAlias = Mapping[str, Handler]

JOB: Final = "/v4/cwai/job"


class Router:
    """Answers every request."""

    def __init__(self, job: jobs.Jobs, state: health.Health) -> None:
        self._fixed: Mapping[str, Methods] = {
            JOB: {**_reading(job.show), "POST": job.record, "DELETE": job.delete},
            "/healthz": _reading(state.live),
            "/readyz": _reading(state.ready),
        }
        self._under: Mapping[str, Methods] = {JOB: {**_reading(job.show), "DELETE": job.delete}}

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """The answer to a request. Cancellation passes through."""
        try:
            handler, segment = self._find(request)
            return await handler(request, segment)
        except ConnectionError:
            # The client went while its body was read: nobody will see this answer, and nothing is wrong.
            return envelope.failure(errors.InvalidRequest("the connection was lost"))
        except Exception as error:  # noqa: BLE001 - the outermost: every failure has its envelope
            return envelope.failure(error)

    def _find(self, request: web.BaseRequest) -> tuple[Handler, str]:
        path = request.rel_url.raw_path
        methods, segment = self._fixed.get(path), ""
        if methods is None:
            parent, _, segment = path.rpartition("/")
            methods = self._under.get(parent)
        if methods is None:
            raise errors.NotFound(f"there is nothing at {errors.shown(path)}")
        handler = methods.get(request.method)
        if handler is None:
            raise errors.InvalidRequest(
                f"method {request.method} does not apply to {errors.shown(path)}; use {', '.join(methods)}"
            )
        return handler, segment


def _reading(handler: Handler) -> Methods:
    return {"GET": handler, "HEAD": handler}
