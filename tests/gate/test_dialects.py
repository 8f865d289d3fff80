"""Dialects: what each provider is told, as it stands in the servers' own references, and nothing else of the request."""

from __future__ import annotations

import json
from typing import Any, Final, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.config import Prefill
from gate.dialects import CEILINGS, can_continue, continuation_item, flags, lowered

CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
DIALECTS: Final[tuple[Prefill, ...]] = get_args(Prefill)
SO_FAR: Final = 'He said: "a\\b",\n\u00e4\U0001f6a2 '

# Each dialect that can be told at an endpoint: what the last item holds beside the text, and what stands beside the items.
CAN: Final[dict[tuple[Prefill, str], tuple[dict[str, Any], dict[str, Any]]]] = {
    ("vllm", CHAT): ({}, {"continue_final_message": True, "add_generation_prompt": False}),
    ("prefix", CHAT): ({"prefix": True}, {}),
    ("partial", CHAT): ({"partial": True}, {}),
    ("assistant", CHAT): ({}, {}),
    ("vllm", RESPONSES): ({"type": "message", "status": "incomplete"}, {}),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES])
def test_a_dialect_can_be_told_where_the_server_knows_it(dialect: Prefill, endpoint: str) -> None:
    """`none` nowhere, the marks in a message only where there are messages."""
    assert can_continue(dialect, endpoint) is ((dialect, endpoint) in CAN)


@pytest.mark.parametrize(("dialect", "endpoint"), CAN)
def test_the_last_item_holds_the_answer_so_far_and_the_dialects_mark(
    dialect: Prefill, endpoint: str
) -> None:
    """Character by character, white space at its end too."""
    marks, _ = CAN[dialect, endpoint]
    content: object = SO_FAR
    if endpoint == RESPONSES:
        content = [{"type": "output_text", "text": SO_FAR, "annotations": []}]
    item = json.loads(continuation_item(dialect, endpoint, SO_FAR))
    assert item == {"role": "assistant", "content": content, **marks}


@pytest.mark.parametrize(("dialect", "endpoint"), CAN)
def test_only_one_dialect_says_anything_beside_the_items(dialect: Prefill, endpoint: str) -> None:
    """Two members that exclude each other's defaults."""
    _, beside = CAN[dialect, endpoint]
    said = {name: json.loads(value) for name, value in flags(dialect, endpoint).items()}
    assert said == beside


def test_a_chat_message_says_its_role_first() -> None:
    """Whoever reads only its beginning knows whose it is."""
    assert continuation_item("prefix", CHAT, "a") == (
        b'{"role":"assistant","content":"a","prefix":true}'
    )


@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES])
def test_a_dialect_that_can_not_be_told_has_no_item(endpoint: str) -> None:
    """To ask for a chat message of one is a mistake of ours; there are no flags for it either."""
    assert flags("none", endpoint) == {}
    with pytest.raises(KeyError):
        continuation_item("none", CHAT, "a")


def test_every_endpoint_names_the_members_that_bound_an_answer() -> None:
    """Chat has an old name and a new one."""
    assert CEILINGS == {
        CHAT: ("max_tokens", "max_completion_tokens"),
        RESPONSES: ("max_output_tokens",),
    }


@pytest.mark.parametrize(
    ("ceilings", "produced", "left"),
    [
        ({}, 5, {}),
        ({"max_tokens": 20}, 0, {"max_tokens": b"20"}),
        ({"max_tokens": 20}, 5, {"max_tokens": b"15"}),
        ({"max_tokens": 6}, 5, {"max_tokens": b"1"}),
        ({"max_tokens": 5}, 5, None),
        ({"max_tokens": 4}, 5, None),
        ({"max_tokens": 0}, 0, None),
        ({"max_tokens": -1}, 0, None),
        ({"max_tokens": 9, "max_completion_tokens": 30}, 8, {"max_tokens": b"1", "max_completion_tokens": b"22"}),
        ({"max_tokens": 30, "max_completion_tokens": 8}, 8, None),
    ],
)  # fmt: skip
def test_a_ceiling_is_lowered_by_what_was_produced(
    ceilings: dict[str, int], produced: int, left: dict[str, bytes] | None
) -> None:
    """Those that the caller set and no other; none of them may be used up."""
    assert lowered(ceilings, produced) == left


@given(st.dictionaries(st.sampled_from(CEILINGS[CHAT]), st.integers(-9, 99)), st.integers(0, 99))
def test_all_that_is_produced_stays_under_the_callers_ceilings(
    ceilings: dict[str, int], produced: int
) -> None:
    """Before and after, and there is always something to go on with."""
    left = lowered(ceilings, produced)
    if left is None:
        assert min(ceilings.values()) <= produced
    else:
        assert {name: int(rest) + produced for name, rest in left.items()} == ceilings
        assert all(int(rest) > 0 for rest in left.values())
