"""Schemas: what fits, where it does not, and what is never followed, fetched or waited for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.errors import SchemaUnusable
from gate.schema import (
    DETAILED_BYTES_MAX,
    DETAILED_WORK_MAX,
    ERROR_CHARS_MAX,
    ERRORS_MAX,
    PATTERNS_MAX,
    REFS_MAX,
    SCHEMA_BYTES_MAX,
    SCHEMA_DEPTH_MAX,
    TOO_LARGE,
    SchemaError,
    compile_schema,
)

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"type": "integer", "minimum": 0},
        "a/b~c": {"items": {"enum": ["x", "y"]}},
    },
    "required": ["name"],
    "additionalProperties": False,
}


def places(schema: object, value: object) -> list[tuple[str, str]]:
    """Where and by which keyword a value does not fit, in order of place."""
    return sorted((each.pointer, each.keyword) for each in compile_schema(schema).check(value))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"name": "a", "age": 1, "a/b~c": ["x"]}, []),
        ([], [("", "type")]),
        ({}, [("", "required")]),
        ({"name": "", "age": -1}, [("/age", "minimum"), ("/name", "minLength")]),
        ({"name": "a", "age": "old"}, [("/age", "type")]),
        ({"name": "a", "b": 1}, [("", "additionalProperties")]),
        ({"name": "a", "a/b~c": ["x", "z"]}, [("/a~1b~0c/1", "enum")]),
    ],
)
def test_an_error_says_where_and_by_which_keyword(
    value: object, found: list[tuple[str, str]]
) -> None:
    """The place as an RFC 6901 pointer into the value."""
    assert places(PERSON, value) == found


def test_the_sentence_is_the_validators_without_the_value() -> None:
    """The value may be as large as the answer; the pointer says which one is meant."""
    (error,) = compile_schema(PERSON).check({"name": "a", "age": "s" * 1000})
    said = 'this value is not of type "integer"'
    assert error == SchemaError("/age", "type", said, "/properties/age/type", "integer")


def test_errors_are_few_and_short() -> None:
    """They go into one message."""
    schema = {"items": {"type": "integer"}, "additionalProperties": {"type": "integer"}}
    assert len(compile_schema(schema).check(["a"] * 100)) == ERRORS_MAX
    (error,) = compile_schema(schema).check({"k" * 1000: "a"})
    assert len(error.pointer) == ERROR_CHARS_MAX
    (error,) = compile_schema(PERSON).check({"name": "a", "k" * 1000: "a"})
    assert len(error.message) == ERROR_CHARS_MAX
    assert error.message.endswith("…")


def test_an_error_shows_no_text_of_itself() -> None:
    """A name in it may be the answer's."""
    (error,) = compile_schema(PERSON).check({"name": "a", "secret": 1})
    assert "secret" in error.message
    assert "secret" not in f"{error!r} {error} {[error]}"
    assert "secret" not in repr(SchemaError("/secret", "type", "m"))


@pytest.mark.parametrize(
    "ref",
    [
        "http://127.0.0.1:1/schema",
        "https://example.com/schema.json",
        "file:///etc/hostname",
        "other.json",
        "other.json#/a",
        "//example.com/a",
        "urn:a:b",
        "https://json-schema.org/draft/2020-12/schema",
        "#anchor",
        "",
        "#/$defs/missing",
        "#/allOf/7",
        "#/allOf/x",
        "#/type/deeper",
    ],
)
def test_a_reference_out_of_the_schema_makes_it_unusable(ref: str) -> None:
    """Wherever it stands, followed or not: nothing is fetched, from anywhere."""
    for schema in (
        {"$ref": ref, "allOf": [True], "type": "object"},
        {"allOf": [{"properties": {"a": {"items": {"$ref": ref}}}}], "type": "object"},
        {"$defs": {"unused": {"$ref": ref}}, "allOf": [True], "type": "object"},
    ):
        with pytest.raises(SchemaUnusable):
            compile_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"$dynamicRef": "#a", "$dynamicAnchor": "a"},
        {"$recursiveRef": "#"},
        {"$defs": {"a": {"$id": "http://a.example/b"}}},
        {"items": {"$schema": "http://json-schema.org/draft-07/schema#"}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "items": {"id": "b.json"}},
        {"$schema": "http://example.com/own-dialect"},
        {"type": "novel"},
        {"type": 3},
        {"properties": []},
        {"$ref": "#/$defs/a", "$defs": {"a": 7}},
        {"pattern": "("},
        {"pattern": "(?=a)b"},
        {"pattern": "(a)\\1"},
        {"pattern": "(a{1000}){1000}"},
        {"const": "\ud800"},
        {"const": object()},
        {"enum": [1, 1 << 64]},
        {"maximum": -(10**30)},
        [],
        "{}",
        None,
        7,
    ],
)
def test_what_is_no_schema_or_depends_on_more_than_itself_is_unusable(schema: object) -> None:
    """Patterns that only a backtracking engine can match are among it."""
    with pytest.raises(SchemaUnusable):
        compile_schema(schema)


