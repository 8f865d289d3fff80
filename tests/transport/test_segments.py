"""Segments on disk: bounded, in order, and whole even where the disk is full."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from transport.segments import SEGMENTS_MIN, Segments


def sizes(folder: Path) -> list[int]:
    return [each.stat().st_size for each in sorted(folder.glob("tidegate-*.trace"))]


def test_traces_follow_each_other_in_one_segment(tmp_path: Path) -> None:
    """It is there after each write, readable for nobody else, and its folder is made."""
    segments = Segments(tmp_path / "deep" / "er", 8_000)
    segments.write(b"ab")
    segments.write(b"c")
    (file,) = (tmp_path / "deep" / "er").iterdir()
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"abc", 0o600)
    segments.close()
    segments.close()


def test_the_oldest_segments_go_when_all_are_too_large(tmp_path: Path) -> None:
    """What is there never exceeds the limit; files of others are left alone, a trace that somebody has put by among them."""
    others = [tmp_path / "notes.txt", tmp_path / "incident-4711.trace"]
    for each in others:
        each.write_bytes(b"x" * 5_000)
    segments = Segments(tmp_path, 100 * SEGMENTS_MIN)
    for number in range(40):
        segments.write(bytes([number]) * 60)
        assert sum(sizes(tmp_path)) <= 100 * SEGMENTS_MIN
    newest = max(tmp_path.glob("tidegate-*.trace"))
    assert newest.read_bytes() == bytes([39]) * 60
    assert all(each.exists() for each in others)
    segments.close()


def test_a_trace_larger_than_a_segment_has_one_of_its_own(tmp_path: Path) -> None:
    """Up to all of the space; beyond it, it is refused."""
    segments = Segments(tmp_path, 800)
    segments.write(b"x" * 50)
    segments.write(b"y" * 500)
    segments.write(b"z" * 50)
    assert sizes(tmp_path) == [50, 500, 50]
    with pytest.raises(OSError, match="larger"):
        segments.write(b"x" * 801)
    segments.close()


def test_a_write_that_fails_leaves_whole_traces_behind(tmp_path: Path) -> None:
    """A pipe with nobody at its other end stands for a full disk; the next write begins a new segment."""
    segments = Segments(tmp_path, 8_000)
    segments.write(b"ab")
    reader, writer = os.pipe()
    os.close(reader)
    assert segments._file is not None
    os.dup2(writer, segments._file.fileno())
    os.close(writer)
    with pytest.raises(BrokenPipeError):
        segments.write(b"cd")
    segments.write(b"ef")
    assert sizes(tmp_path) == [2, 2]
    segments.close()


def test_a_disk_that_takes_a_part_of_a_trace_has_none_of_it(tmp_path: Path) -> None:
    """The limit of a file's size stands for a disk on which a little is left: the write is short, and no error. Once there is room, all goes on."""
    segments, limits = Segments(tmp_path, 8_000), resource.getrlimit(resource.RLIMIT_FSIZE)
    segments.write(b"ab" * 50)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150, limits[1]))
    try:
        with pytest.raises(OSError, match="No space"):
            segments.write(b"cd" * 50)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    segments.write(b"ef" * 50)
    assert sizes(tmp_path) == [100, 100]
    segments.close()


def test_no_segment_is_written_over(tmp_path: Path) -> None:
    """Two of one process in one second, as after a quick restart in a container."""
    for _ in range(2):
        segments = Segments(tmp_path, 8_000)
        segments.write(b"ab")
        segments.close()
    assert sizes(tmp_path) == [2, 2]
