"""One value at a time: what is taken, what is refused, and in which words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gate.config_rules import (
    OWN_HEADERS,
    ConfigInvalid,
    Problem,
    bind,
    env_name,
    hint,
    is_loopback,
    join,
    known_name,
    model_name,
    parse_bind,
    static_headers,
    token,
    unique,
    url,
)


def said(problems: Iterator[Problem]) -> list[str]:
    return [str(problem) for problem in problems]


def test_an_invalid_configuration_reads_one_problem_per_line() -> None:
    """What an operator sees is the path, then the sentence."""
    error = ConfigInvalid((Problem("server.bind", "is wrong"), Problem("keys[0].name", "too")))
    assert str(error) == "server.bind: is wrong\nkeys[0].name: too"
    assert error.problems[1] == Problem("keys[0].name", "too")


@pytest.mark.parametrize(
    ("path", "name", "joined"),
    [
        ("", "server", "server"),
        ("routes", "default", "routes.default"),
        ("routes", "two words", "routes.'two words'"),
        ("routes", "ü\n", r"routes.'\xfc\n'"),
        ("routes", "x" * 200, "routes.'" + "x" * 128 + "'"),
    ],
)
def test_a_path_shows_strange_names_quoted_and_long_ones_cut(
    path: str, name: str, joined: str
) -> None:
    """A name from the file can't forge a second line of output."""
    assert join(path, name) == joined


def test_a_hint_names_the_nearest_word_or_nothing() -> None:
    """A typing error is helped, a value of another type is not guessed at."""
    assert hint("bindd", ["bind", "workers"]) == " (did you mean bind?)"
    assert hint("zzz", ["bind", "workers"]) == ""
    assert hint(7, ["bind"]) == ""


@pytest.mark.parametrize("value", ["a", "team-a", "openai:eu_1.2", "x" * 128])
def test_a_stable_token_is_a_name(value: str) -> None:
    """Lower case, digits and four marks."""
    assert said(token("keys[0].name", value)) == []


@pytest.mark.parametrize("value", ["", "Team", "a b", "ä", "a\n", "x" * 129])
def test_what_can_not_be_a_label_is_no_name(value: str) -> None:
    """It would have to be escaped in every metric and log line."""
    reason = "keys[0].name: must be 1 to 128 characters of a-z 0-9 . _ : -"
    assert said(token("keys[0].name", value)) == [reason]


@pytest.mark.parametrize("value", ["small", "Qwen/Qwen3-8B", "modèle", "x" * 256])
def test_a_model_may_have_any_printable_name(value: str) -> None:
    """Callers choose aliases, providers their models: more than tokens are in use."""
    assert said(model_name("models[0].alias", value)) == []


@pytest.mark.parametrize("value", ["", "two words", "a\tb", "a\x00", "a\u2028b", "x" * 257])
def test_a_model_name_has_no_white_space_and_an_end(value: str) -> None:
    """Neither can be told apart in a log."""
    reason = "models[0].alias: must be 1 to 256 printable characters without white space"
    assert said(model_name("models[0].alias", value)) == [reason]


def test_the_name_of_a_variable_is_no_secret() -> None:
    """A secret that was put in its place is refused, and not repeated."""
    assert said(env_name("keys[0].key_env", "TEAM_A_KEY")) == []
    assert said(env_name("keys[0].key_env", "")) == []
    problems = said(env_name("keys[0].key_env", "sk-live-1234"))
    assert problems == ["keys[0].key_env: must be the name of an environment variable"]


def test_a_reference_must_be_declared_and_a_near_miss_is_named() -> None:
    """The file itself says what there is."""
    assert said(known_name("models[0].route", "fast", ["fast"], noun="route")) == []
    problems = said(known_name("models[0].route", "fsat", ["fast"], noun="route"))
    assert problems == ["models[0].route: unknown route 'fsat' (did you mean fast?)"]


