"""What a caller is told: each row of the table of statuses, types and headers, and nothing of a provider's text."""

from __future__ import annotations

import json

import msgspec
import pytest

from gate.envelope import (
    PublicError,
    envelope,
    error_headers,
    message,
    public_error,
    refusal,
    sentence,
)
from gate.failure import Failure, FailureKind, classify_error, classify_status
from gate.filters import output_policy, tool_calls

GENERAL = "The request failed."


def headers_of(error: PublicError) -> dict[bytes, bytes]:
    """The header fields by name, each there once."""
    fields = error_headers(error)
    assert len({name for name, _ in fields}) == len(fields)
    return dict(fields)


@pytest.mark.parametrize(
    ("status", "type_"),
    [
        (400, "invalid_request_error"),
        (413, "invalid_request_error"),
        (422, "invalid_request_error"),
        (404, "not_found_error"),
    ],
)
def test_the_callers_own_fault_is_answered_as_the_provider_said_it(status: int, type_: str) -> None:
    """Status, code and param are kept; SDKs decide for themselves about a retry, which for these is none."""
    body = b'{"error":{"message":"secret text","code":"model_gone","param":"model","type":"x"}}'
    error = public_error(classify_status(status, body), attempts=1)
    assert (error.status, error.type) == (status, type_)
    assert (error.code, error.param) == ("model_gone", "model")
    assert error.retry_after is None
    assert b"secret" not in envelope(error)
    assert headers_of(error) == {b"content-type": b"application/json"}


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (Failure(FailureKind.CONTENT_FILTER, 400, "content_filter"), 400, "content_filter"),
        (Failure(FailureKind.CONTENT_FILTER, 403), 400, "content_filter"),
        (Failure(FailureKind.CONTENT_FILTER), 400, "content_filter"),
        (
            Failure(FailureKind.CONTEXT_LENGTH, 400, "context_length_exceeded"),
            400,
            "context_length_exceeded",
        ),
        (Failure(FailureKind.CONTEXT_LENGTH, 413), 413, "context_length"),
        (Failure(FailureKind.REFUSED, 422), 422, "request_refused"),
        *(
            (classify_status(status, b""), status, "request_refused")
            for status in (405, 406, 410, 411, 414, 415, 416, 418, 451)
        ),
        (Failure(FailureKind.NOT_FOUND, 404), 404, "not_found"),
        (classify_error({"code": 400}), 400, "request_refused"),
    ],
)
def test_an_answer_without_a_code_gets_ours(failure: Failure, status: int, code: str) -> None:
    """A content filter without a usable status is a 400."""
    error = public_error(failure, attempts=1)
    assert (error.status, error.code) == (status, code)
    assert error.type == ("not_found_error" if status == 404 else "invalid_request_error")


@pytest.mark.parametrize(
    ("kind", "status", "type_", "code"),
    [
        (FailureKind.AUTH, 502, "run_error", "provider_auth"),
        (FailureKind.CONNECT, 502, "run_error", "provider_connect"),
        (FailureKind.RESET, 502, "run_error", "provider_reset"),
        (FailureKind.UNAVAILABLE, 502, "run_error", "provider_error"),
        (FailureKind.UNUSABLE, 502, "run_error", "provider_answer"),
        (FailureKind.NO_HEADERS, 502, "run_error", "headers_timeout"),
        (FailureKind.STALL, 502, "run_error", "gap_timeout"),
        (FailureKind.CUT, 502, "run_error", "stream_cut"),
        (FailureKind.MISSING_TERMINAL, 502, "run_error", "missing_terminal"),
        (FailureKind.MALFORMED, 502, "run_error", "malformed_event"),
        (FailureKind.EMPTY, 502, "run_error", "empty_answer"),
        (FailureKind.HELD_LIMIT, 502, "run_error", "held_limit"),
        (FailureKind.OUTPUT_INVALID, 502, "output_policy_error", "output_invalid"),
        (FailureKind.TOOL_INVALID, 502, "tool_validation_error", "tool_invalid"),
        (FailureKind.NO_PROGRESS, 504, "run_error", "first_content_timeout"),
        (FailureKind.JSON_LATE, 504, "run_error", "json_timeout"),
        (FailureKind.TOTAL, 504, "run_error", "total_timeout"),
        (FailureKind.STREAM_LIMIT, 504, "run_error", "stream_limit"),
    ],
)
def test_a_failed_run_asks_the_caller_not_to_multiply_the_attempts(
    kind: FailureKind, status: int, type_: str, code: str
) -> None:
    """Clocks that ran out before any content are 504, everything else of a provider's is 502."""
    error = public_error(Failure(kind, 599, "their_code", "their_param"), attempts=3)
    assert error == PublicError(status, type_, code, retry=False)
    assert headers_of(error)[b"x-should-retry"] == b"false"
    assert b"retry-after" not in headers_of(error)


