"""What Prometheus reads at `GET /metrics`: counts that a probe keeps, and gauges that are read off the gateway when somebody asks.

The probe is called inside the actors, on the one thread of the loop, and so is `now`: a count is a number in a dictionary, without a lock. There is a probe per observation and
none per chunk. The text is made of what `now` gave, in a thread. Labels are names out of the configuration and stable tokens of our own, never what a caller or a provider has said, and a counter has a bound on them besides.
"""

from __future__ import annotations

import types
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder

from actors.context import Gateway
from gate.envelope import PublicError
from gate.failure import FailureKind
from gate.observe import Measured, Observation, TokenKind, What
from gate.refs import is_stable_token
from transport.recorder import Counts as Tally
from transport.recorder import Recorder

__all__ = ["SERIES_MAX", "Counts", "Durations", "Metrics", "Told"]

SERIES_MAX: Final = 1_000  # of one counter; what would be one more is counted as OTHER
NONE: Final = "none"  # where there is nothing to say
OTHER: Final = "other"

# Bounds of buckets in seconds: what people wait for, and what one token takes.
WAITS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)  # fmt: skip
PACES: Final = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)  # fmt: skip

_RECOVERED: Final[Mapping[str, str]] = types.MappingProxyType(
    {"complete": "complete", FailureKind.ABORTED.value: FailureKind.ABORTED.value}
)


class Counts:
    """A counter with labels."""

    def __init__(self, name: str, about: str, labels: Sequence[str]) -> None:
        self._name = name
        self._about = about
        self._labels = labels
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, *values: str, by: int = 1) -> None:
        """Counts under these labels' values, in their order."""
        counts = self._counts
        if values not in counts:
            values = tuple(_safe(value) for value in values)
            if values not in counts and len(counts) >= SERIES_MAX:
                values = (OTHER,) * len(values)
        counts[values] = counts.get(values, 0) + by

    def family(self) -> Metric:
        """As it stands."""
        family = CounterMetricFamily(self._name, self._about, labels=self._labels)
        for values, count in self._counts.items():
            family.add_metric(values, count)
        return family


class Durations:
    """A histogram of seconds. `bounds`: the upper ends of its buckets, rising."""

    def __init__(self, name: str, about: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._about = about
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, seconds: float | None) -> None:
        """Counts one; None: there was nothing to measure."""
        if seconds is not None:
            self._counts[bisect_left(self._bounds, seconds)] += 1
            self._sum += seconds

    def family(self) -> Metric:
        """As it stands."""
        ends = [*map(str, self._bounds), "+Inf"]
        buckets = list(zip(ends, accumulate(self._counts), strict=True))
        family = HistogramMetricFamily(self._name, self._about)
        family.add_metric([], buckets, sum_value=self._sum)
        return family


@dataclass(frozen=True, slots=True)
class Told:
    """A page that has not been written yet: families as they stood, and the process, which is asked while it is written."""

    families: Sequence[Metric]
    process: ProcessCollector

    def collect(self) -> Iterable[Metric]:
        """For the library."""
        return [*self.families, *self.process.collect()]

    def text(self, accept: str) -> tuple[bytes, str]:
        """The page and its content type: Prometheus' text, or OpenMetrics for who asks for that. It takes some milliseconds, and belongs into a thread."""
        encode, content_type = choose_encoder(accept)
        return encode(self), content_type


