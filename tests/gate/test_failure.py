"""Failures: which row of the recovery table a status, a body or an in-band error stands for, and what of it is safe to keep."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.failure import (
    Failure,
    FailureKind,
    classify_error,
    classify_status,
    retry_after_seconds,
)
from gate.refs import is_stable_token


def body(**error: object) -> bytes:
    """An answer in OpenAI's envelope."""
    return json.dumps({"error": error}).encode()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (204, FailureKind.UNUSABLE),
        (301, FailureKind.UNUSABLE),
        (400, FailureKind.REFUSED),
        (401, FailureKind.AUTH),
        (402, FailureKind.UNUSABLE),
        (403, FailureKind.AUTH),
        (404, FailureKind.NOT_FOUND),
        *(
            (status, FailureKind.REFUSED)
            for status in (405, 406, 410, 411, 413, 414, 415, 416, 418, 422, 451)
        ),
        *((status, FailureKind.UNUSABLE) for status in (407, 412, 421, 425, 431, 499)),
        (408, FailureKind.UNAVAILABLE),
        (409, FailureKind.UNAVAILABLE),
        (429, FailureKind.RATE_LIMITED),
        (500, FailureKind.UNAVAILABLE),
        (502, FailureKind.UNAVAILABLE),
        (503, FailureKind.UNAVAILABLE),
        (529, FailureKind.UNAVAILABLE),
    ],
)
def test_a_status_alone_names_the_row(status: int, kind: FailureKind) -> None:
    """Whatever the body is, here a page of HTML."""
    failure = classify_status(status, b"<html>Bad Gateway</html>")
    assert failure == Failure(kind, status)


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, {"code": "context_length_exceeded"}, FailureKind.CONTEXT_LENGTH),
        (400, {"code": 400, "type": "exceed_context_size_error"}, FailureKind.CONTEXT_LENGTH),
        (400, {"code": 400, "type": "too_many_prompt_tokens"}, FailureKind.CONTEXT_LENGTH),
        (400, {"code": "ContextWindowExceededError"}, FailureKind.CONTEXT_LENGTH),
        (400, {"code": "string_above_max_length"}, FailureKind.CONTEXT_LENGTH),
        (400, {"code": "prompt_too_long"}, FailureKind.CONTEXT_LENGTH),
        (413, {"code": "tokens_limit_reached"}, FailureKind.CONTEXT_LENGTH),
        (400, {"code": "content_filter"}, FailureKind.CONTENT_FILTER),
        (400, {"code": "content_policy_violation"}, FailureKind.CONTENT_FILTER),
        (400, {"code": "ResponsibleAIPolicyViolation"}, FailureKind.CONTENT_FILTER),
        (400, {"code": "data_inspection_failed"}, FailureKind.CONTENT_FILTER),
        (400, {"code": "invalid_image_url"}, FailureKind.REFUSED),
        (429, {"code": "context_length_exceeded"}, FailureKind.RATE_LIMITED),
    ],
)
def test_a_code_says_more_about_an_answer_and_nothing_about_a_fault(
    status: int, error: dict[str, object], kind: FailureKind
) -> None:
    """A route may fall back on these kinds, so they are told apart."""
    assert classify_status(status, body(**error)).kind is kind


