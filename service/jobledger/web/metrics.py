"""``/metrics``: what the process counts and how it stands, for Prometheus.

Numbers are read when they are asked for, from whoever has them; only requests are timed here. Labels are
routes and errorCodes, never ids: a job's name in a label would be a series of its own for ever.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Final

import prometheus_client
from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from jobledger.ledger import appender, page, tail

DURATIONS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds; a get takes one millisecond, a list of the past up to three seconds."""


class Metrics:
    """Counts requests, and answers ``/metrics``."""

    def __init__(self, ledger: Ledger) -> None:
        self._registry = prometheus_client.CollectorRegistry()
        self._registry.register(ledger)
        self._durations = _Durations()
        self._registry.register(self._durations)

    def took(self, route: str, method: str, seconds: float) -> None:
        """Count a request."""
        self._durations.add(route, method, seconds)

    async def show(self, _request: web.BaseRequest, _path_id: str) -> web.Response:
        """GET: everything, in Prometheus' text format."""
        return web.Response(
            body=prometheus_client.generate_latest(self._registry),
            headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST},
        )


class _Durations(Collector):
    """Requests by how long they took.

    Not the library's histogram, which looks its labels up and takes a lock a bucket: 5 % of a get.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], list[int]] = {}
        """Of each route and method: requests by the first of DURATIONS that they did not exceed, or none."""

        self._sums: dict[tuple[str, str], float] = {}

    def add(self, route: str, method: str, seconds: float) -> None:
        """Count a request."""
        labels = (route, method)
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(DURATIONS) + 1)
        counts[bisect_left(DURATIONS, seconds)] += 1
        self._sums[labels] = self._sums.get(labels, 0.0) + seconds

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The histogram."""
        family = HistogramMetricFamily(
            "jobledger_http_request_seconds",
            "Time from a request's head to its answer.",
            labels=("route", "method"),
        )
        for labels, counts in self._counts.items():
            limits = (*map(str, DURATIONS), "+Inf")
            family.add_metric(
                labels, list(zip(limits, accumulate(counts), strict=True)), sum_value=self._sums[labels]
            )
        yield family


class Ledger(Collector):
    """The ledger's numbers at the moment of a look."""

    def __init__(
        self,
        *,
        appending: appender.Appender,
        following: tail.Tail,
        streams: Callable[[], int],
        grpc_streams: Callable[[], int],
        hears: Callable[[], bool],
    ) -> None:
        self._appending = appending
        self._following = following
        self._streams = streams
        self._grpc_streams = grpc_streams
        self._hears = hears

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Every number."""
        counters: Mapping[str, tuple[str, float]] = {
            "jobledger_appended_events": ("Events that this process committed.", self._appending.events),
            "jobledger_append_batches": (
                "Transactions in which it did so; events through batches is the batch size.",
                self._appending.batches,
            ),
            "jobledger_unreadable_rows": (
                "Rows left out because their stored bytes were spoiled, each time that a page is made.",
                page.Unreadable.rows,
            ),
        }
        gauges: Mapping[str, tuple[str, float]] = {
            "jobledger_append_queue_events": ("Events that wait.", self._appending.queued_events),
            "jobledger_append_queue_bytes": ("Their size.", self._appending.queued_bytes),
            "jobledger_head_position": ("The log's end as this process has read it.", self._following.head),
            "jobledger_tail_lag_seconds": (
                "How long ago the log was last followed to its end.",
                self._following.behind_seconds,
            ),
            "jobledger_data_loss": (
                "1 while a position is missing from the log.",
                float(self._following.loss is not None),
            ),
            "jobledger_notifications_arrive": (
                "0 while this process hears of other processes' events with its next poll only.",
                float(self._hears()),
            ),
            "jobledger_sse_streams": ("Open streams of server-sent events.", self._streams()),
            "jobledger_grpc_streams": ("Open subscriptions by gRPC.", self._grpc_streams()),
        }
        for name, (said, value) in counters.items():
            yield CounterMetricFamily(name, said, value=value)
        for name, (said, value) in gauges.items():
            yield GaugeMetricFamily(name, said, value=value)
