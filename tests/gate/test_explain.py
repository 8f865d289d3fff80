"""What a caller is told of its exchange: lines from decisions, and nothing else."""

from __future__ import annotations

import pytest

from gate.config import HoldConfig
from gate.continuable import Continuable
from gate.events import Frame, TextDelta, ToolDelta
from gate.explain import ENTRIES_MAX, LINES_MAX, Explanation, Held, held_by, is_comment
from gate.failure import Failure, FailureKind
from gate.filters.contract import Filter, Passed, Verdict, Violated
from gate.judging import Judge
from gate.observe import Observation, What

ROUTE = ": tidegate exchange seconds=0.000 route=r hold=live opening_chars=1 opening_ms=0 tail_chars=0 tail_ms=0"


def made() -> Explanation:
    """One that has told its first line."""
    explanation = Explanation("r", HoldConfig())
    assert lines(explanation) == [ROUTE]
    return explanation


def lines(explanation: Explanation, now: float = 0.0, *, waiting: bool = False) -> list[str]:
    """The comments that are new, each a block by itself."""
    told = explanation.told(now, waiting=waiting)
    if told is None:
        return []
    assert not told.headers
    assert told.comments.endswith(b"\n\n")
    return told.comments.decode().removesuffix("\n\n").split("\n\n")


def headers(explanation: Explanation) -> dict[str, str]:
    """The header fields."""
    told = explanation.told(0.0, head=True)
    assert told is not None
    return {name.decode(): value.decode() for name, value in told.headers}


def seen(what: What, **fields: object) -> Observation:
    """One decision."""
    return Observation(what, "ex-1", **fields)  # type: ignore[arg-type]


# --- decisions -----------------------------------------------------------------------------------


def test_a_decision_is_a_line_with_the_fields_that_it_has() -> None:
    """Named and in the order of the log; what was told once is not told again."""
    explanation = made()
    explanation.observe(
        seen(What.ATTEMPT_ENDED, seconds=0.4121, attempt=1, code="stream_cut", provider="p0", directive="exact", reason="")
    )  # fmt: skip
    explanation.observe(seen(What.VIOLATION, attempt=1, code="pattern_match", filter=""))
    assert lines(explanation) == [
        ": tidegate attempt_ended seconds=0.412 attempt=1 code=stream_cut provider=p0 directive=exact",
        ": tidegate violation seconds=0.000 attempt=1 code=pattern_match",
    ]
    assert explanation.told(1.0) is None


def test_what_is_for_operators_is_not_told() -> None:
    """What filters that only observe have found, and the exchange's own beginning and end."""
    explanation = made()
    for what in (What.REMARK, What.EXCHANGE_STARTED, What.EXCHANGE_ENDED, What.CRASHED):
        explanation.observe(seen(what, code="refusal"))
    assert lines(explanation) == []


def test_the_header_fields_sum_up_what_the_lines_say() -> None:
    """Every attempt with its plan and how it ended, as far as it has; and what was held."""
    explanation = made()
    assert headers(explanation) == {
        "x-tidegate-route": "route=r hold=live opening_chars=1 opening_ms=0 tail_chars=0 tail_ms=0"
    }
    explanation.observe(seen(What.ATTEMPT_STARTED, attempt=1, provider="p0"))
    explanation.observe(seen(What.VIOLATION, attempt=1, code="json_invalid", filter="judge"))
    explanation.observe(seen(What.ATTEMPT_ENDED, attempt=1, code="output_invalid", provider="p0"))
    explanation.observe(seen(What.ATTEMPT_ENDED, attempt=2, code="queue_timeout"))
    explanation.observe(seen(What.PLAN, attempt=1, code="schema"))
    explanation.observe(seen(What.ATTEMPT_STARTED, attempt=3, provider="p1"))
    explanation.hold(Held("opening", 1, 10), released=0, now=0.0)
    explanation.hold(None, released=1, now=0.25)
    told = headers(explanation)
    assert told["x-tidegate-plans"] == (
        "attempt=1 directive=exact provider=p0 filter=judge code=output_invalid, attempt=3 directive=schema provider=p1"
    )
    assert told["x-tidegate-held"] == "why=opening frames=1 bytes=10 for=0.250 then=released"