@pytest.mark.parametrize(
    ("text", "code", "param"),
    [
        (body(code="model_not_found", type="x", param="model"), "model_not_found", "model"),
        (body(code="DeploymentNotFound"), "deploymentnotfound", None),
        (body(code=None, type="api_error", param="messages[0].content"), "api_error", "messages[0].content"),
        (body(code="404", type="not_found_error"), "not_found_error", None),
        (body(code="has blanks in it", type="api_error"), "api_error", None),
        (body(code="a" * 129, param="p" * 129), None, None),
        (body(code=400, param="why not `this`?"), None, None),
        (body(code="x", param=7), "x", None),
        (b'{"code":"invalid-argument","error":"Incorrect key."}', "invalid-argument", None),
        (b'{"error":{"error":{"code":"inner"}}}', "inner", None),
        (b'{"error":{"error":{"error":{"code":"buried"}}}}', None, None),
        (b'{"error":"Unauthorized"}', None, None),
        (b'{"detail":"Invalid API Key"}', None, None),
        (b'["error"]', None, None),
        (b'{"error":{"code":"cu', None, None),
        (b"\xff\xfe", None, None),
        (b"[" * 5000, None, None),
        (b"", None, None),
    ],
)  # fmt: skip
def test_of_an_error_body_only_safe_words_are_kept(
    text: bytes, code: str | None, param: str | None
) -> None:
    """The shapes that OpenAI, Azure, xAI, vLLM, Mistral and proxies answer with, and broken ones."""
    failure = classify_status(400, text)
    assert (failure.provider_code, failure.provider_param) == (code, param)


@given(st.binary(max_size=64) | st.from_regex(r'\{"error":\{"code":"[^"]*"\}\}').map(str.encode))
def test_no_body_at_all_gets_through_as_anything_but_a_stable_token(text: bytes) -> None:
    """A provider's text is never shown."""
    failure = classify_status(400, text)
    assert failure.provider_code is None or is_stable_token(failure.provider_code)
    assert failure.kind in {
        FailureKind.REFUSED,
        FailureKind.CONTEXT_LENGTH,
        FailureKind.CONTENT_FILTER,
    }


WORDS = [
    ("timeout", 504),
    ("timeout_error", 504),
    ("RequestTimeOut", 504),
    ("request_timed_out", 504),
    ("vector_store_timeout", 504),
    ("DEADLINE_EXCEEDED", 504),
    ("overloaded_error", 503),
    ("server_is_overloaded", 503),
    ("engine_overloaded_error", 503),
    ("server_error", 503),
    ("service_unavailable_error", 503),
    ("ServiceUnavailable", 503),
    ("ServiceUnavailableError", 503),
    ("UNAVAILABLE", 503),
    ("unavailable_error", 503),
    ("ModelUnavailable", 503),
    ("engine_dead", 503),
    ("NoCapacity", 503),
    ("over_capacity", 503),
    ("ModelNotReadyException", 503),
    ("internal_server_error", 500),
    ("InternalServerError", 500),
    ("internalServerException", 500),
    ("internal_error", 500),
    ("INTERNAL", 500),
    ("api_error", 500),
    ("rate_limit_exceeded", 429),
    ("RateLimitReached", 429),
    ("rate_limit_error", 429),
    ("insufficient_quota", 429),
    ("exceeded_current_quota_error", 429),
    ("ServiceQuotaExceededException", 429),
    ("too_many_requests", 429),
    ("RESOURCE_EXHAUSTED", 429),
    ("ThrottlingException", 429),
    ("Throttling.RateQuota", 429),
    ("billing_hard_limit_reached", 402),
    ("insufficient_balance", 402),
    ("insufficient_credits", 402),
    ("payment_required", 402),
    ("authentication_error", 401),
    ("invalid_api_key", 401),
    ("InvalidApiKey", 401),
    ("incorrect_api_key", 401),
    ("UNAUTHENTICATED", 401),
    ("unauthorized", 401),
    ("unauthorised", 401),
    ("permission_error", 403),
    ("PERMISSION_DENIED", 403),
    ("forbidden", 403),
    ("AccessDeniedException", 403),
    ("not_found_error", 404),
    ("model_not_found", 404),
    ("DeploymentNotFound", 404),
    ("ResourceNotFoundException", 404),
    ("NotFoundError", 404),
    ("request_too_large", 413),
    ("payload_too_large", 413),
    ("UnprocessableEntityError", 422),
    ("validation_error", 422),
    ("context_length_exceeded", 400),
    ("model_context_window_exceeded", 400),
    ("exceed_context_size_error", 400),
    ("ContextWindowExceededError", 400),
    ("context_overflow", 400),
    ("content_filter", 400),
    ("content_moderation", 400),
    ("ResponsibleAIPolicyViolation", 400),
    ("DataInspectionFailed", 400),
    ("invalid_request_error", 400),
    ("invalid-argument", 400),
    ("INVALID_ARGUMENT", 400),
    ("BadRequestError", 400),
    ("bad_request", 400),
    ("unsupported_parameter", 400),
    ("ValidationException", 400),
    ("tool_use_failed", 400),
    ("json_validate_failed", 400),
    ("model_decommissioned", 400),
    ("something_new", 502),
    ("error", 502),
    ("", 502),
    ("1301", 502),
]