def test_an_error_without_attempts_leaves_the_retry_to_the_caller() -> None:
    """There is nothing to multiply."""
    error = public_error(Failure(FailureKind.TOTAL), attempts=0)
    assert error.retry is None
    assert headers_of(error) == {b"content-type": b"application/json"}


@pytest.mark.parametrize(
    ("kind", "status", "type_", "code"),
    [
        (FailureKind.RATE_LIMITED, 429, "rate_limit_error", "rate_limited"),
        (FailureKind.NO_TARGET, 503, "overloaded_error", "no_provider"),
        (FailureKind.QUEUE, 503, "overloaded_error", "queue_timeout"),
        (FailureKind.BUDGET, 503, "overloaded_error", "memory_budget"),
        (FailureKind.FILTER_UNAVAILABLE, 503, "overloaded_error", "filter_unavailable"),
    ],
)
def test_a_limit_says_when_to_come_again(
    kind: FailureKind, status: int, type_: str, code: str
) -> None:
    """With a Retry-After the SDK's own retry is welcome, attempts or not."""
    error = public_error(Failure(kind, 429), attempts=2)
    assert error == PublicError(status, type_, code, retry_after=1.0)
    assert headers_of(error) == {b"content-type": b"application/json", b"retry-after": b"1"}


@pytest.mark.parametrize(
    ("left", "header"),
    [(-3.0, b"1"), (0.0, b"1"), (0.2, b"1"), (1.0, b"1"), (1.01, b"2"), (59.5, b"60")],
)
def test_a_retry_after_still_to_go_is_rounded_up(left: float, header: bytes) -> None:
    """Whole seconds, and never none: a caller who comes too early is refused again."""
    error = public_error(Failure(FailureKind.RATE_LIMITED, 429), attempts=2, retry_after=left)
    assert headers_of(error)[b"retry-after"] == header


@pytest.mark.parametrize(
    ("status", "type_", "retry_after"),
    [
        (400, "invalid_request_error", None),
        (401, "authentication_error", None),
        (404, "not_found_error", None),
        (405, "invalid_request_error", None),
        (408, "invalid_request_error", None),
        (413, "invalid_request_error", None),
        (415, "invalid_request_error", None),
        (422, "invalid_request_error", None),
        (429, "rate_limit_error", 1.0),
        (431, "invalid_request_error", None),
        (500, "internal_error", None),
        (502, "run_error", None),
        (503, "overloaded_error", 1.0),
    ],
)
def test_a_refusal_of_the_gate_has_the_type_of_its_status(
    status: int, type_: str, retry_after: float | None
) -> None:
    """At a limit it says when to come again."""
    error = refusal(status, "some_code", param="model")
    assert error == PublicError(status, type_, "some_code", "model", retry_after)


def test_a_refusal_that_knows_better_when_to_come_again_says_so() -> None:
    """A rate limit knows when its window ends."""
    assert refusal(429, "rate_limited", retry_after=30.0).retry_after == 30.0


def test_a_failure_of_the_gate_after_attempts_asks_for_no_more_of_them() -> None:
    """Like any other 5xx that has no Retry-After."""
    error = refusal(500, "internal_error", retry=False)
    assert headers_of(error)[b"x-should-retry"] == b"false"


def test_a_refused_key_names_the_scheme() -> None:
    """RFC 9110 asks for the challenge with a 401, and for none elsewhere."""
    assert headers_of(refusal(401, "invalid_api_key"))[b"www-authenticate"] == b"Bearer"
    assert b"www-authenticate" not in headers_of(refusal(404, "not_found"))


