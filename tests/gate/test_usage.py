"""Usage: what several reports of one attempt come to, and what several attempts at one answer come to."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.usage import Share, joined_usage, kept_shares, merge_usage


def report(prompt: object, completion: object, **more: object) -> bytes:
    """A usage object as a provider gives it."""
    return json.dumps({"prompt_tokens": prompt, "completion_tokens": completion, **more}).encode()


# --- one attempt ---------------------------------------------------------------------------------


def test_usage_is_merged_member_by_member_and_the_later_value_wins() -> None:
    """Running totals are not added up, zero is a value, null says nothing, inner objects are merged too."""
    merged = merge_usage([b'{"a":5,"b":1,"d":{"x":1,"y":2},"n":null}', b'{"a":7,"b":0,"c":null,"d":{"y":3}}', b'{"b":null,"d":null}', b"[]"])  # fmt: skip
    assert json.loads(merged) == {"a": 7, "b": 0, "c": None, "d": {"x": 1, "y": 3}, "n": None}
    assert merge_usage([]) == b""


def test_an_inner_object_and_a_plain_value_replace_each_other() -> None:
    """There is nothing to merge then."""
    assert json.loads(merge_usage([b'{"d":{"x":1}}', b'{"d":5}'])) == {"d": 5}
    assert json.loads(merge_usage([b'{"d":5}', b'{"d":{"x":1}}'])) == {"d": {"x": 1}}


@pytest.mark.parametrize("reports", [[b"{}"], [b"[]"], [b"oops", b"null"]])
def test_reports_that_say_nothing_are_none(reports: list[bytes]) -> None:
    """Empty, or no objects."""
    assert merge_usage(reports) == b""


# --- one share -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reported", "prompt", "completion"),
    [
        (report(11, 5), 11, 5),
        (report(11, 0), 11, 3),
        (report(0, 2), 0, 2),
        (report(-4, -2), 0, 3),
        (report("11", 5.5), 0, 3),
        (report(True, True), 0, 3),
        (report(None, None), 0, 3),
        (b'{"total_tokens":9}', 0, 3),
        (b"oops", 0, 3),
        (b"[1]", 0, 3),
        (b"", 0, 3),
    ],
)
def test_a_share_is_what_was_reported_or_one_token_for_each_frame(
    reported: bytes, prompt: int, completion: int
) -> None:
    """Numbers that can't be are no report; about a prompt nothing is guessed."""
    share = Share(reported, 3)
    assert (share.prompt_tokens, share.completion_tokens) == (prompt, completion)


# --- one answer ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("earlier", "last", "joined"),
    [
        ([Share(report(11, 5), 4)], report(16, 2), (11, 7)),
        ([Share(b"", 4)], report(16, 2), (12, 6)),
        ([Share(b"", 4)], report(3, 2), (0, 6)),
        ([Share(b"", 4)], report(0, 0), (0, 4)),
        ([Share(report(11, 0), 4)], report(16, 2), (11, 6)),
        ([Share(report(0, 9), 4)], report(16, 2), (7, 11)),
        ([Share(report(11, 5), 4), Share(report(16, 3), 9)], report(19, 2), (11, 10)),
        ([Share(b"", 4), Share(report(15, 3), 9)], report(19, 2), (12, 9)),
        ([Share(report(11, 5), 4), Share(b"", 9)], report(25, 2), (11, 16)),
    ],
)
def test_the_prompt_counts_once_and_everything_produced_is_added_up(
    earlier: list[Share], last: bytes, joined: tuple[int, int]
) -> None:
    """The first attempt's prompt; where it told none, the last one's less the answer that stood in it."""
    prompt, completion = joined
    assert json.loads(joined_usage(earlier, last)) == {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def test_without_a_last_report_there_is_none() -> None:
    """The provider that ended the answer gives no usage, so the caller gets none."""
    assert joined_usage([Share(report(11, 5), 4)], b"") == b""


def test_details_are_left_out() -> None:
    """Nobody can say what they come to."""
    last = report(16, 2, total_tokens=18, completion_tokens_details={"reasoning_tokens": 1}, cost=3)
    first = Share(report(11, 5, prompt_tokens_details={"cached_tokens": 8}), 4)
    assert set(json.loads(joined_usage([first], last))) == {
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
    }


shares = st.builds(
    Share,
    st.just(b"") | st.builds(report, st.integers(0, 99), st.integers(0, 99)),
    st.integers(0, 99),
)


@given(st.lists(shares, min_size=1, max_size=4), st.integers(0, 400), st.integers(0, 99))
def test_no_share_is_lost_and_the_total_is_the_sum(
    earlier: list[Share], prompt: int, completion: int
) -> None:
    """Over any number of attempts, reported or not."""
    value = json.loads(joined_usage(earlier, report(prompt, completion)))
    assert value["completion_tokens"] == completion + sum(
        share.completion_tokens for share in earlier
    )
    assert value["total_tokens"] == value["prompt_tokens"] + value["completion_tokens"]
    assert value["prompt_tokens"] >= 0


def test_of_what_was_given_up_nothing_is_left() -> None:
    """The last share first, and each for what is kept of it."""
    shares = [Share(b"1", 4), Share(b"2", 3), Share(b"3", 9)]
    assert kept_shares(shares, 6) == [Share(b"1", 4), Share(b"2", 2)]
    assert kept_shares(shares, 16) == shares
    assert kept_shares(shares, 0) == []
