"""Compiled schemas are kept over requests, within bounds, and one request costs only so much."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate import schema_cache
from gate.errors import SchemaUnusable
from gate.schema import PATTERNS_MAX
from gate.schema_cache import ENTRY_BYTES, PATTERN_BYTES, RequestSchemas, SchemaCache
from gate.schema_work import PAIRS_MAX

OBJECT = b'{"type":"object"}'


def text_of(schema: object) -> bytes:
    """A schema as a caller writes it."""
    return json.dumps(schema).encode()


def numbered(number: int) -> bytes:
    """One of many."""
    return text_of({"const": number})


def with_patterns(count: int, first: int = 0) -> bytes:
    """A schema with so many."""
    return text_of({"anyOf": [{"pattern": f"^a{first + n}$"} for n in range(count)]})


def test_the_same_bytes_are_compiled_once() -> None:
    """Whoever asks, and whatever came between; others are others."""
    cache = SchemaCache()
    first = cache.of(OBJECT)
    assert cache.of(b'{"type":"array"}') is not first
    assert cache.of(bytes(bytearray(OBJECT))) is first
    assert RequestSchemas(cache).check(OBJECT, {}) == ()
    assert len(cache) == 2
    assert first.check([])[0].keyword == "type"


@pytest.mark.parametrize("text", [b'{"$ref":"https://example.com"}', b"7", b"[", b"", b'"a":1}{'])
def test_what_is_not_usable_is_known_as_that(text: bytes) -> None:
    """It is told each time, and takes no more room than its key."""
    cache = SchemaCache()
    for _ in range(2):
        with pytest.raises(SchemaUnusable):
            cache.of(text)
    assert (len(cache), cache.kept_bytes) == (1, ENTRY_BYTES)


def test_what_was_not_used_for_longest_goes() -> None:
    """Where there are too many."""
    cache = SchemaCache(schemas_max=2)
    kept = cache.of(numbered(0))
    gone = cache.of(numbered(1))
    assert cache.of(numbered(0)) is kept
    cache.of(numbered(2))
    assert cache.of(numbered(0)) is kept
    assert cache.of(numbered(1)) is not gone


def test_patterns_count_by_what_they_may_take() -> None:
    """A few large schemas push out many small ones; one that is too large by itself is not kept at all."""
    cache = SchemaCache(kept_bytes_max=5 * PATTERN_BYTES)
    small = cache.of(OBJECT)
    cache.of(with_patterns(2))
    assert cache.of(OBJECT) is small
    cache.of(with_patterns(4))
    assert len(cache) == 2
    assert cache.of(OBJECT) is small
    assert cache.of(with_patterns(6)) is not cache.of(with_patterns(6))
    assert (len(cache), cache.kept_bytes) == (0, 0)


@given(
    asked=st.lists(st.integers(0, 8), max_size=40),
    count=st.integers(1, 4),
    room=st.sampled_from([ENTRY_BYTES, 3 * ENTRY_BYTES, 1 << 20]),
)
def test_no_order_of_requests_breaks_a_bound(asked: list[int], count: int, room: int) -> None:
    """And what is said to be kept is the sum of what is there."""
    cache = SchemaCache(schemas_max=count, kept_bytes_max=room)
    for number in asked:
        text = b"[" if number == 0 else numbered(number)
        try:
            assert cache.of(text).check(number) == ()
        except SchemaUnusable:
            assert number == 0
        assert len(cache) <= count
        assert cache.kept_bytes <= room
        assert cache.kept_bytes == sum(cache._sizes.values())


def test_of_a_value_nothing_is_kept() -> None:
    """The schema outlives the answer that was judged by it."""
    cache = SchemaCache()
    RequestSchemas(cache).check(OBJECT, {"secret": ["word"]})
    assert cache.of(OBJECT)._weigher._known == {}
    assert repr(cache).startswith("SchemaCache(1 schemas, ")


def test_one_request_costs_only_so_much() -> None:
    """However cheap each of its calls is to declare; the next request begins anew."""
    cache = SchemaCache()
    text = text_of({"items": {"enum": list(range(15_000))}})
    value = list(range(100))
    schemas = RequestSchemas(cache)
    for _ in range(-(-schema_cache.WORK_MAX // cache.of(text).weigh(value).cost)):
        assert schemas.check(text, value) == ()
    with pytest.raises(SchemaUnusable):
        schemas.check(OBJECT, {})
    assert RequestSchemas(cache).check(text, value) == ()
    assert repr(schemas).startswith("RequestSchemas(-")


@pytest.mark.no_cover
def test_what_is_too_much_to_weigh_costs_too() -> None:
    """To find that out may have taken as long as anything."""
    schemas = RequestSchemas()
    text = b'{"items":{"type":"integer"}}'
    tries = 0
    while schemas._work_left > 0:
        with pytest.raises(SchemaUnusable):
            schemas.check(text, [1_000 + n for n in range(PAIRS_MAX + 1)])
        tries += 1
    assert tries <= 10


def test_one_request_compiles_only_so_many_patterns() -> None:
    """Kept or not, so that it is judged alike whenever it comes; the same schema counts once."""
    cache = SchemaCache()
    for _ in range(2):
        schemas = RequestSchemas(cache)
        for _ in range(9):
            assert schemas.check(with_patterns(PATTERNS_MAX), "a1") == ()
        for number in range(1, 4):
            schemas.check(with_patterns(PATTERNS_MAX, 1000 * number), "a1")
        with pytest.raises(SchemaUnusable):
            schemas.check(OBJECT, {})


def test_a_schema_may_have_been_parsed() -> None:
    """What can't be written is not usable."""
    schemas = RequestSchemas()
    assert schemas.check_by({"type": "object"}, {}) == ()
    assert schemas.check_by({"type": "object"}, 1)[0].keyword == "type"
    for odd in ({"const": "\ud83d"}, {"const": {1, 2}.__iter__()}):
        with pytest.raises(SchemaUnusable):
            schemas.check_by(odd, {})