@pytest.mark.parametrize(("word", "status"), WORDS)
def test_a_word_stands_for_a_status_in_any_spelling(word: str, status: int) -> None:
    """As a code or as a type; what no one knows is a bad gateway."""
    assert classify_error({"code": word}).status == status
    assert classify_error({"type": word}).status == status
    assert classify_error({"type": word.replace("_", "-").upper()}).status == status


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        ({"code": 429, "type": "server_error"}, 429, FailureKind.RATE_LIMITED),
        ({"code": "429"}, 429, FailureKind.RATE_LIMITED),
        ({"code": "tool_use_failed", "status_code": 400}, 400, FailureKind.REFUSED),
        ({"type": "overloaded_error", "status": 529}, 529, FailureKind.UNAVAILABLE),
        ({"code": 502, "message": "worker lost"}, 502, FailureKind.UNAVAILABLE),
        ({"code": "rate_limit_exceeded", "type": "server_error"}, 429, FailureKind.RATE_LIMITED),
        ({"code": "novel", "type": "not_found_error"}, 404, FailureKind.NOT_FOUND),
        ({"code": "context_length_exceeded"}, 400, FailureKind.CONTEXT_LENGTH),
        ({"code": "content_filter", "type": None}, 400, FailureKind.CONTENT_FILTER),
        ({"code": "invalid_api_key"}, 401, FailureKind.AUTH),
        ({"code": "insufficient_balance"}, 402, FailureKind.UNUSABLE),
        ({"code": 399}, 502, FailureKind.UNAVAILABLE),
        ({"code": 400}, 400, FailureKind.REFUSED),
        ({"code": 599}, 599, FailureKind.UNAVAILABLE),
        ({"code": 600}, 502, FailureKind.UNAVAILABLE),
        ({"code": True}, 502, FailureKind.UNAVAILABLE),
        ({"code": 200}, 502, FailureKind.UNAVAILABLE),
        ({"code": 1301}, 502, FailureKind.UNAVAILABLE),
        ({"code": 4.29}, 502, FailureKind.UNAVAILABLE),
        ({"error": {"code": 503}}, 503, FailureKind.UNAVAILABLE),
        ({"error": {"type": "rate_limit_error"}}, 429, FailureKind.RATE_LIMITED),
        ({}, 502, FailureKind.UNAVAILABLE),
        ("worker lost", 502, FailureKind.UNAVAILABLE),
        (["worker lost"], 502, FailureKind.UNAVAILABLE),
        (None, 502, FailureKind.UNAVAILABLE),
    ],
)
def test_an_error_inside_a_success_is_the_status_it_stands_for(
    error: object, status: int, kind: FailureKind
) -> None:
    """Its number first, then its code, then its type."""
    failure = classify_error(error)
    assert (failure.status, failure.kind) == (status, kind)


def test_an_in_band_error_keeps_its_code_and_param() -> None:
    """The caller is told as if it had been a status."""
    failure = classify_error({"code": 400, "type": "BadRequestError", "param": "tools"})
    assert failure == Failure(FailureKind.REFUSED, 400, "badrequesterror", "tools")


