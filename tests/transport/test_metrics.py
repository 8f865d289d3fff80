"""`transport.metrics`: observations become counts, a gateway's state becomes gauges, and both become text that Prometheus reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from gate.config import GatewayConfig
from gate.envelope import refusal
from gate.observe import Measured, Observation, OutcomeKind, Spent, TokenKind, What
from gate.refs import is_stable_token
from tests.doubles import Records, ScriptedProvider, gateway
from transport.metrics import SERIES_MAX, Counts, Durations, Metrics
from transport.recorder import Recorder
from transport.segments import Segments

README = Path(__file__).parent.parent.parent / "README.md"
Samples = Mapping[tuple[str, tuple[str, ...]], float]


def samples(metrics: Metrics) -> Samples:
    """What the page says: sample names with the values of their labels in the order of their names, our own only."""
    text, _ = metrics.now().text("")
    return {
        (each.name.removeprefix("tidegate_"), tuple(each.labels[name] for name in sorted(each.labels))): each.value
        for family in read_text(text.decode())
        for each in family.samples
        if each.name.startswith("tidegate_")
    }  # fmt: skip


def ended(
    measured: Measured | None = None,
    *,
    route: str = "default",
    framing: str = "chat_sse",
    outcome: str = "success",
) -> Observation:
    """The end of an exchange."""
    return Observation(
        What.EXCHANGE_ENDED,
        "ex-1",
        route=route,
        framing=framing,
        mode="normalized",
        outcome=outcome,
        measured=measured,
    )


def attempt(code: str, *, provider: str = "local", directive: str = "exact", reason: str = "") -> Observation:  # fmt: skip
    """The end of an attempt."""
    return Observation(
        What.ATTEMPT_ENDED, "ex-1", code=code, provider=provider, directive=directive, reason=reason
    )


# --- the probe -----------------------------------------------------------------------------------


def test_an_exchange_is_counted_by_route_framing_mode_and_outcome() -> None:
    """What was refused before it had any is counted under "none"."""
    metrics = Metrics()
    for _ in range(2):
        metrics.observe(ended())
    metrics.observe(ended(outcome="error", route="", framing=""))
    told = samples(metrics)
    assert told["exchanges_total", ("chat_sse", "normalized", "success", "default")] == 2
    assert told["exchanges_total", ("none", "normalized", "error", "none")] == 1


def test_an_attempt_is_counted_and_so_is_the_recovery_that_it_was() -> None:
    """The first of an exchange was none; one that found no place at a provider was no attempt."""
    metrics = Metrics()
    for each in (
        attempt("stream_cut"),
        attempt("complete", provider="hosted", directive="continuation", reason="stream_cut"),
        attempt("gap_timeout", provider="hosted", directive="continuation", reason="stream_cut"),
        attempt("aborted", reason="stream_cut"),
        attempt("queue_timeout", provider="", reason="stream_cut"),
    ):
        metrics.observe(each)
    told = samples(metrics)
    assert {key[1]: value for key, value in told.items() if key[0] == "attempts_total"} == {
        ("exact", "stream_cut", "local"): 1,
        ("continuation", "complete", "hosted"): 1,
        ("continuation", "gap_timeout", "hosted"): 1,
        ("exact", "aborted", "local"): 1,
    }
    assert {key[1]: value for key, value in told.items() if key[0] == "recoveries_total"} == {
        ("continuation", "complete", "stream_cut"): 1,
        ("continuation", "failed", "stream_cut"): 1,
        ("exact", "aborted", "stream_cut"): 1,
        ("exact", "failed", "stream_cut"): 1,
    }


def test_verdicts_are_counted_by_filter_and_code() -> None:
    """Whether the filter gates or only remarks; a limit is no filter."""
    metrics = Metrics()
    metrics.observe(Observation(What.VIOLATION, "ex-1", code="pattern_match", filter="no-keys"))
    metrics.observe(Observation(What.REMARK, "ex-1", code="refusal", filter="refusal"))
    metrics.observe(Observation(What.VIOLATION, "ex-1", code="held_limit"))
    metrics.observe(Observation(What.GIVE_UP, "ex-1", code="attempts"))
    told = samples(metrics)
    assert told["verdicts_total", ("pattern_match", "no-keys")] == 1
    assert told["verdicts_total", ("refusal", "refusal")] == 1
    assert told["verdicts_total", ("held_limit", "none")] == 1
    assert told["give_ups_total", ("attempts",)] == 1


def test_tokens_are_counted_by_what_became_of_them() -> None:
    """A reason has what was wasted, and nothing else."""
    metrics = Metrics()
    spent = (
        Spent(TokenKind.WASTED, 5, "stream_cut"),
        Spent(TokenKind.REPORTED, 7),
        Spent(TokenKind.ESTIMATED, 2),
    )
    for _ in range(2):
        metrics.observe(ended(Measured(spent=spent)))
    told = samples(metrics)
    assert told["tokens_total", ("wasted", "stream_cut")] == 10
    assert told["tokens_total", ("reported", "none")] == 14
    assert told["tokens_total", ("estimated", "none")] == 4


def test_times_go_into_buckets_and_what_was_not_measured_goes_nowhere() -> None:
    """A bucket holds what is not longer than its bound."""
    metrics = Metrics()
    metrics.observe(ended(Measured(2.5, ttft_seconds=3.5, ttft_added_seconds=0.0)))
    metrics.observe(ended(Measured(300.0, token_seconds=0.02)))
    metrics.observe(ended())
    told = samples(metrics)
    assert told["held_seconds_bucket", ("1.0",)] == 0
    assert told["held_seconds_bucket", ("2.5",)] == 1
    assert told["held_seconds_bucket", ("120.0",)] == 1
    assert told["held_seconds_bucket", ("+Inf",)] == 2
    assert (told["held_seconds_count", ()], told["held_seconds_sum", ()]) == (2, 302.5)
    assert (told["ttft_seconds_count", ()], told["ttft_seconds_sum", ()]) == (1, 3.5)
    assert told["first_token_added_seconds_bucket", ("0.001",)] == 1
    assert told["time_per_output_token_seconds_bucket", ("0.015",)] == 0
    assert told["time_per_output_token_seconds_bucket", ("0.02",)] == 1


@pytest.mark.parametrize("what", What)
def test_every_subject_may_be_told(what: What) -> None:
    """Most are for the log and for traces, and are not counted."""
    metrics = Metrics()
    metrics.observe(Observation(what, "ex-1"))
    counted = sum(value for (name, _), value in samples(metrics).items() if name.endswith("_total"))
    counts = {What.EXCHANGE_ENDED, What.ATTEMPT_ENDED, What.VIOLATION, What.REMARK, What.GIVE_UP}
    assert counted == (what in counts and what is not What.ATTEMPT_ENDED)


@pytest.mark.parametrize("kind", [*TokenKind, *OutcomeKind], ids=lambda kind: kind.value)
def test_every_kind_is_a_stable_token(kind: TokenKind | OutcomeKind) -> None:
    """They are values of labels."""
    assert is_stable_token(kind.value)


# --- bounds --------------------------------------------------------------------------------------


def test_a_label_is_a_stable_token_whatever_was_said() -> None:
    """Nothing that a caller or a provider could have written gets out."""
    metrics = Metrics()
    for code in ("A secret", "two\nlines", "x" * 129, 'quo"te'):
        metrics.observe(Observation(What.VIOLATION, "ex-1", code=code, filter="guard"))
    told = samples(metrics)
    assert told["verdicts_total", ("other", "guard")] == 4


def test_a_counter_has_so_many_series_and_counts_the_rest_as_one() -> None:
    """Those that are there go on; nothing is lost from the sum."""
    counts = Counts("things_total", "Things.", ("code",))
    for number in range(SERIES_MAX + 50):
        counts.add(f"code-{number}")
    counts.add("code-7", by=2)
    told = {each.labels["code"]: each.value for each in counts.family().samples}
    assert len(told) == SERIES_MAX + 1
    assert (told["other"], told["code-7"]) == (50, 3)
    assert sum(told.values()) == SERIES_MAX + 52


def test_a_bucket_holds_its_own_bound() -> None:
    """As `le` says."""
    durations = Durations("waits_seconds", "Waits.", (1.0, 2.0))
    for seconds in (1.0, 1.5, 2.0, 2.5, None):
        durations.add(seconds)
    told = {each.labels.get("le", each.name): each.value for each in durations.family().samples}
    assert told == {
        "1.0": 1, "2.0": 3, "+Inf": 4, "waits_seconds_count": 4, "waits_seconds_sum": 7.0
    }  # fmt: skip


# --- gauges --------------------------------------------------------------------------------------


def test_without_a_gateway_there_are_no_gauges() -> None:
    """But every counter and histogram is there from the start."""
    told = samples(Metrics())
    assert told["observations_dropped_total", ()] == 0
    assert told["ttft_seconds_count", ()] == 0
    assert ("exchanges_open", ()) not in told


def test_gauges_are_read_when_somebody_asks() -> None:
    """Off the gateway, as it is then."""
    gate, lost = gateway(ScriptedProvider(), records=Records()), [0]
    metrics = Metrics()
    metrics.watch(gate, lambda: lost[0])
    idle = samples(metrics)
    assert idle["ledger_bytes", ("retained",)] == idle["ledger_bytes", ("held",)] == 0
    assert idle["upstream_open", ()] == idle["leases_open", ()] == idle["exchanges_open", ()] == 0
    assert idle["config_generation", ()] == 1
    lost[0], gate.config_generation = 3, 2
    with gate.budget.reserve(1000):
        pass
    with gate.budget.reserve(600):
        assert gate.dispatch.providers.take_nowait(["p0"])
        busy = samples(metrics)
    assert busy["ledger_bytes", ("retained",)] == 600
    assert busy["ledger_bytes", ("peak",)] == 1000
    assert busy["upstream_open", ()] == 1
    assert busy["exchanges_waiting", ()] == 0
    assert busy["observations_dropped_total", ()] == 3
    assert busy["config_generation", ()] == 2


def test_what_the_door_refuses_is_counted_by_its_code() -> None:
    """It is no exchange."""
    metrics = Metrics()
    for _ in range(2):
        metrics.refused(refusal(503, "draining"))
    told = samples(metrics)
    assert told["refusals_total", ("draining", "503")] == 2
    assert not [name for name, _ in told if name.startswith("exchanges_total")]


def test_a_gateway_that_records_says_what_became_of_its_traces(tmp_path: Path) -> None:
    """And whether the disk takes them; one that does not record says that."""
    idle = Metrics()
    idle.watch(gateway(ScriptedProvider()), int)
    assert samples(idle)["recording", ()] == 0
    assert samples(idle)["traces_total", ("written",)] == 0
    recorder = Recorder(GatewayConfig(), b"k", Segments(tmp_path, 8_000), print)
    metrics = Metrics()
    metrics.watch(gateway(ScriptedProvider()), int, recorder)
    recorder.counts.written, recorder.counts.failed, recorder.counts.size = 3, 1, 4_000
    told = samples(metrics)
    assert (told["traces_total", ("written",)], told["traces_total", ("failed",)]) == (3, 1)
    assert (told["trace_bytes_total", ()], told["recording", ()]) == (4_000, 1)
    recorder.failing = True
    assert samples(metrics)["recording", ()] == 0


# --- the page ------------------------------------------------------------------------------------


def test_every_metric_says_what_it_is() -> None:
    """One family each, with a sentence; the process tells of itself as well."""
    metrics = Metrics()
    metrics.watch(gateway(ScriptedProvider()), int)
    text, content_type = metrics.now().text("")
    families = list(read_text(text.decode()))
    names = [each.name for each in families]
    assert len(set(names)) == len(names)
    assert all(each.documentation.endswith(".") for each in families if "tidegate" in each.name)
    assert "process_resident_memory_bytes" in names
    assert content_type.startswith("text/plain; version=")


def test_every_metric_stands_in_the_readme_with_its_labels() -> None:
    """And nothing stands there that is not exported."""
    metrics = Metrics()
    metrics.watch(gateway(ScriptedProvider()), int)
    metrics.observe(ended(Measured(spent=(Spent(TokenKind.REPORTED, 1),))))
    metrics.observe(attempt("complete", reason="stream_cut"))
    metrics.observe(Observation(What.REMARK, "ex-1", code="refusal", filter="refusal"))
    metrics.observe(Observation(What.GIVE_UP, "ex-1", code="attempts"))
    metrics.refused(refusal(401, "invalid_api_key"))
    text, _ = metrics.now().text("")
    exported = {
        each.name + "_total" * (each.type == "counter"): set(each.samples[0].labels) - {"le"}
        for each in read_text(text.decode())
        if each.name.startswith("tidegate_")
    }
    documented: dict[str, set[str]] = {}
    for line in README.read_text().splitlines():
        if line.startswith("| `tidegate_"):
            _, names, labels, *_ = line.split("|")
            for name in re.findall(r"`(\w+)`", names):
                documented[name] = set(re.findall(r"`(\w+)`", labels))
    assert documented == exported


def test_who_asks_for_openmetrics_gets_it() -> None:
    """As a scraper does; everyone else gets Prometheus' own text."""
    metrics = Metrics()
    metrics.observe(ended(Measured(1.0)))
    text, content_type = metrics.now().text("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    families = {each.name: each for each in read_openmetrics(text.decode())}  # type: ignore[no-untyped-call]
    assert families["tidegate_exchanges"].samples[0].value == 1
    assert families["tidegate_held_seconds"].type == "histogram"


def test_two_gateways_count_apart() -> None:
    """There is no registry of the process."""
    one, other = Metrics(), Metrics()
    one.observe(ended())
    key = ("exchanges_total", ("chat_sse", "normalized", "success", "default"))
    assert samples(one)[key] == 1
    assert key not in samples(other)
