"""Whatever the order of a route's filters and however the same bytes are cut into reads: the same verdict, by the same filter, and the same answer to the caller."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gate.config import HoldConfig
from tests.e2e.judged_answers import FILTERS, TABLES, Asked, asked, streams
from tests.pipeline import Passed, run

HOLDS = (
    HoldConfig(),
    HoldConfig(opening_chars=40),
    HoldConfig(mode="window", tail_chars=50),
    HoldConfig(mode="buffered"),
)


def judged(
    reads: list[bytes], filters: list[str], request: Asked, hold: HoldConfig, *, stream: bool
) -> Passed:
    """One attempt under these filters."""
    return run(
        reads,
        stream=stream,
        choices=request.choices,
        context=request.context,
        filters=filters,
        tables=TABLES,
        hold=hold,
        think_tags=request.think_tags,
    )


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The same bytes in few reads or many, anywhere."""
    most = draw(st.sampled_from([0, 3, 40]))
    ends = draw(st.sets(st.integers(1, len(data) - 1), max_size=most))
    return [data[a:b] for a, b in itertools.pairwise([0, *sorted(ends), len(data)])]


@given(data=st.data(), request=asked, hold=st.sampled_from(HOLDS), stream=st.booleans())
def test_neither_the_order_of_filters_nor_the_cut_of_bytes_changes_what_is_judged(
    data: st.DataObject, request: Asked, hold: HoldConfig, *, stream: bool
) -> None:
    """Event by event under the filters in one order, against any reads under any order. Of a condemned answer what had left is the beginning of the same bytes."""
    events = data.draw(streams(request.choices))
    reads = data.draw(cuts(b"".join(events)))
    filters = data.draw(st.permutations(FILTERS))
    one = judged(list(events), list(FILTERS), request, hold, stream=stream)
    other = judged(reads, filters, request, hold, stream=stream)
    assert (other.failure, other.judged_by) == (one.failure, one.judged_by)
    assert other.notes == one.notes
    if one.failure is None:
        assert other.body == one.body
        assert other.remarks == one.remarks
    else:
        shorter, longer = sorted((one.body, other.body), key=len)
        assert longer.startswith(shorter)