def test_an_error_that_may_be_retried_can_say_so() -> None:
    """The field is read by OpenAI's SDKs in both forms."""
    assert headers_of(PublicError(502, "run_error", "x", retry=True))[b"x-should-retry"] == b"true"


def test_the_envelope_has_all_four_members() -> None:
    """OpenAI's schema requires each of them, null or not."""
    assert json.loads(envelope(refusal(400, "invalid_json"))) == {
        "error": {
            "message": "The request body is not valid JSON.",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_json",
        }
    }


def test_what_was_not_kept_of_the_callers_schema_stands_behind_the_sentence() -> None:
    """It is the caller's own, and says where to look."""
    reason = "tool f, /properties/a/type, expected integer"
    failure = Failure(FailureKind.TOOL_INVALID, verdict="tool_arguments_schema", reason=reason)
    error = json.loads(envelope(public_error(failure, attempts=2)))["error"]
    assert error["type"] == "tool_validation_error"
    assert error["message"].endswith(f". ({reason})")
    assert reason not in repr(failure)


def test_a_code_that_is_not_ours_has_the_general_sentence() -> None:
    """A provider's code is shown, its text is not."""
    assert sentence("invalid_image_url") == GENERAL


@pytest.mark.parametrize(
    "kind", [kind for kind in FailureKind if kind is not FailureKind.ABORTED], ids=lambda k: k.value
)
def test_every_failure_that_a_caller_may_see_has_a_sentence(kind: FailureKind) -> None:
    """An own cancel is the only one that nobody is told of."""
    assert sentence(Failure(kind).code) != GENERAL


def test_the_sentence_is_ours_even_where_the_code_is_the_providers() -> None:
    """A provider's word that we use for something else is not explained with our meaning of it."""
    failure = Failure(FailureKind.REFUSED, 400, provider_code="invalid_api_key")
    told = msgspec.json.decode(envelope(public_error(failure, attempts=1)))["error"]
    assert (told["code"], told["message"]) == (
        "invalid_api_key",
        "The provider refused the request.",
    )
    lost = msgspec.json.decode(
        envelope(public_error(Failure(FailureKind.NOT_FOUND, 404), attempts=1))
    )
    assert lost["error"]["message"] == "The provider does not know this model or resource."


OUTPUT_CODES = (
    "json_invalid",
    "schema_mismatch",
    output_policy.TAGS,
    output_policy.FENCED,
    output_policy.BESIDE,
)
TOOL_CODES = (
    tool_calls.UNKNOWN,
    tool_calls.NOT_JSON,
    tool_calls.NO_OBJECT,
    tool_calls.MISFIT,
    tool_calls.NOT_ASKED,
    tool_calls.NOT_THERE,
    tool_calls.ANOTHER,
    tool_calls.TOO_MANY,
    tool_calls.AMBIGUOUS,
    tool_calls.IN_TEXT,
)


@pytest.mark.parametrize(
    ("code", "kind", "type_"),
    [
        *((code, FailureKind.OUTPUT_INVALID, "output_policy_error") for code in OUTPUT_CODES),
        *((code, FailureKind.TOOL_INVALID, "tool_validation_error") for code in TOOL_CODES),
    ],
)
def test_a_filters_own_code_is_told_with_its_own_sentence(
    code: str, kind: FailureKind, type_: str
) -> None:
    """It says more than the kind of the failure."""
    error = public_error(Failure(kind, verdict=code), attempts=2)
    assert error == PublicError(502, type_, code, retry=False)
    assert sentence(code) not in {GENERAL, sentence(kind.value)}


@pytest.mark.parametrize("kind", [FailureKind.DENIED, FailureKind.DENIED_NEXT])
def test_a_code_of_a_service_or_a_plug_in_is_told_with_the_sentence_of_its_kind(
    kind: FailureKind,
) -> None:
    """Nobody here knows the word; that the answer was not let through is known."""
    error = public_error(Failure(kind, verdict="too_rude"), attempts=1)
    assert (error.code, message(error)) == ("too_rude", sentence("content_denied"))
