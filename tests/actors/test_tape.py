"""A tape takes down what there is room for, and says what is missing."""

from __future__ import annotations

from collections.abc import Callable

import trio
import trio.testing

from actors.tape import RECORD_BYTES, Tape
from gate.trace import Fact, Part, Ping, Read, Release, Term, digest_of

KEY = b"k"
TERM = Term(2, "success", "", 200, 1, "chat_sse", 0, b"")


def tape(
    *,
    bytes_max: int = 1_000,
    records_max: int = 100,
    take: Callable[[int], bool] = lambda size: True,
) -> Tape:
    """A tape that was begun on a clock of its own."""

    async def begin() -> Tape:
        await trio.lowlevel.checkpoint()
        return Tape(KEY, bytes_max=bytes_max, records_max=records_max, take=take)

    return trio.run(begin)


async def test_times_are_microseconds_since_the_beginning(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Rounded, so that what was recorded on a virtual clock is exact."""
    await trio.sleep(5)
    made = Tape(KEY)
    await trio.sleep(1.2345678)
    assert (made.now(), made.at(made.began + 0.5)) == (1_234_567, 500_000)


def test_content_beyond_the_limit_is_a_length_and_a_digest() -> None:
    """What comes later and is smaller still finds its room."""
    made = tape(bytes_max=5)
    made.part(1, b"abc", last=False)
    made.part(2, b"def", last=True)
    made.read(1, 3, 1, b"ghi")
    made.read(1, 4, 1, b"jk")
    assert made.records == [
        Part(1, 3, False, b"abc"),
        Part(2, 3, True, sha=digest_of([b"def"], KEY)),
        Read(1, 3, 1, 3, sha=digest_of([b"ghi"], KEY)),
        Read(1, 4, 1, 2, b"jk"),
    ]
    assert (made.truncated, made.dropped, made.taken_bytes) == (True, 0, 5 + 4 * RECORD_BYTES)


def test_records_beyond_the_limit_are_counted_and_the_terminal_is_kept() -> None:
    """How an exchange ended is worth more than any of its reads."""
    made = tape(records_max=1)
    for record in (Fact(0, "draw", 0.5), Fact(1, "draw", 0.5), TERM):
        made.add(record)
    assert made.records == [Fact(0, "draw", 0.5), TERM]
    assert (made.truncated, made.dropped) == (True, 1)


def test_memory_that_all_tapes_share_may_be_used_up() -> None:
    """Whoever counts it is asked for each piece of content and each record. Without room the first is a digest, the other is dropped, but for the terminal."""
    asked: list[int] = []

    def take(size: int) -> bool:
        asked.append(size)
        return len(asked) in {1, 2, 4}

    made = tape(take=take)
    made.read(1, 0, 0, b"abc")
    made.read(1, 0, 0, b"de")
    made.pinged(1)
    made.add(TERM)
    assert asked == [3, RECORD_BYTES, 2, RECORD_BYTES, RECORD_BYTES, RECORD_BYTES]
    assert made.records == [
        Read(1, 0, 0, 3, b"abc"),
        Read(1, 0, 0, 2, sha=digest_of([b"de"], KEY)),
        TERM,
    ]
    assert (made.taken_bytes, made.truncated, made.dropped) == (3 + 2 * RECORD_BYTES, True, 1)


def test_the_response_is_a_rolling_digest_and_comments_are_no_part_of_it() -> None:
    """Two recordings of one output have the same digests, wherever it was cut into writes."""
    made = tape()
    made.wrote(1, b"ab")
    made.pinged(2)
    made.wrote(3, b"")
    made.wrote(4, b"c")
    assert made.records == [
        Release(1, 2, 2, digest_of([b"ab"], KEY)),
        Ping(2),
        Release(4, 3, 1, digest_of([b"abc"], KEY)),
    ]
    assert (made.written, made.output_digest()) == (3, digest_of([b"abc"], KEY))


def test_a_body_that_is_too_large_for_the_loop_is_not_looked_at() -> None:
    """Then nobody could tell on replay which attempt an answer belongs to."""
    made = tape(bytes_max=3)
    assert made.body_digest([b"ab", memoryview(b"c")], 3) == digest_of([b"abc"], KEY)
    assert not made.truncated
    assert made.body_digest([b"abcd"], 4) == b""
    assert made.truncated


def test_a_tape_shows_no_content() -> None:
    """Its repr may end up in a log."""
    made = tape()
    made.read(1, 0, 0, b"abc")
    assert repr(made) == "Tape(1 records, 3 bytes)"