def test_a_header_field_has_the_newest_entries() -> None:
    """Clients take so much header and no more."""
    explanation = made()
    for number in range(1, 2 * ENTRIES_MAX):
        explanation.observe(seen(What.ATTEMPT_STARTED, attempt=number, provider="p" * 128))
        explanation.hold(Held("opening", 1, 1), released=number, now=0.0)
        explanation.hold(None, released=number, now=0.0)
    told = headers(explanation)
    entries = told["x-tidegate-plans"].split(", ")
    assert [entry.split()[0] for entry in entries] == [f"attempt={n}" for n in range(8, 16)]
    assert len(told["x-tidegate-held"].split(", ")) == ENTRIES_MAX
    assert sum(map(len, told.values())) < 4096


def test_an_exchange_has_so_many_lines_and_no_more() -> None:
    """The last one says that there would be more."""
    explanation = Explanation("r", HoldConfig())
    for number in range(2 * LINES_MAX):
        explanation.observe(seen(What.ATTEMPT_STARTED, attempt=1, provider=f"p{number}"))
    told = lines(explanation)
    assert len(told) == LINES_MAX
    assert told[-1] == ": tidegate more"
    assert "more" not in told[-2]
    assert repr(explanation) == f"Explanation({2 * LINES_MAX + 1} lines, 0 of them not told)"


@pytest.mark.parametrize(
    ("data", "ours"),
    [
        (b": keep-alive\n\n", True),
        (b": tidegate more\n\n", True),
        (b": tide\n\n", False),
        (b"data: : tidegate \n\n", False),
        (b"", False),
    ],
)
def test_a_comment_of_ours_is_known(data: bytes, *, ours: bool) -> None:
    """It is no part of an answer, whoever writes down what that was."""
    assert is_comment(data) is ours


# --- what is held --------------------------------------------------------------------------------


def test_a_hold_is_told_when_it_is_over() -> None:
    """With the most that was held, for how long, and what became of it; one that goes on for another reason is told as held."""
    explanation = made()
    explanation.hold(Held("opening", 1, 10), released=0, now=1.0)
    explanation.hold(Held("opening", 3, 40), released=0, now=1.5)
    assert lines(explanation) == []
    explanation.hold(Held("filter:a+b", 2, 30), released=1, now=2.0)
    explanation.hold(None, released=3, now=2.5)
    explanation.hold(None, released=3, now=2.6)
    explanation.hold(Held("mending", 0, 0), released=3, now=3.0)
    explanation.hold(None, released=3, now=3.0)
    assert lines(explanation) == [
        ": tidegate held seconds=2.000 why=opening frames=3 bytes=40 for=1.000 then=held",
        ": tidegate held seconds=2.500 why=filter:a+b frames=2 bytes=30 for=0.500 then=released",
        ": tidegate held seconds=3.000 why=mending for=0.000 then=dropped",
    ]


def test_what_is_held_just_now_is_told_where_the_stream_is_silent() -> None:
    """It goes with a comment that would have gone anyway."""
    explanation = made()
    assert lines(explanation, 1.0, waiting=True) == []
    explanation.hold(Held("buffered", 3, 40), released=0, now=1.0)
    assert lines(explanation, 16.0, waiting=True) == [
        ": tidegate held seconds=16.000 why=buffered frames=3 bytes=40 for=15.000 then=held"
    ]
    assert lines(explanation, 16.0) == []


@pytest.mark.parametrize("joined", [What.SEAM, What.PLAN])
def test_what_waits_for_a_continuation_is_held_by_the_seam(joined: What) -> None:
    """From the plan on, until the seam is judged or the plan is another."""
    explanation = made()
    explanation.observe(seen(What.PLAN, attempt=1, code="continuation"))
    explanation.hold(Held("tail", 1, 10), released=5, now=0.0)
    explanation.observe(seen(joined, attempt=2, code="exact"))
    explanation.hold(Held("tail", 1, 10), released=5, now=1.0)
    explanation.hold(None, released=6, now=2.0)
    assert [line for line in lines(explanation) if " held " in line] == [
        ": tidegate held seconds=1.000 why=seam frames=1 bytes=10 for=1.000 then=held",
        ": tidegate held seconds=2.000 why=tail frames=1 bytes=10 for=1.000 then=released",
    ]


class Holding:
    """A filter that has passed so much and no more."""

    def __init__(self, name: str, position: int, *, gating: bool = True) -> None:
        self.name = name
        self.gating = gating
        self.notice: str | None = None
        self._position = position

    def observe(self, frames: object, position: int) -> Verdict:
        return Passed(self._position)

    def finish(self, position: int, facts: object) -> Verdict:
        return Passed(position)


