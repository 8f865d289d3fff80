"""One case is told with what it struck, in every ring; one that strikes nothing is never taken for a success."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.chaos.cases import Case, CaseInvalid, parse_case
from ops.chaos.run import settled
from ops.chaos.sched import ScheduleInvalid
from ops.chaos.single import checked, play_once, read_corpus, replayed

CORPUS = Path(__file__).parent / "corpus.txt"


@pytest.mark.parametrize(
    "line",
    [
        "healthy --cancel req:60 --raise port:3",
        "rebuilds --cancel req:20",
        pytest.param("json --ring 2 --cancel req:40", marks=pytest.mark.slow),
        pytest.param("json --ring 3 --cancel half:50", marks=pytest.mark.slow),
    ],
)
def test_a_case_is_played_again_and_told(line: str) -> None:
    """As often as it is asked for."""
    with settled():
        played = play_once(checked(parse_case(line)))
    assert played.lines
    assert (played.findings, played.unstruck, list(played.lost())) == ([], [], [])
    tally = replayed(parse_case(line))
    assert (tally.points, tally.inert, tally.failures) == (1, 0, [])


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("healthy --cancel req:999999", "--cancel req:999999"),
        ("healthy --cancel judge:20", "--cancel judge:20"),
        ("healthy --cancel req:20 --raise port:900", "--raise port:900"),
        ("healthy --raise exchange:2", "--raise exchange:2"),
        ("rebuilds --cancel req:900", "--cancel req:900"),
        pytest.param(
            "json --ring 2 --cancel req:9000", "--cancel req:9000", marks=pytest.mark.slow
        ),
    ],
)
def test_a_fault_that_strikes_nothing_is_told_and_fails_a_corpus(line: str, fault: str) -> None:
    """Too late, at somebody who does not stand there, behind the last call, or where it cannot be reached."""
    case = checked(parse_case(line))
    with settled():
        played = play_once(case)
        [failure] = replayed(case).failures
    assert [str(each) for each in played.unstruck] == [fault]
    [told] = played.lost()
    assert told.startswith(f"{fault} struck nothing: its run has ")
    assert failure.findings == (f"inert {told}; aim it at that place again",)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["caller", "reset", "half", "provider"])
def test_a_moment_on_sockets_may_come_too_late(who: str) -> None:
    """Which is told, and no failure: time is real there. A scenario that waits is struck."""
    late = parse_case(f"json --ring 3 --cancel {who}:20000")
    assert play_once(late).unstruck == [*late.faults]
    tally = replayed(late)
    assert (tally.inert, tally.failures) == (1, [])
    assert play_once(parse_case(f"provider-stalls --ring 3 --cancel {who}:500")).unstruck == []


@pytest.mark.slow
def test_a_stream_that_has_ended_can_not_be_reset() -> None:
    """Though its connection is there."""
    over = parse_case("never-reads-http2 --ring 3 --cancel reset:500")
    assert play_once(over).unstruck == []
    late = parse_case("healthy-http2 --ring 3 --cancel reset:20000")
    assert play_once(late).unstruck == [*late.faults]


@pytest.mark.parametrize("case", read_corpus(CORPUS), ids=str)
def test_what_was_found_once_is_not_found_again(case: Case) -> None:
    """The corpus is run first, for ever, each line in its own ring, and each still strikes."""
    with settled():
        assert replayed(case).failures == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nothing", "no scenario 'nothing'; there are healthy, "),
        ("nothing --ring 2", "no scenario 'nothing' in ring 2"),
        ("nowhere.jsonl@x", "nowhere.jsonl"),
        ("healthy --schedule lifo", "'lifo' is none of"),
        ("rebuilds --cancel caller:5", "rebuilds has no caller"),
        ("rebuilds --cancel drain:5", "rebuilds has no caller"),
        ("rebuilds --raise port:5", "rebuilds has no caller"),
    ],
)
def test_what_can_not_be_played_is_refused(line: str, reason: str) -> None:
    """Before anything runs."""
    with pytest.raises((CaseInvalid, ScheduleInvalid), match=reason):
        checked(parse_case(line))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("gone --cancel req:5", "no scenario 'gone'"),
        ("healthy --cancel 'req:5", "No closing quotation"),
        ("healthy --schedule lifo --cancel req:5", "'lifo' is none of"),
    ],
)
def test_a_corpus_says_which_of_its_lines_is_wrong(line: str, reason: str, tmp_path: Path) -> None:
    """A scenario that was renamed is not passed over."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(f"# a remark\n\n{line}\n")
    with pytest.raises(CaseInvalid, match=f"corpus.txt, line 3: .*{reason}"):
        read_corpus(corpus)


def test_a_corpus_is_text(tmp_path: Path) -> None:
    """And not whatever file was named by mistake."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CaseInvalid, match="corpus"):
        read_corpus(corpus)
