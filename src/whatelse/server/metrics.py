"""Counters and latencies in Prometheus' text format."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
HELP = {
    "requests": "Requests answered, by route and status.",
    "decisions": "Decisions recorded, by verdict.",
    "conflicts": "Decisions refused because the visit had moved on.",
    "model_reloads": "Attempts to load the model file again.",
    "errors": "Requests that failed inside, each logged with an incident number.",
}


class Metrics:
    """Counts by name and labels, and a histogram of seconds by route. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self._times: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def count(self, name: str, by: int = 1, **labels: str) -> None:
        """Add to a counter of HELP."""
        with self._lock:
            self._counts[name, tuple(sorted(labels.items()))] += by

    def took(self, route: str, seconds: float) -> None:
        """Put one request's duration into its route's histogram."""
        with self._lock:
            buckets = self._times.setdefault(route, [0] * (len(BUCKETS) + 1))
            buckets[bisect_left(BUCKETS, seconds)] += 1
            self._sums[route] = self._sums.get(route, 0.0) + seconds

    def text(self, gauges: dict[str, tuple[str, float]]) -> str:
        """The exposition; `gauges`: name -> (help, value)."""
        out = []
        with self._lock:
            for name, said in HELP.items():
                out += [f"# HELP whatelse_{name}_total {said}", f"# TYPE whatelse_{name}_total counter"]
                for (counted, labels), value in sorted(self._counts.items()):
                    if counted == name:
                        out.append(f"whatelse_{name}_total{_labels(labels)} {value}")
            out += [
                "# HELP whatelse_request_seconds Time from request to answer, by route.",
                "# TYPE whatelse_request_seconds histogram",
            ]
            for route, buckets in sorted(self._times.items()):
                total = 0
                for edge, number in zip((*map(str, BUCKETS), "+Inf"), buckets, strict=True):
                    total += number
                    out.append(f"whatelse_request_seconds_bucket{_labels((('route', route), ('le', edge)))} {total}")
                out.append(f"whatelse_request_seconds_sum{_labels((('route', route),))} {self._sums[route]:.6f}")
                out.append(f"whatelse_request_seconds_count{_labels((('route', route),))} {total}")
        for name, (said, level) in gauges.items():
            out += [f"# HELP whatelse_{name} {said}", f"# TYPE whatelse_{name} gauge", f"whatelse_{name} {level:g}"]
        return "\n".join(out) + "\n"


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    escaped = ((k, v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for k, v in labels)
    inside = ",".join(f'{k}="{v}"' for k, v in escaped)
    return f"{{{inside}}}" if inside else ""