def test_a_word_without_end_costs_no_more_than_a_short_one() -> None:
    """Only its beginning is looked at, so a hostile provider can't make the table work."""
    assert classify_error({"code": "contextlength" * 50_000 + "\n"}).status == 400
    assert classify_error({"code": "x" * 121 + "timeout"}).status == 504
    assert classify_error({"code": "x" * 122 + "timeout"}).status == 502


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"0", 0.0),
        (b" 7 ", 7.0),
        (b"1.5", 1.5),
        (b"3601", 3600.0),
        (b"999999999", 3600.0),
        (b"9999999999", None),
        (b"-1", None),
        (b"1e3", None),
        (b"soon", None),
        (b"", None),
        (b"Wed, 21 Oct 2026 07:28:99 GMT", None),
        (b"\xff", None),
        (None, None),
    ],
)
def test_a_retry_after_is_a_bounded_number_of_seconds(
    value: bytes | None, seconds: float | None
) -> None:
    """What is neither a number nor a date counts as absent."""
    assert retry_after_seconds(value) == seconds


@pytest.mark.parametrize(
    ("date", "seconds"),
    [
        (b"Wed, 21 Oct 2026 07:28:00 GMT", 10.0),
        (b"Wed, 21 Oct 2026 07:27:00 GMT", 0.0),
        (b"Wed, 21 Oct 2026 09:28:00 +0200", 10.0),
        (b"Wed, 21 Oct 2027 07:28:00 GMT", 3600.0),
    ],
)
def test_a_retry_after_may_be_a_date(date: bytes, seconds: float) -> None:
    """Measured from the wall time that is given; one that has passed is now, one far away is bounded."""
    assert retry_after_seconds(date, wall=1_792_567_670.0) == seconds


def test_milliseconds_are_finer_and_come_first() -> None:
    """Some providers say both."""
    assert retry_after_seconds(b"2", milliseconds=b"1500") == 1.5
    assert retry_after_seconds(b"2", milliseconds=b"soon") == 2.0
    assert retry_after_seconds(None, milliseconds=b"250") == 0.25


def test_a_failed_status_carries_its_retry_after() -> None:
    """Whoever plans the next attempt reads it."""
    assert classify_status(429, b"", retry_after=2.5) == Failure(
        FailureKind.RATE_LIMITED, 429, retry_after=2.5
    )


def test_every_kind_has_a_stable_code_of_its_own() -> None:
    """Codes go into logs, labels and answers."""
    codes = {name: Failure(kind).code for name, kind in FailureKind.__members__.items()}
    assert [code for code in codes.values() if not is_stable_token(code)] == []
    assert len(set(codes.values())) == len(codes)


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "the request exceeds the available context size, try increasing it",
        "Input is too long: the prompt exceeds the token limit",
        "Too many input tokens",
    ],
)
def test_a_context_that_is_too_short_is_told_by_its_sentence(message: str) -> None:
    """vLLM, llama.cpp, DeepSeek and OpenRouter say it in words only; the words go no further."""
    body = msgspec.json.encode(
        {"error": {"message": message, "type": "BadRequestError", "code": 400}}
    )
    failure = classify_status(400, body)
    assert failure.kind is FailureKind.CONTEXT_LENGTH
    assert message not in repr(failure)
    assert classify_error({"code": 400, "message": message}).kind is FailureKind.CONTEXT_LENGTH


def test_another_sentence_is_an_ordinary_refusal() -> None:
    """Nor is it asked of a status that is no answer."""
    body = b'{"error":{"message":"temperature must be below 2"}}'
    assert classify_status(400, body).kind is FailureKind.REFUSED
    busy = b'{"error":{"message":"maximum context length"}}'
    assert classify_status(503, busy).kind is FailureKind.UNAVAILABLE


def test_a_400_that_means_an_unknown_model_is_a_404() -> None:
    """As OpenAI's Responses API has it."""
    failure = classify_status(400, b'{"error":{"code":"model_not_found"}}')
    assert (failure.kind, failure.status) == (FailureKind.NOT_FOUND, 404)