class Metrics:
    """Everything that is exported of one gateway. `observe` is a probe; `watch` says whose gauges are read."""

    def __init__(self) -> None:
        self._process = ProcessCollector(registry=None)
        self._gateway: Gateway | None = None
        self._dropped: Callable[[], int] = int
        self._recorder: Recorder | None = None
        self._refusals = Counts(
            "tidegate_refusals_total", "Requests that never became exchanges.", ("status", "code")
        )
        self._exchanges = Counts(
            "tidegate_exchanges_total", "Exchanges that ended.", ("route", "framing", "mode", "outcome")
        )  # fmt: skip
        self._attempts = Counts(
            "tidegate_attempts_total", "Attempts that ended.", ("provider", "directive", "outcome")
        )
        self._recoveries = Counts(
            "tidegate_recoveries_total", "Attempts behind a failed one.", ("directive", "reason", "outcome")
        )  # fmt: skip
        self._give_ups = Counts(
            "tidegate_give_ups_total", "Exchanges without a further attempt.", ("why",)
        )
        self._verdicts = Counts(
            "tidegate_verdicts_total", "What filters and limits found.", ("filter", "code")
        )
        self._tokens = Counts(
            "tidegate_tokens_total", "Completion tokens of attempts.", ("kind", "reason")
        )
        self._held = Durations(
            "tidegate_held_seconds", "The longest that a frame of an exchange was held.", WAITS
        )
        self._ttft = Durations(
            "tidegate_ttft_seconds", "From a whole request to the first release of its stream.", WAITS
        )  # fmt: skip
        self._added = Durations(
            "tidegate_first_token_added_seconds", "What holding, judging and recovery add to it.", WAITS
        )  # fmt: skip
        self._pace = Durations(
            "tidegate_time_per_output_token_seconds", "Of streams that ended well.", PACES
        )
        self._probes: Final[Mapping[What, Callable[[Observation], None]]] = {
            What.EXCHANGE_ENDED: self._exchange_ended,
            What.ATTEMPT_ENDED: self._attempt_ended,
            What.VIOLATION: self._verdict,
            What.REMARK: self._verdict,
            What.GIVE_UP: self._gave_up,
        }

    def watch(
        self, gateway: Gateway, dropped: Callable[[], int], recorder: Recorder | None = None
    ) -> None:
        """Reads gauges off `gateway` from now on, and counts off `recorder`; `dropped` says how many observations some sink has lost."""
        self._gateway, self._dropped, self._recorder = gateway, dropped, recorder

    def refused(self, error: PublicError) -> None:
        """A request that never became an exchange."""
        self._refusals.add(str(error.status), error.code)

    def observe(self, observation: Observation) -> None:
        """The probe."""
        count = self._probes.get(observation.what)
        if count is not None:
            count(observation)

    def now(self) -> Told:
        """Everything as it stands."""
        return Told([*self._families()], self._process)

    def _families(self) -> Iterator[Metric]:
        counted = (self._refusals, self._exchanges, self._attempts, self._recoveries, self._give_ups, self._verdicts, self._tokens)  # fmt: skip
        measured = (self._held, self._ttft, self._added, self._pace)
        for each in (*counted, *measured):
            yield each.family()
        name = "tidegate_observations_dropped_total"
        yield CounterMetricFamily(name, "Observations that a sink lost.", value=self._dropped())
        if self._gateway is not None:
            yield from _gauges(self._gateway)
        yield from _recorded(self._recorder)

    def _exchange_ended(self, seen: Observation) -> None:
        framing, route = seen.framing or NONE, seen.route or NONE
        self._exchanges.add(route, framing, seen.mode, seen.outcome)
        if seen.measured is not None:
            self._measured(seen.measured)

    def _measured(self, measured: Measured) -> None:
        self._held.add(measured.held_seconds)
        self._ttft.add(measured.ttft_seconds)
        self._added.add(measured.ttft_added_seconds)
        self._pace.add(measured.token_seconds)
        for spent in measured.spent:
            wasted = spent.kind is TokenKind.WASTED
            self._tokens.add(spent.kind.value, spent.reason if wasted else NONE, by=spent.tokens)

    def _attempt_ended(self, seen: Observation) -> None:
        if seen.provider:  # what found no place at one was no attempt
            self._attempts.add(seen.provider, seen.directive, seen.code)
        if seen.reason:
            outcome = _RECOVERED.get(seen.code, "failed")
            self._recoveries.add(seen.directive, seen.reason, outcome)

    def _verdict(self, seen: Observation) -> None:
        self._verdicts.add(seen.filter or NONE, seen.code)

    def _gave_up(self, seen: Observation) -> None:
        self._give_ups.add(seen.code)


def _gauges(gateway: Gateway) -> Iterator[Metric]:
    held, dispatch = gateway.open.held_bytes, gateway.dispatch
    ledger = GaugeMetricFamily(
        "tidegate_ledger_bytes",
        "Memory that exchanges have reserved: evidence, all else, and the most of both.",
        labels=("kind",),
    )
    ledger.add_metric(("retained",), gateway.budget.used - held)
    ledger.add_metric(("held",), held)
    ledger.add_metric(("peak",), gateway.budget.peak)
    yield ledger
    for name, about, value in (
        ("exchanges_open", "Exchanges in flight.", len(gateway.open)),
        ("exchanges_waiting", "Those that wait for a place.", dispatch.exchanges.waiting),
        ("upstream_open", "Attempts open at providers.", sum(dispatch.providers.taken.values())),
        ("leases_open", "Request bodies held for an attempt.", gateway.open.leases),
        ("config_generation", "Configurations in force so far.", gateway.config_generation),
    ):
        yield GaugeMetricFamily(f"tidegate_{name}", about, value=value)


def _recorded(recorder: Recorder | None) -> Iterator[Metric]:
    """What became of traces; where nothing is recorded there is a zero that says so."""
    counts = recorder.counts if recorder is not None else Tally()
    traces = CounterMetricFamily(
        "tidegate_traces_total", "What became of the exchanges' traces.", labels=("outcome",)
    )
    for outcome in ("written", "passed_over", "dropped", "failed"):
        traces.add_metric((outcome,), getattr(counts, outcome))
    yield traces
    about = "Bytes of traces that were written."
    yield CounterMetricFamily("tidegate_trace_bytes_total", about, value=counts.size)
    about = "1: traces are being written; 0: they are not asked for, or the disk takes none."
    active = int(recorder is not None and not recorder.failing)
    yield GaugeMetricFamily("tidegate_recording", about, value=active)


def _safe(value: str) -> str:
    """A label's value as it may be shown."""
    if not value:
        return NONE
    return value if is_stable_token(value) else OTHER
