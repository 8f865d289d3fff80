"""Stable tokens, and ids that a replay makes again."""

from __future__ import annotations

import pytest

from gate.refs import ExchangeId, Refs, digest_of_key, is_stable_token


@pytest.mark.parametrize(
    "token", ["a", "0", "rate_limited", "openai.rebuilt.1", "a:b-c", "x" * 128]
)
def test_a_stable_token_is_short_and_plain(token: str) -> None:
    """It may stand in a log, in a label and in an answer."""
    assert is_stable_token(token)


@pytest.mark.parametrize(
    "text", ["", "x" * 129, "A", "a b", "a\n", "ä", "a/b", "a\x00", '"', "٣", None, 5, b"a", ["a"]]
)
def test_anything_else_is_no_stable_token(text: object) -> None:
    """Not even with one line end behind it."""
    assert not is_stable_token(text)


def test_ids_count_from_one_in_the_order_they_are_asked_for() -> None:
    """Attempts and plans each have their own count."""
    refs = Refs(ExchangeId("ex-7"))
    assert [refs.attempt(), refs.plan(), refs.plan(), refs.attempt()] == [1, "ex-7.1", "ex-7.2", 2]


def test_the_same_exchange_gets_the_same_ids_again() -> None:
    """Nothing random is in them."""
    first, second = Refs(ExchangeId("ex")), Refs(ExchangeId("ex"))
    assert [first.plan() for _ in range(3)] == [second.plan() for _ in range(3)]


def test_the_snapshot_has_one_ref_and_each_rebuilt_request_its_own() -> None:
    """The one names the exchange, the others are counted."""
    refs = Refs(ExchangeId("ex-7"))
    assert (refs.snapshot, refs.snapshot) == ("ex-7.snapshot", "ex-7.snapshot")
    assert [refs.rebuilt(), refs.rebuilt()] == ["openai.rebuilt.1", "openai.rebuilt.2"]


def test_the_snapshot_of_the_longest_exchange_id_still_has_a_stable_ref() -> None:
    """A caller may have chosen 128 characters."""
    assert is_stable_token(Refs(ExchangeId("x" * 128)).snapshot)


def test_refs_name_their_exchange() -> None:
    """For whoever reads a log."""
    assert repr(Refs(ExchangeId("ex-7"))) == "Refs('ex-7')"


def test_of_a_callers_key_a_digest_is_kept() -> None:
    """The same for the same key, and a stable token; nothing where there is none."""
    digest = digest_of_key(b"8e03978e-40d5-43dd-bc93-6894a57f9324")
    assert digest == digest_of_key(b"8e03978e-40d5-43dd-bc93-6894a57f9324")
    assert digest != digest_of_key(b"8e03978e-40d5-43dd-bc93-6894a57f9325")
    assert is_stable_token(digest)
    assert len(digest) == 32
    assert digest_of_key(b"") == ""
