"""The bound on a judgement's work: every keyword that enters a subschema counts, and what multiplies is refused in no time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.schema_work import (
    CONTENT_WEIGHT,
    DEPTH_MAX,
    PAIRS_MAX,
    PATTERN_WEIGHT,
    WORD_BITS,
    WORK_MAX,
    TooMuchWork,
    Weigher,
)

# A weight of 1000 that nothing else in these cases comes near to, so that entries can be counted.
HEAVY: dict[str, Any] = {"enum": [0] * 999}


def weight(schema: object, value: object, **refs: object) -> int:
    """The work of judging `value` by `schema`."""
    return Weigher(schema, refs).weigh(value).work


@pytest.mark.parametrize(
    ("schema", "value", "entries"),
    [
        (HEAVY, 1, 1),
        *(({name: [HEAVY, HEAVY]}, 1, 2) for name in ("allOf", "anyOf", "oneOf")),
        *(({name: HEAVY}, 1, 1) for name in ("not", "if", "then", "else")),
        ({"dependentSchemas": {"a": HEAVY}}, {}, 1),
        ({"dependencies": {"a": HEAVY, "b": ["a"]}}, {}, 1),
        ({"properties": {"a": HEAVY, "b": HEAVY}}, {"a": 1, "c": 1}, 1),
        ({"properties": {"a": HEAVY}}, ["a"], 0),
        ({"patternProperties": {"^a": HEAVY}}, {"b": 1, "c": 2}, 2),
        ({"additionalProperties": HEAVY}, {"b": 1, "c": 2}, 2),
        ({"unevaluatedProperties": HEAVY}, {"b": 1, "c": 2}, 2),
        ({"unevaluatedProperties": False, "allOf": [HEAVY]}, {}, 2),
        ({"propertyNames": HEAVY}, {"b": 1, "c": 2}, 2),
        ({"items": HEAVY}, [1, 2, 3], 3),
        ({"items": HEAVY}, {"a": 1}, 0),
        ({"items": [HEAVY, HEAVY]}, [1, 2, 3], 2),
        ({"prefixItems": [HEAVY, True]}, [1, 2, 3], 1),
        ({"additionalItems": HEAVY}, [1, 2], 2),
        ({"unevaluatedItems": HEAVY, "anyOf": [HEAVY]}, [1], 3),
        ({"contains": HEAVY}, [1, 2], 2),
        ({"items": {"allOf": [HEAVY, HEAVY]}}, [[1], [2]], 4),
        (True, {"a": 1}, 0),
        ({"items": False, "not": None, "allOf": 3, "properties": []}, [1], 0),
    ],
)
def test_every_way_into_a_subschema_is_counted(schema: object, value: object, entries: int) -> None:
    """As often as it is entered, and once for the same value."""
    assert weight(schema, value) // 1000 == entries


def test_a_reference_leads_to_its_target() -> None:
    """As often as it is followed."""
    schema = {"allOf": [{"$ref": "#/a"}, {"$ref": "#/a"}]}
    assert weight(schema, 1, **{"#/a": HEAVY}) // 1000 == 2


def test_text_under_a_pattern_weighs_by_its_length() -> None:
    """An automaton goes over every character; member names are texts too."""
    assert weight({"pattern": "a"}, "x" * 100) - weight({"pattern": "a"}, "") == 5000
    assert weight({"pattern": "a"}, ["x" * 100]) < 100
    one, two = {"patternProperties": {"a": True}}, {"patternProperties": {"a": True, "b": True}}
    assert weight(two, {"x" * 100: 1}) - weight(one, {"x" * 100: 1}) >= 5000


def test_a_single_visit_may_be_too_much() -> None:
    """A long text under a pattern, with nothing further in it."""
    length = WORK_MAX // PATTERN_WEIGHT
    assert weight({"pattern": "a"}, "x" * (length - 1)) < WORK_MAX
    with pytest.raises(TooMuchWork):
        weight({"pattern": "a"}, "x" * length)


def test_a_list_weighs_by_its_items() -> None:
    """`uniqueItems` looks at each."""
    assert weight({"uniqueItems": True}, [1] * 500) >= 500


def test_an_object_weighs_by_its_members() -> None:
    """Whoever enters it goes over them, and so does the weighing: many branches with many members are refused in no time."""
    assert weight({}, dict.fromkeys(map(str, range(500)))) >= 500
    with pytest.raises(TooMuchWork):
        weight({"anyOf": [{"type": "object"} for _ in range(2000)]}, dict.fromkeys(map(str, range(1000))))  # fmt: skip


@pytest.mark.parametrize("name", ["contentMediaType", "contentEncoding"])
def test_text_that_is_read_again_weighs_by_its_length(name: str) -> None:
    """Older drafts parse the JSON in a string, or undo its base64, at each visit."""
    assert weight({name: "x"}, "x" * 100) - weight({name: "x"}, "") == 100 * CONTENT_WEIGHT


def test_a_large_number_weighs_by_its_digits_at_each_comparison() -> None:
    """One of 4,000 digits takes the validator a millisecond for each value of an `enum`."""
    assert weight(HEAVY, 2**WORD_BITS - 1) == 1000
    assert weight(HEAVY, -(2**WORD_BITS)) == 1000 * (WORD_BITS + 1)
    with pytest.raises(TooMuchWork):
        weight(HEAVY, 10**4000)


def test_ways_that_multiply_are_refused() -> None:
    """Forty definitions of two references each are a trillion visits, and forty pairs."""
    refs: dict[str, object] = {"#/0": {}}
    for number in range(40):
        refs[f"#/{number + 1}"] = {"allOf": [{"$ref": f"#/{number}"}, {"$ref": f"#/{number}"}]}
    weigher = Weigher({"$ref": "#/40"}, refs)
    with pytest.raises(TooMuchWork):
        weigher.weigh(1)
    assert Weigher({"$ref": "#/10"}, refs).weigh(1).work > 1 << 10


def test_a_union_that_contains_itself_is_refused_where_the_answer_is_deep() -> None:
    """Each level multiplies by the branches; a shallow answer is judged."""
    schema: dict[str, Any] = {"anyOf": [{"properties": {"a": {"$ref": "#"}}} for _ in range(6)]}
    weigher = Weigher(schema, {"#": schema})
    assert weigher.weigh({"a": {"a": {"a": 1}}}).work < WORK_MAX
    value: object = 1
    for _ in range(12):
        value = {"a": value}
    with pytest.raises(TooMuchWork):
        weigher.weigh(value)


def test_a_schema_that_comes_back_to_itself_in_place_is_refused() -> None:
    """It gets no deeper into the value, and a validator that guards against it may still go every way around."""
    schema = {"allOf": [{"$ref": "#"}]}
    with pytest.raises(TooMuchWork):
        weight(schema, 1, **{"#": schema})


def test_a_schema_that_comes_back_to_itself_deeper_in_the_value_is_fine() -> None:
    """A tree."""
    schema: dict[str, Any] = {"properties": {"a": {"$ref": "#"}}}
    assert weight(schema, {"a": {"a": {"a": {}}}}, **{"#": schema}) < 50


def test_the_weight_of_a_pair_is_that_of_all_it_enters() -> None:
    """The bound holds for the sum, not for one part."""
    assert weight({"items": HEAVY}, [*range(1000)]) > 1_000_000
    with pytest.raises(TooMuchWork):
        weight({"items": HEAVY}, [*range(WORK_MAX // 1000 + 1)])


@pytest.mark.no_cover
def test_pairs_have_a_bound_of_their_own() -> None:
    """Light ones too: each costs us more than it costs the validator."""
    assert weight({"items": {}}, [*range(PAIRS_MAX - 1)])
    with pytest.raises(TooMuchWork):
        weight({"items": {}}, [*range(PAIRS_MAX)])


@pytest.mark.parametrize(("depth", "good"), [(DEPTH_MAX, True), (DEPTH_MAX + 1, False)])
def test_depth_has_a_bound(depth: int, good: bool) -> None:
    """The validator's stack is the process's."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"not": schema}
    if good:
        assert weight(schema, 1)
    else:
        with pytest.raises(TooMuchWork):
            weight(schema, 1)


def test_a_weigher_begins_anew_with_each_value() -> None:
    """Ids of a former value may have become those of another."""
    weigher = Weigher({"items": HEAVY}, {})
    assert [weigher.weigh([0] * size).work // 1000 for size in (1, 3, 2)] == [1, 3, 2]


json_values = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=12,
)


@given(
    schema=st.recursive(
        st.booleans() | st.just({}) | json_values,
        lambda inner: st.dictionaries(
            st.sampled_from(["allOf", "not", "items", "properties", "dependencies", "contains"]),
            inner | st.lists(inner, max_size=3),
        ),
        max_leaves=12,
    ),
    value=json_values,
)
def test_nothing_that_a_keyword_may_hold_by_mistake_breaks_the_weighing(
    schema: object, value: object
) -> None:
    """What an older draft ignores may have any type."""
    assert weight(schema, value) >= 1