class Condemning(Holding):
    """One that objects to the frame at its position, once that is there."""

    def observe(self, frames: object, position: int) -> Verdict:
        if position < self._position:
            return Passed(self._position)
        return Violated(self._position, "bad", Failure(FailureKind.DENIED), seen=self._position)


def frame(said: str) -> Frame:
    """One chunk of text."""
    data = b'{"choices":[{"index":0,"delta":{"role":"assistant","content":"%b"}}]}' % said.encode()
    return Frame(data, (TextDelta(0, said),), 10)


def why(
    hold: HoldConfig, *filters: Filter, said: tuple[str, ...] = ("a", "b"), streams: bool = True
) -> Held | None:
    """What is held after these frames."""
    judge = Judge(hold, streams=streams, held_bytes_max=1000, make_filters=lambda: filters)
    judge.take([frame(each) for each in said], 0.0)
    return held_by(judge, hold, streams=streams)


WINDOW = HoldConfig(mode="window", tail_chars=1)


@pytest.mark.parametrize(
    ("hold", "filters", "streams", "found"),
    [
        (HoldConfig(), [], True, None),
        (HoldConfig(opening_chars=9), [], True, Held("opening", 2, 20)),
        (HoldConfig(mode="buffered"), [], True, Held("buffered", 2, 20)),
        (HoldConfig(mode="buffered"), [Holding("a", 0)], True, Held("buffered", 2, 20)),
        (HoldConfig(), [], False, Held("json", 2, 20)),
        (WINDOW, [], True, Held("tail", 1, 10)),
        (WINDOW, [Holding("a", 1)], True, Held("filter:a", 1, 10)),
        (HoldConfig(), [Holding("a", 1)], True, Held("filter:a", 1, 10)),
        (HoldConfig(opening_chars=2), [Holding("a", 1), Holding("b", 2)], True, Held("opening+filter:a", 2, 20)),
        (HoldConfig(), [Holding("b", 0), Holding("a", 0)], True, Held("filter:a+b", 2, 20)),
        (HoldConfig(), [Holding("a", 0, gating=False)], True, None),
        (HoldConfig(), [Holding("b", 0), Holding("a", 1)], True, Held("filter:b", 2, 20)),
    ],
)  # fmt: skip
def test_the_oldest_frame_says_why(
    hold: HoldConfig, filters: list[Filter], found: Held | None, *, streams: bool
) -> None:
    """The policy that holds everything, then the filters that have not passed it, then the rest of the policy."""
    assert why(hold, *filters, streams=streams) == found


def test_a_frame_that_is_condemned_is_held_by_who_condemned_it() -> None:
    """Behind what has left, and before anything has."""
    hold = HoldConfig()
    condemning = Condemning("a", 0)
    judge = Judge(hold, streams=True, held_bytes_max=1000, make_filters=lambda: [condemning])
    judge.take([frame("x")], 0.0)
    assert held_by(judge, hold, streams=True) == Held("filter:a", 1, 10)
    judge = Judge(hold, streams=True, held_bytes_max=1000, make_filters=lambda: [Condemning("a", 1)])  # fmt: skip
    judge.take([frame("x")], 0.0)
    judge.take([frame("y")], 0.0)
    assert held_by(judge, hold, streams=True) == Held("filter:a", 1, 10)


def test_what_mending_holds_is_no_frame_yet() -> None:
    """The beginning of a call waits for its end."""
    judge = Judge(HoldConfig(), streams=True, held_bytes_max=1000, make_filters=lambda: ())
    delta = b'{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{"}}]}'
    event = ToolDelta(0, 0, "c", "f", "{")
    data = b'{"choices":[{"index":0,"delta":%b}]}' % delta
    judge.take([Frame(data, (event,), len(data), mend=64)], 0.0)
    assert held_by(judge, HoldConfig(), streams=True) == Held("mending", 0, 0)


def test_a_frame_behind_which_nobody_could_go_on_is_held_for_that() -> None:
    """It ends in white space, and the answer may have to go on at another attempt."""
    hold = HoldConfig()
    continuable = Continuable({}, ())
    judge = Judge(
        hold, streams=True, held_bytes_max=1000, continuable=continuable, make_filters=lambda: ()
    )
    judge.take([frame("a"), frame("b ")], 0.0)
    assert held_by(judge, hold, streams=True) == Held("clean_end", 1, 10)