def nested(depth: int) -> object:
    """A schema of so many levels."""
    schema: object = True
    for _ in range(depth):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (nested(SCHEMA_DEPTH_MAX), nested(SCHEMA_DEPTH_MAX + 1)),
        (nested(SCHEMA_DEPTH_MAX), nested(100_000)),
        ({"$comment": "a" * (SCHEMA_BYTES_MAX - 15)}, {"$comment": "a" * (SCHEMA_BYTES_MAX - 14)}),
        (
            {"$defs": {"a": {}}, "allOf": [{"$ref": "#/$defs/a"}] * REFS_MAX},
            {"$defs": {"a": {}}, "allOf": [{"$ref": "#/$defs/a"}] * (REFS_MAX + 1)},
        ),
        (
            {"allOf": [{"pattern": "a"}] * PATTERNS_MAX},
            {"allOf": [{"pattern": "a"}] * PATTERNS_MAX + [{"patternProperties": {"a": True}}]},
        ),
    ],
    ids=["depth", "great depth", "bytes", "references", "patterns"],
)
def test_a_schema_has_bounds(good: object, bad: object) -> None:
    """At each of them it is usable, beyond it is not."""
    compile_schema(good)
    with pytest.raises(SchemaUnusable):
        compile_schema(bad)


@pytest.mark.parametrize(
    ("schema", "fits", "fails"),
    [
        (True, 1, None),
        (False, None, 1),
        ({"$defs": {"a b": {"type": "null"}}, "$ref": "#/$defs/a%20b"}, None, 1),
        ({"$defs": {"a/b~": {"type": "null"}}, "$ref": "#/$defs/a~1b~0"}, None, 1),
        ({"allOf": [{"type": "integer"}], "items": {"$ref": "#/allOf/0"}}, 1, "x"),
        ({"$id": "https://example.com/me", "$ref": "#/$defs/a", "$defs": {"a": {"const": 1}}}, 1, 2),
        ({"properties": {"$ref": {"type": "integer"}, "$id": {"const": "a"}}}, {"$ref": 1}, {"$ref": "a"}),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"const": 1}]}, [1], [2]),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 3, "exclusiveMaximum": True}, 2, 3),
        ({"pattern": "^(a+)+$"}, "a" * 1000, "a" * 1000 + "b"),
        ({"type": "integer", "maximum": 5}, 1.0, 10**40),
    ],
)  # fmt: skip
def test_references_inside_the_schema_older_drafts_and_patterns_work(
    schema: object, fits: object, fails: object
) -> None:
    """Without `$schema` it is 2020-12."""
    usable = compile_schema(schema)
    if fits is not None:
        assert usable.check(fits) == ()
    if fails is not None:
        assert usable.check(fails)


def test_formats_are_not_judged() -> None:
    """By default they are annotations, and every library has its own idea of an e-mail address."""
    assert compile_schema({"format": "date"}).check("yesterday") == ()
    draft_7 = {"$schema": "http://json-schema.org/draft-07/schema#", "format": "email"}
    assert compile_schema(draft_7).check("nobody") == ()


