"""What the service counts, for Prometheus. docs/serving.md lists the names; a test compares."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

log = logging.getLogger("whatelse.server")
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
COUNTERS = {
    "requests": ("Requests answered, by route and status.", ("route", "status")),
    "decisions": ("Decisions recorded, by verdict.", ("verdict",)),
    "confirmations_expected": ("Probabilities shown with the tags decided on, added up, by condition.", ("condition",)),
    "confirmations": ("Tags decided on that were confirmed, by condition.", ("condition",)),
    "conflicts": ("Decisions refused because the visit had moved on.", ()),
    "model_reloads": ("Attempts to load the model file again, by outcome.", ("outcome",)),
    "unaudited_refusals": ("Refusals of an address beyond those that the audit keeps.", ()),
    "tokens_refused": ("Tokens refused, by use and reason.", ("use", "reason")),
    "launches": ("SMART launches, by outcome: ok, or why not.", ("outcome",)),
    "fhir_failures": ("Reads of a FHIR server that failed, by kind of resource and reason.", ("kind", "reason")),
    "errors": ("Requests that failed inside, each logged with an incident number.", ()),
}


class Metrics:
    """The counters of COUNTERS, and seconds by route, in a registry of its own. Threads may share it."""

    def __init__(self) -> None:
        # without the time at which each series began: it doubles the series
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._counters = {
            name: Counter(f"whatelse_{name}", said, labels, registry=self._registry)
            for name, (said, labels) in COUNTERS.items()
        }
        self._seconds = Histogram(
            "whatelse_request_seconds",
            "Time from request to answer, by route.",
            ("route",),
            buckets=BUCKETS,
            registry=self._registry,
        )

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to one of COUNTERS, which must be given its labels."""
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(by)

    def refused(self, use: str, reason: str) -> None:
        """Count and log that a token was refused: one word each, nothing of the token."""
        self.count("tokens_refused", use=use, reason=reason)
        log.warning("token refused: use=%s reason=%s", use, reason)

    def fhir_failed(self, kind: str, reason: str) -> None:
        """Count and log that a read of a FHIR server failed: kind of resource and one word."""
        self.count("fhir_failures", kind=kind, reason=reason)
        log.warning("FHIR read failed: kind=%s reason=%s", kind, reason)

    def took(self, route: str, seconds: float) -> None:
        self._seconds.labels(route=route).observe(seconds)

    def text(self, gauges: Mapping[str, tuple[str, float | dict[str, float]]]) -> str:
        """All metrics in Prometheus' text format, and `gauges`: name -> (help, value, or values by condition)."""
        now = CollectorRegistry()
        for name, (said, value) in gauges.items():
            if isinstance(value, dict):
                gauge = Gauge(f"whatelse_{name}", said, ("condition",), registry=now)
                for condition, each in value.items():
                    gauge.labels(condition=condition).set(each)
            else:
                Gauge(f"whatelse_{name}", said, registry=now).set(value)
        return (generate_latest(self._registry) + generate_latest(now)).decode()
