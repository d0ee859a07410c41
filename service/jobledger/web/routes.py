"""Which handler answers which path and method; whatever goes wrong below comes out in the envelope.

Not the framework's router: it answers 404 and 405 as text, and job ids may hold what its patterns cannot.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from aiohttp import web

from jobledger import errors
from jobledger.web import envelope, events, health, jobs, lists, metrics, openapi, reads

Handler: TypeAlias = Callable[[web.BaseRequest, str], Awaitable[web.StreamResponse]]
"""Takes the request and the segment of its path that varies, undecoded; "" where the path is fixed."""

Methods: TypeAlias = Mapping[str, Handler]

JOB: Final = "/v4/cwai/job"


class Router:
    """Answers every request."""

    def __init__(
        self,
        *,
        job: jobs.Jobs,
        read: reads.Reads,
        listed: lists.Lists,
        stream: events.Events,
        state: health.Health,
        measured: metrics.Metrics,
    ) -> None:
        self._metrics = measured
        self._fixed: Mapping[str, Methods] = {
            JOB: {**_reading(read.show), "POST": job.record, "DELETE": job.delete},
            f"{JOB}s": _reading(listed.query),
            "/v4/cwai/events": _reading(stream.follow),
            "/openapi.json": _reading(openapi.Document().show),
            "/metrics": _reading(measured.show),
            "/healthz": _reading(state.live),
            "/readyz": _reading(state.ready),
        }
        one = {**_reading(read.show), "DELETE": job.delete}
        self._under: Mapping[str, Methods] = {JOB: one}
        self._named: Mapping[str, Methods] = {f"{JOB}/list": {**one, "POST": listed.search}}
        self._sub: Mapping[str, Methods] = {"events": _reading(read.history)}

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to a request. Cancellation passes through."""
        began = time.perf_counter()
        route = "none"
        try:
            methods, segment, route = self._find(request.rel_url.raw_path)
            if request.method == "OPTIONS":
                return web.Response(headers={"Allow": ", ".join(_allowed(methods))})
            return await _handler(methods, request)(request, segment)
        except ConnectionError:
            # The client went while its body was read: nobody will see this answer, and nothing is wrong.
            return envelope.failure(errors.InvalidRequest("the connection was lost"))
        except Exception as error:  # noqa: BLE001 - the outermost: every failure has its envelope
            if request.method == "CONNECT":
                return _no_tunnel(error)
            return envelope.failure(error, problem=envelope.wants_problem(request))
        finally:
            self._metrics.took(route, request.method, time.perf_counter() - began)

    def _find(self, path: str) -> tuple[Methods, str, str]:
        """Methods, the segment that varies, and the route as metrics call it."""
        if (methods := self._fixed.get(path)) is not None:
            return methods, "", path
        parent, _, segment = path.rpartition("/")
        if (methods := self._named.get(path, self._under.get(parent))) is not None:
            return methods, segment, f"{parent}/{{jobID}}" if path not in self._named else path
        if (methods := self._sub.get(segment)) is not None and parent.rpartition("/")[0] == JOB:
            return methods, parent.rpartition("/")[2], f"{JOB}/{{jobID}}/{segment}"
        raise errors.NotFound(f"there is nothing at {errors.shown(path)}")


def _reading(handler: Handler) -> Methods:
    return {"GET": handler, "HEAD": handler}


def _handler(methods: Methods, request: web.BaseRequest) -> Handler:
    handler = methods.get(request.method)
    if handler is None:
        raise errors.WrongMethod(request.method, request.rel_url.raw_path, _allowed(methods))
    return handler


def _no_tunnel(error: Exception) -> web.Response:
    """The answer to CONNECT: 200 would say that a tunnel is open, and could have no body."""
    answer = envelope.failure(error, problem=True)
    answer.force_close()
    return answer


def _allowed(methods: Methods) -> tuple[str, ...]:
    return (*methods, "OPTIONS")