def test_a_tree_that_contains_itself_is_judged_to_its_leaves() -> None:
    """The ordinary recursive schema."""
    tree: dict[str, Any] = {
        "$defs": {"node": {"properties": {"children": {"items": {"$ref": "#/$defs/node"}}, "value": {"type": "integer"}}}},
        "$ref": "#/$defs/node",
    }  # fmt: skip
    value = {"children": [{"value": 1}, {"children": [{"value": "x"}]}]}
    assert places(tree, value) == [("/children/1/children/0/value", "type")]


def test_what_would_take_too_much_is_not_judged() -> None:
    """Forty definitions of two references each; with a validator alone this test would not end."""
    defs: dict[str, Any] = {"d0": {"type": "integer"}}
    for number in range(40):
        ref = {"$ref": f"#/$defs/d{number}"}
        defs[f"d{number + 1}"] = {"allOf": [ref, ref]}
    usable = compile_schema({"$defs": defs, "$ref": "#/$defs/d40"})
    with pytest.raises(SchemaUnusable):
        usable.check("x")


def test_a_large_answer_is_judged_without_details() -> None:
    """The list of errors costs far more than the verdict."""
    usable = compile_schema({"items": {"type": "integer"}})
    good = [1] * DETAILED_WORK_MAX
    assert usable.check(good) == ()
    assert usable.check([*good, "x"]) == (SchemaError("", "schema", TOO_LARGE),)


def test_a_heavy_answer_is_judged_without_details_too() -> None:
    """Each error would copy it."""
    schema = {"anyOf": [{"type": "integer"}] * 200}
    assert places(schema, "x" * 1000) == [("", "anyOf")]
    heavy = compile_schema(schema).check("x" * (DETAILED_BYTES_MAX // 200))
    assert heavy == (SchemaError("", "schema", TOO_LARGE),)


def test_errors_of_nested_unions_are_not_listed_without_end() -> None:
    """The validator makes an error for each branch of each branch: a power of the depth."""
    branches: list[Any] = [
        {"properties": {"left": {"$ref": "#"}, "op": {"const": op}}, "required": ["left", "op"]}
        for op in "abcdef"
    ]
    schema = {"anyOf": [{"type": "number"}, *branches]}
    value: object = "x"
    for _ in range(5):
        value = {"left": value, "op": "f"}
    assert compile_schema(schema).check(value) == ()
    closed = {"anyOf": [{"type": "number"}, *({**each, "type": "object"} for each in branches)]}
    assert compile_schema(closed).check(value) == (SchemaError("", "schema", TOO_LARGE),)
    assert places(closed, {"left": "x", "op": "f"}) == [("", "anyOf")]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "a", "~", "/"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "~", "a/b", "name"]), inner)
    ),
    max_leaves=10,
)


@given(value=json_values, wanted=json_values)
def test_only_the_constant_itself_fits_a_constant(value: object, wanted: object) -> None:
    """And an error's pointer leads to what is there."""
    errors = compile_schema({"const": wanted}).check(value)
    assert bool(errors) == (json.dumps(value, sort_keys=True) != json.dumps(wanted, sort_keys=True))


@given(value=json_values)
def test_every_pointer_leads_to_what_does_not_fit(value: object) -> None:
    """Names with the separator in them too."""
    schema: dict[str, Any] = {
        "anyOf": [{"type": ["array", "object"]}, {"minimum": 0, "type": "integer"}],
        "items": {"$ref": "#"},
        "additionalProperties": {"$ref": "#"},
    }
    for error in compile_schema(schema).check(value):
        found: Any = value
        for token in error.pointer.split("/")[1:]:
            name = token.replace("~1", "/").replace("~0", "~")
            found = found[int(name)] if isinstance(found, list) else found[name]
        assert not isinstance(found, list | dict)
        assert not (isinstance(found, int) and not isinstance(found, bool) and found >= 0)
