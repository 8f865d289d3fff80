"""What a caller may be told: OpenAI's error envelope, one fixed sentence per code (and what of the caller's own schema was not kept), the status and type of each failure.

No text of a provider, of a prompt or of an answer gets in here; a provider's own `code` and `param` do where they are safe
(`gate.failure`). Statuses and types follow one table: the caller's fault is answered as the provider said it, a limit of ours is
413, 429 or 503, a clock is 504, everything else is 502.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from gate.failure import ANSWER_STATUSES, Failure, FailureKind

__all__ = [
    "PublicError",
    "envelope",
    "error_headers",
    "message",
    "public_error",
    "refusal",
    "sentence",
]

DEFAULT_RETRY_AFTER: Final = (
    1.0  # seconds; what a 429/503 of ours says where nothing better is known
)


class PublicError(msgspec.Struct, frozen=True):
    """An error as the caller sees it. `retry_after` in seconds; `retry: False` asks SDKs not to multiply attempts.

    `told_by` names the sentence where `code` is the word of a provider, a plug-in or a service; `reason` stands behind it, and is made of the caller's own schema.
    """

    status: int
    type: str
    code: str
    param: str | None = None
    retry_after: float | None = None
    retry: bool | None = None
    told_by: str = ""
    reason: str = ""


_SENTENCES: Final = {
    "invalid_json": "The request body is not valid JSON.",
    "invalid_body": "The request body must be a JSON object.",
    "json_too_deep": "The request body is nested too deeply.",
    "duplicate_key": "The request body names a member twice.",
    "missing_required_parameter": "A required parameter is missing.",
    "invalid_type": "A parameter has the wrong type.",
    "invalid_value": "A parameter has a value that is not allowed.",
    "unsupported_parameter": "This gateway does not serve requests with this parameter.",
    "unsupported_websocket": "There is no WebSocket here. Send the request over HTTP.",
    "unsupported_over_chat": "The provider of this model only has chat completions, and this has no place in them.",
    "ambiguous_length": "The request says its length in two ways.",
    "unsupported_type": "The request body has a type that is not read here.",
    "unsupported_encoding": "The request body must not be compressed.",
    "body_too_large": "The request body is larger than this gateway accepts.",
    "body_timeout": "The request body did not arrive in time.",
    "invalid_idempotency_key": "The idempotency key must be 1 to 255 printable ASCII characters.",
    "headers_too_large": "The request headers are larger than this gateway accepts.",
    "invalid_api_key": "The API key is missing or not valid.",
    "model_not_found": "The model does not exist or this key may not use it.",
    "invalid_query": "The query of the request is malformed.",
    "model_required": "The request names no model, and there is more than one.",
    "invalid_form": "The request body is not a valid multipart form.",
    "not_found": "There is nothing at this path.",
    "method_not_allowed": "This method is not allowed here.",
    "queue_full": "The gateway is at its limit. Try again later.",
    "queue_timeout": "The gateway is at its limit. Try again later.",
    "draining": "The gateway is shutting down. Try again.",
    "shutdown": "The gateway is shutting down. Try again.",
    "process_budget": "The gateway is out of memory for requests. Try again later.",
    "exchange_budget": "The request needs more memory than one request may use.",
    "memory_budget": "The gateway is out of memory for requests. Try again later.",
    "no_provider": "No provider can serve this model now.",
    "filter_unavailable": "A filter that this model's route requires is not available.",
    "held_limit": "The answer is larger than what may be held before it is judged.",
    "provider_not_found": "The provider does not know this model or resource.",
    "provider_connect": "The provider could not be reached.",
    "provider_reset": "The provider closed the connection before it answered.",
    "provider_error": "The provider failed to answer.",
    "rate_limited": "The provider's rate limit is reached. Try again later.",
    "provider_auth": "The provider refused the gateway's credentials.",
    "provider_answer": "The provider gave an answer that can't be used.",
    "context_length": "The request is longer than the model's context.",
    "content_filter": "The provider's content filter refused the request.",
    "request_refused": "The provider refused the request.",
    "headers_timeout": "The provider did not answer in time.",
    "first_content_timeout": "The provider did not begin its answer in time.",
    "gap_timeout": "The provider stopped in the middle of its answer.",
    "json_timeout": "The provider did not answer in time.",
    "stream_cut": "The provider's answer was cut off.",
    "missing_terminal": "The provider's answer ended without saying that it was complete.",
    "malformed_event": "The provider's answer was malformed.",
    "text_damaged": "The text of the provider's answer was damaged.",
    "empty_answer": "The provider gave an empty answer.",
    "output_invalid": "The provider's answer is not in the format that the request asks for.",
    "output_rejected": "The provider's answer is not in the format that the request asks for.",
    "json_invalid": "The provider's answer is not the JSON that the request asks for.",
    "schema_mismatch": "The provider's answer does not fit the schema of the request.",
    "output_think_tags": "The text of the provider's answer has think tags in it.",
    "output_fenced": "The provider's answer stands in a code fence.",
    "output_beside_call": "The provider's answer has words beside the call that the request asks for.",
    "tool_invalid": "The provider's answer has a tool call that is not valid.",
    "tool_unknown": "The provider's answer calls a tool that the request does not have.",
    "tool_arguments_json": "The provider's answer calls a tool with arguments that are not valid JSON.",
    "tool_arguments_object": "The provider's answer calls a tool with arguments that are not a JSON object.",
    "tool_arguments_schema": "The provider's answer calls a tool with arguments that do not fit its parameters.",
    "tool_choice_none": "The provider's answer calls a tool, and the request does not allow that.",
    "tool_choice_required": "The provider's answer does not call a tool, and the request asks for a call.",
    "tool_choice_other": "The provider's answer calls another tool than the request asks for.",
    "tool_calls_parallel": "The provider's answer calls more than one tool, and the request allows one call.",
    "tool_ambiguous": "The provider's answer has a tool call whose pieces do not make one whole call.",
    "tool_call_in_text": "The provider's answer has a tool call in its text.",
    "failed_finish": "The provider ended its answer with a failure.",
    "repetition_loop": "The provider's answer went round in circles.",
    "continuation_restarted": "The answer was cut off, and the provider could not go on with it.",
    **dict.fromkeys(
        ("content_denied", "denied_exact", "denied_next", "denied_continue", "pattern_match"),
        "The answer holds something that this gateway does not let through.",
    ),
    "total_timeout": "The answer did not come within the time that this request has.",
    "stream_limit": "The answer took longer than this gateway allows.",
    "internal_error": "The gateway failed. The request id tells the operator where to look.",
}
_FALLBACK: Final = "The request failed."

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    500: "internal_error",
    503: "overloaded_error",
}

# Status of a failure that is not the caller's; what is not here is 502.
_STATUS: Final = {
    FailureKind.RATE_LIMITED: 429,
    FailureKind.NO_PROGRESS: 504,
    FailureKind.JSON_LATE: 504,
    FailureKind.TOTAL: 504,
    FailureKind.STREAM_LIMIT: 504,
    FailureKind.FILTER_UNAVAILABLE: 503,
    FailureKind.QUEUE: 503,
    FailureKind.NO_TARGET: 503,
    FailureKind.BUDGET: 503,
}
# Type of a 502/504 where a filter's verdict was the last word; what is not here is `run_error`.
_VERDICT_TYPES: Final = {
    FailureKind.OUTPUT_INVALID: "output_policy_error",
    FailureKind.OUTPUT_REJECTED: "output_policy_error",
    FailureKind.TOOL_INVALID: "tool_validation_error",
}
_CALLERS: Final = frozenset(
    {
        FailureKind.REFUSED,
        FailureKind.CONTEXT_LENGTH,
        FailureKind.CONTENT_FILTER,
        FailureKind.NOT_FOUND,
    }
)


def sentence(code: str) -> str:
    """The fixed sentence of a code of ours; any other word has the general one."""
    return _SENTENCES.get(code, _FALLBACK)


def refusal(
    status: int,
    code: str,
    *,
    param: str | None = None,
    retry_after: float | None = None,
    retry: bool | None = None,
) -> PublicError:
    """An error that the gate itself gives, before any attempt or for a reason that no attempt can mend."""
    if status in {429, 503} and retry_after is None:
        retry_after = DEFAULT_RETRY_AFTER
    return PublicError(status, _TYPES.get(status, "run_error"), code, param, retry_after, retry)


def public_error(
    failure: Failure, *, attempts: int, retry_after: float | None = None
) -> PublicError:
    """The error terminal of an exchange whose last meaningful failure is `failure`.

    `retry_after`: seconds that a 429 has still to go. `retry` is False where attempts were made and the status is 5xx, unless a Retry-After
    says when to come again.
    """
    if failure.kind in _CALLERS:
        status = failure.status if failure.status in {404, *ANSWER_STATUSES} else 400
        code = failure.provider_code or failure.code
        about = "provider_not_found" if failure.kind is FailureKind.NOT_FOUND else failure.code
        type_ = _TYPES.get(status, "invalid_request_error")
        return PublicError(status, type_, code, failure.provider_param, told_by=about)
    status = _STATUS.get(failure.kind, 502)
    if status in {429, 503}:
        wait = DEFAULT_RETRY_AFTER if retry_after is None else retry_after
        return PublicError(status, _TYPES[status], failure.code, retry_after=wait)
    type_ = _VERDICT_TYPES.get(failure.kind, "run_error")
    retry = False if attempts else None
    about = "" if failure.code in _SENTENCES else failure.kind.value
    return PublicError(
        status, type_, failure.code, retry=retry, told_by=about, reason=failure.reason
    )


def message(error: PublicError) -> str:
    """What a caller reads of an error: its sentence, and behind it what was not kept."""
    said = sentence(error.told_by or error.code)
    return f"{said} ({error.reason})" if error.reason else said


def envelope(error: PublicError) -> bytes:
    """`{"error": {"message", "type", "param", "code"}}`, all four members always there."""
    body = {
        "message": message(error),
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    return msgspec.json.encode({"error": body})


def error_headers(error: PublicError) -> list[tuple[bytes, bytes]]:
    """The header fields that go with an error before commit, less `content-length`."""
    headers = [(b"content-type", b"application/json")]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after))).encode()))
    if error.retry is not None:
        headers.append((b"x-should-retry", b"true" if error.retry else b"false"))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers
