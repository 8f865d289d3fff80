"""A body in the making: small pieces become one, large ones stay where they are."""

from __future__ import annotations

import json

from gate.over_chat_pieces import COPIED_BYTES_MAX, JOINED_BYTES, WRITTEN_MAX, Listed, Output
from gate.splice import scan_members
from tests.translating import written

LARGE = b'"' + b"x" * COPIED_BYTES_MAX + b'"'
BODY = b'{"a":1,"b":' + LARGE + b',"c":2}'
SPAN = BODY.index(LARGE), BODY.index(LARGE) + len(LARGE)


def test_members_stand_where_it_says() -> None:
    """The caller's own as well as ours."""
    [first, *_] = scan_members(BODY, depth_max=9)
    output = Output(BODY)
    output.member("x", b"true")
    output.copy(first)
    output.member("y", b"[", SPAN, b",", SPAN, b"]")
    output.close()
    assert output.kept < COPIED_BYTES_MAX < output.size
    assert repr(output) == f"Output({output.size} bytes, {output.kept} of them here)"
    made = written(output, BODY)
    assert list(scan_members(made, depth_max=9)) == output.members
    assert json.loads(made) == {"x": True, "a": 1, "y": ["x" * COPIED_BYTES_MAX] * 2}
    assert list(output.taken()) == []


def test_a_copied_member_may_come_first() -> None:
    """Or be the only one."""
    output = Output(BODY)
    output.copy(scan_members(BODY, depth_max=9)[2])
    output.close()
    assert written(output, BODY) == b'{"c":2}'


def test_large_pieces_may_follow_each_other() -> None:
    """Nothing small stands between them."""
    output = Output(BODY)
    output.put(SPAN, SPAN)
    assert list(output.taken()) == [SPAN, SPAN]


def test_many_small_pieces_become_few() -> None:
    """What is kept costs about its bytes."""
    output, listed = Output(BODY), Listed()
    assert not listed
    for _ in range(JOINED_BYTES // 4):
        listed.add(b"1234", b"567")
    assert listed
    assert sum(1 for _ in output.large("x", listed.closed())) == 3 * JOINED_BYTES // 4 // WRITTEN_MAX  # fmt: skip
    output.close()
    pieces = list(output.taken())
    assert len(pieces) == 3
    assert sum(map(len, pieces)) == output.kept == output.size
    assert Listed().closed() == [b"[", b"]"]
