"""What a server counts, as Prometheus reads it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from metagen.serve.gate import Gate
from metagen.serve.solve import Solution

#: Seconds of requests are counted by these bounds.
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Requests by model and status, seconds, tokens and FLOPs of answered ones, and those in work and waiting."""

    def __init__(self, gate: Gate) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "metagen_requests", "Requests that ended", ["model", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "metagen_request_seconds", "Seconds from a request to the end of its answer", ["model"],
            registry=self.registry, buckets=SECONDS,
        )  # fmt: skip
        self._tokens = Counter(
            "metagen_tokens", "Logical tokens of answered requests", ["model", "kind"], registry=self.registry
        )
        self._flops = Counter(
            "metagen_flops", "FLOPs of answered requests, where known", ["model"], registry=self.registry
        )
        for name, what in (
            ("running", "Requests in work; each more prompt of one that is at work is counted too"),
            ("waiting", "Requests that wait"),
        ):
            gauge = Gauge(f"metagen_requests_{name}", what, registry=self.registry)
            gauge.set_function(lambda name=name: getattr(gate, name))  # type: ignore[misc]

    def ended(self, model: str, status: int, seconds: float) -> None:
        """A request has ended. status: of HTTP; 499 where the client went away."""
        self._requests.labels(model, str(status)).inc()
        if status == 200:
            self._seconds.labels(model).observe(seconds)

    def spent(self, solution: Solution) -> None:
        """What an answer took."""
        usage, model = solution.trace.usage, solution.job.model
        for kind in ("prefilled", "cached", "generated"):
            if (tokens := getattr(usage, kind)) is not None:
                self._tokens.labels(model, kind).inc(tokens)
        if usage.flops is not None:
            self._flops.labels(model).inc(usage.flops)

    def text(self) -> bytes:
        """In the format of Prometheus."""
        return generate_latest(self.registry)
