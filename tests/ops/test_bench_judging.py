"""Judging by itself: the answers, and what would be no measurement."""

from __future__ import annotations

from gate.reader import ChatStreamReader
from ops.bench_answer import event_of
from ops.bench_judging import LISTS, Judging, answer_of, judge_once, judging


def test_an_answer_has_the_text_that_was_asked_for() -> None:
    """In reads of a socket's size, and so many events."""
    answer, events = answer_of(20)
    data = b"".join(answer)
    assert data.count(b"data: ") == events
    assert [len(each) for each in answer[:-1]] == [65_536] * (len(answer) - 1)
    content = sum(len(part.partition(b'"')[0]) for part in data.split(b'"content":"')[1:])
    assert 20 * 1024 <= content < 20 * 1024 + 16


def test_every_list_of_filters_judges_and_releases_it_all() -> None:
    """CPU time is spent under each."""
    answer, _ = answer_of(4)
    done = judge_once(answer)
    assert done.keys() == LISTS.keys()
    assert [each.wrong for each in done.values()] == [""] * 3
    assert all(each.seconds > 0 for each in done.values())


def test_an_answer_that_is_condemned_or_held_is_no_measurement() -> None:
    """The secrets filter finds one; a released half is not the whole."""
    found = judge_once([event_of(b'{"content":" AKIAABCDEFGHIJKLMNOP is it"}')])
    assert found["default filters"].wrong == ""
    assert found["default and patterns"].wrong.startswith("condemned: ")
    half = Judging(())
    half.take(
        ChatStreamReader(choices=1, event_bytes_max=1 << 16)
        .feed(event_of(b'{"content":"a"}'))
        .frames
    )
    half._given += 1
    assert half.wrong == "1 of 2 frames were released"


def test_each_size_is_compared_with_the_first() -> None:
    """A row for each under each list."""
    result = judging([1, 2], rounds=2)
    assert [row.subject for row in result.rows] == [
        f"{kib} KiB, {label}" for label in LISTS for kib in (1, 2)
    ]
    assert result.wrong == ()
    for row in result.rows:
        assert [each.name for each in row.figures] == ["CPU ms", "µs/KiB", "µs/event", "x 1 KiB"]
        assert all(len(each.samples) == 2 for each in row.figures)
    assert result.rows[0].figures[3].samples == (1.0, 1.0)
