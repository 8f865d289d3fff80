"""What callers get in each framing is what is written down, byte for byte and at the same times. How the pages are written anew stands in `exchanges.py`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from tests.golden.drawing import bytes_of, lines_of, received
from tests.golden.exchanges import HERE, SITUATIONS, Golden, goldens, path_of, played

ALL: Final = goldens()
# A body that leaves when it is whole has no error behind its first byte.
WHOLE: Final = {"chat_json", "responses_json", "responses_over_chat_json", "chat_tunnel_json", "responses_tunnel_json", "completions_tunnel_json", "relay_json"}  # fmt: skip


@functools.cache
def written(framing: str) -> Mapping[str, Sequence[str]]:
    """A file's pages, by title."""
    lines = path_of(framing).read_text(encoding="utf-8").split("\n")
    starts = [at for at, line in enumerate(lines) if line.startswith("== ")]
    ends = [*(at - 2 for at in starts[1:]), len(lines) - 1]
    return {lines[a]: lines[a:b] for a, b in zip(starts, ends, strict=True)}


@pytest.mark.parametrize("golden", ALL, ids=lambda each: each.title.removeprefix("== "))
def test_a_caller_gets_what_is_written_down(golden: Golden) -> None:
    """The whole page, and by itself every byte of the body."""
    page = played(golden)
    known = written(golden.framing)[golden.title]
    assert received(page) == received(known)
    assert page == known


def test_every_framing_has_every_situation() -> None:
    """And no page is left that nothing plays."""
    situations: dict[str, set[str]] = {}
    for each in ALL:
        situations.setdefault(each.framing, set()).add(each.situation)
    for framing, found in situations.items():
        needed = set(SITUATIONS) - ({"error after commit"} if framing in WHOLE else set())
        assert needed <= found, framing
    assert {path.stem for path in HERE.glob("*.txt")} == set(situations)
    titles = {title for framing in situations for title in written(framing)}
    assert titles == {each.title for each in ALL}


@pytest.mark.parametrize("data", [b"", b"a", b"a\n", b"\n\n", b"a\n\nb", b"| \\\n", b"\x00\xff\n", "é\u2028".encode(), b"a \n"])  # fmt: skip
def test_a_page_loses_no_byte(data: bytes) -> None:
    """What was drawn can be read back."""
    lines = list(lines_of(data))
    assert bytes_of(lines) == data
    assert not any("\n" in line for line in lines)


def test_a_page_that_differs_in_one_byte_is_noticed() -> None:
    """Where something goes wrong."""
    golden = ALL[0]
    page = played(golden)
    at = next(n for n, line in enumerate(page) if line.startswith("at ")) + 1
    assert received([*page[:at], page[at] + "x", *page[at + 1 :]]) != received(page)