def test_a_value_that_stands_twice_points_at_the_first_place() -> None:
    """Three equal values are two problems, both against the first."""
    assert said(unique(["a", "b"], "keys", leaf=".name")) == []
    assert said(unique(["a", "b", "a", "a"], "keys", leaf=".name")) == [
        "keys[2].name: stands already at keys[0].name",
        "keys[3].name: stands already at keys[0].name",
    ]


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("localhost:0", "localhost", 0),
        ("gate.internal:65535", "gate.internal", 65_535),
        ("[::1]:8080", "::1", 8080),
        ("[0:0:0:0:0:0:0:1]:80", "::1", 80),
    ],
)
def test_an_address_to_listen_at_is_host_and_port(text: str, host: str, port: int) -> None:
    """The brackets of an IPv6 address go, and it is written in one way."""
    assert parse_bind(text) == (host, port)
    assert said(bind("server.bind", text)) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("8080", "with a host name or an address"),
        (":8080", "with a host name or an address"),
        ("::1:8080", "with a host name or an address"),
        ("a host:80", "with a host name or an address"),
        ("localhost", "with a port up to 65535"),
        ("localhost:65536", "with a port up to 65535"),
        ("localhost:http", "with a port up to 65535"),
        ("127.0.0.256:80", "an address that exists"),
        ("[::z]:80", "an address that exists"),
    ],
)
def test_an_address_that_nothing_can_listen_at_is_refused(text: str, words: str) -> None:
    """At load, not when the socket is opened."""
    problems = said(bind("server.bind", text))
    assert len(problems) == 1
    assert problems[0].startswith("server.bind: must b")
    assert words in problems[0]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("LocalHost", True),
        ("0.0.0.0", False),  # noqa: S104
        ("::", False),
        ("10.0.0.1", False),
        ("gate.internal", False),
    ],
)
def test_only_this_machine_reaches_a_loopback_address(host: str, *, loopback: bool) -> None:
    """A name that has to be looked up is never trusted to be one."""
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    "value", ["http://127.0.0.1:8000/v1", "https://api.example.com/v1/", "http://[::1]:80"]
)
def test_an_absolute_address_of_a_provider_is_taken(value: str) -> None:
    """With or without a path, with or without its last slash."""
    assert said(url("providers[0].base_url", value)) == []


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "must be a URL of 1 to 2048 printable ASCII characters"),
        ("http://a b/", "must be a URL of 1 to 2048 printable ASCII characters"),
        ("http://a/" + "x" * 2048, "must be a URL of 1 to 2048 printable ASCII characters"),
        ("/v1", "must be an absolute URL with http or https and a host"),
        ("ftp://a/v1", "must be an absolute URL with http or https and a host"),
        ("http:///v1", "must be an absolute URL with http or https and a host"),
        ("http://a:99999/v1", "must be an absolute URL with http or https and a host"),
        ("http://a:0/v1", "must be an absolute URL with http or https and a host"),
        ("http://[::1/v1", "must be an absolute URL with http or https and a host"),
        ("http://me:secret@a/v1", "must not carry a user or a password"),
        ("http://a/v1?x=1", "must not carry a query or a fragment"),
        ("http://a/v1#x", "must not carry a query or a fragment"),
    ],
)
def test_what_is_not_the_address_of_a_server_is_refused(value: str, reason: str) -> None:
    """And never repeated: it may hold a password."""
    assert said(url("providers[0].base_url", value)) == [f"providers[0].base_url: {reason}"]


def test_another_scheme_is_taken_where_it_is_asked_for() -> None:
    """The store speaks no HTTP."""
    assert said(url("store.url", "valkey://a:6379/0", schemes=("valkey", "redis"))) == []
    problems = said(url("store.url", "http://a", schemes=("valkey", "redis")))
    assert problems == ["store.url: must be an absolute URL with valkey or redis and a host"]


def test_a_header_of_the_operator_is_taken() -> None:
    """A key in a header of its own, a value with a space inside, an empty value."""
    headers = {"api-key": "k", "x-team": "two words", "x-empty": ""}
    assert said(static_headers("providers[0].headers", headers)) == []


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("x y", "1", "'x y': is not the name of a header"),
        ("", "1", "'': is not the name of a header"),
        ("Host", "a", "Host: is written by the gateway itself"),
        ("x-a", "1\r\nx-b: 2", "x-a: must be printable ASCII"),
        ("x-a", " 1", "x-a: must be printable ASCII"),
        ("x-a", "é", "x-a: must be printable ASCII"),
        ("x-a", "1" * 4097, "x-a: must be printable ASCII"),
    ],
)
def test_a_header_that_would_break_a_request_is_refused(
    name: str, value: str, problem: str
) -> None:
    """Neither its framing nor our own fields may come from a file."""
    problems = said(static_headers("providers[0].headers", {name: value}))
    assert len(problems) == 1
    assert problems[0].startswith(f"providers[0].headers.{problem}")


def test_one_header_in_two_spellings_is_refused() -> None:
    """Case makes no difference on the wire."""
    problems = said(static_headers("headers", {"X-A": "1", "x-a": "2"}))
    assert problems == ["headers.x-a: stands twice; case makes no difference"]


def test_the_fields_that_frame_or_authorize_a_request_are_ours() -> None:
    """None of them may ever leave the list unnoticed."""
    framing = {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te"}
    assert framing | {"authorization", "accept", "accept-encoding", "x-request-id"} <= OWN_HEADERS
