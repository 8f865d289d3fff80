"""How an attempt can fail, as one value, and what status a failure stands for.

A `Failure` is made of stable tokens and numbers only. Kinds are rows of the recovery table; `status` is the HTTP status that the provider
gave or that its in-band error stands for (0: none); `code` is ours; `provider_code` and `provider_param` are the provider's,
kept only where they are safe to show.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from gate.refs import is_stable_token

__all__ = [
    "ANSWER_STATUSES",
    "Failure",
    "FailureKind",
    "classify_error",
    "classify_status",
    "retry_after_seconds",
]

RETRY_AFTER_SECONDS_MAX: Final = (
    3600.0  # a longer wait is no plan; the value only bounds what is repeated to a caller
)
WORD_CHARS_MAX: Final = 128  # a code is a short word; more of it is not looked at
MESSAGE_CHARS_MAX: Final = 1024  # of a provider's sentence are looked at
ERROR_DEPTH_MAX: Final = 2  # {"error": {"error": {...}}} is read, deeper wrapping is not


class FailureKind(Enum):
    """A row of the recovery table, or a reason that no further attempt can mend."""

    CONNECT = "provider_connect"
    RESET = "provider_reset"
    UNAVAILABLE = "provider_error"  # 408, 409, 5xx, or an in-band error that stands for one
    RATE_LIMITED = "rate_limited"  # 429
    AUTH = "provider_auth"  # the provider's 401/403
    NOT_FOUND = "not_found"  # 404: an answer, unless the route falls back on it
    CONTEXT_LENGTH = "context_length"
    CONTENT_FILTER = "content_filter"
    REFUSED = "request_refused"  # one of `ANSWER_STATUSES`: an answer
    UNUSABLE = (
        "provider_answer"  # redirect, 204, HTML, another 4xx, an encoding that can't be undone
    )
    NO_HEADERS = "headers_timeout"
    NO_PROGRESS = "first_content_timeout"
    STALL = "gap_timeout"
    JSON_LATE = "json_timeout"
    CUT = "stream_cut"
    MISSING_TERMINAL = "missing_terminal"
    MALFORMED = "malformed_event"
    OUTPUT_INVALID = "output_invalid"  # the answer is not what the request's format asks for
    OUTPUT_REJECTED = "output_rejected"  # the same, where the route wants no further attempt
    TOOL_INVALID = "tool_invalid"  # a tool call that can't be carried out as it is
    EMPTY = "empty_answer"
    FAILED_FINISH = "failed_finish"  # a finish reason that says failure
    REPETITION = "repetition_loop"
    RESTARTED = "continuation_restarted"  # a continuation that began the answer anew
    # What a filter does not let through, by what its table wants then:
    DENIED_EXACT = "denied_exact"  # the same request again
    DENIED_NEXT = "denied_next"  # another target
    DENIED_CONTINUE = "denied_continue"  # to go on from before it
    DENIED = "content_denied"  # no further attempt
    TOTAL = "total_timeout"
    STREAM_LIMIT = "stream_limit"
    HELD_LIMIT = "held_limit"
    FILTER_UNAVAILABLE = "filter_unavailable"
    QUEUE = "queue_timeout"
    NO_TARGET = "no_provider"
    BUDGET = "memory_budget"
    ABORTED = "aborted"  # our own cancel; never shown to a caller


class Failure(msgspec.Struct, frozen=True):
    """One failure. `retry_after` is in seconds from the moment it was received; `verdict` is a filter's own code, where that says more than the kind.

    `reason`: what of the request's schema an answer did not keep to; for the caller, and for nothing that is kept.
    """

    kind: FailureKind
    status: int = 0
    provider_code: str | None = None
    provider_param: str | None = None
    retry_after: float | None = None
    verdict: str = ""
    reason: str = ""

    @property
    def code(self) -> str:
        return self.verdict or self.kind.value

    def __repr__(self) -> str:
        return f"Failure({self.kind.name}, {self.code}, {self.status})"


_CONTEXT: Final = re.compile(
    r".*context(length|size|window).*|contextoverflow|stringabovemaxlength|toomanyprompttokens"
    r"|tokenslimitreached|(prompt|input)(is)?toolong"
)
_CONTENT: Final = re.compile(
    r"content(filter|policy|moderation).*|responsibleai.*|datainspection.*"
)
# The words that in-band errors use where no number is given, without case and separators; the first pattern that matches decides.
_WORDS: Final[tuple[tuple[re.Pattern[str], int], ...]] = (
    (_CONTEXT, 400),
    (_CONTENT, 400),
    *(
        (re.compile(pattern), status)
        for pattern, status in (
            (r".*time(d)?out.*|deadlineexceeded", 504),
            (r".*overload.*|servererror|serviceunavailable.*|.*unavailable(error)?", 503),
            (r"engine.*|.*capacity.*|modelnotready.*", 503),
            (r"internal(server)?(error|exception)?|apierror", 500),
            (r"ratelimit.*|.*quota.*|toomanyrequests|resourceexhausted|throttl.*", 429),
            (r"billing.*|insufficient(balance|credits?|funds)|paymentrequired", 402),
            (r"(invalid|incorrect)apikey|authentication.*|unauthenticated|unauthori[sz]ed", 401),
            (r"permission.*|forbidden|accessdenied.*", 403),
            (r".*notfound.*", 404),
            (r"(request|payload|requestentity)toolarge", 413),
            (r"unprocessable.*|validationerror", 422),
            (r"invalid.*|badrequest.*|unsupported.*|validationexception", 400),
            (r"tool(use|call)failed|jsonvalidatefailed|modeldecommissioned", 400),
        )
    ),
)
_NO_MODEL: Final = re.compile(r"modelnotfound(error)?")
# Many servers name this one only in their sentence.
_CONTEXT_TOLD: Final = re.compile(
    r"(maximum|max) (context|model) length|context (length|window|size)|too many (input )?tokens"
    r"|exceeds? .{0,40}(context|token limit)",
    re.IGNORECASE,
)
_SEPARATORS: Final = re.compile(r"[-_. ]")
_PARAM: Final = re.compile(r"[A-Za-z0-9_.\[\]-]{1,128}")
_RETRIED_4XX: Final = frozenset({408, 409})
ANSWER_STATUSES: Final = frozenset({400, 405, 406, 410, 411, 413, 414, 415, 416, 418, 422, 451})
"""What a provider says of the request itself: any other would be told the same. Other 4xx speak of us, of the connection or of the moment."""


def classify_status(status: int, body: bytes, *, retry_after: float | None = None) -> Failure:
    """The failure that a response with a status other than 2xx is. `body` (any bytes, perhaps cut) is read for a code only."""
    inner = _innermost(_decoded(body))
    code, param = _code_and_param(inner)
    return _failure(_told(status, inner), code, param, retry_after, _message(inner))


def classify_error(error: object) -> Failure:
    """The failure that an error inside a 2xx stands for: its number, else the first word that is known, else 502."""
    inner = _innermost(error)
    code, param = _code_and_param(inner)
    return _failure(_stated_status(inner), code, param, None, _message(inner))


def retry_after_seconds(
    value: bytes | None, *, milliseconds: bytes | None = None, wall: float = 0.0
) -> float | None:
    """A `Retry-After` field in seconds (RFC 9110 section 10.2.3), bounded; None where it is absent or neither a number nor a date.

    `milliseconds` is a `retry-after-ms` field, which is finer and so comes first; `wall` is the Unix time that a date is measured from.
    """
    finer = _number(milliseconds)
    seconds = _number(value) if finer is None else finer / 1000
    if seconds is None and value is not None:
        seconds = _seconds_to(value, wall)
    return None if seconds is None else min(seconds, RETRY_AFTER_SECONDS_MAX)


def _number(value: bytes | None) -> float | None:
    if value is None or not re.fullmatch(rb"\s*\d{1,9}(\.\d{1,9})?\s*", value):
        return None
    return float(value)


def _seconds_to(date: bytes, wall: float) -> float | None:
    """Seconds from `wall` to an HTTP date; one that has passed is now."""
    try:
        moment = email.utils.parsedate_to_datetime(date.decode("ascii"))
        return max(0.0, moment.timestamp() - wall)
    except (ValueError, OverflowError):
        return None


def _failure(
    status: int, code: str | None, param: str | None, retry_after: float | None, message: str
) -> Failure:
    return Failure(_kind(status, code, message), status, code, param, retry_after)


def _told(status: int, error: object) -> int:
    """A 400 that says `model_not_found` (OpenAI's Responses API) is a 404."""
    words = [_folded(word) for word in _words(error)]
    return 404 if status == 400 and any(_NO_MODEL.fullmatch(word) for word in words) else status


def _message(error: object) -> str:
    """The beginning of the provider's own sentence; read for its kind here, and shown to nobody."""
    message = error.get("message") if isinstance(error, Mapping) else None
    return message[:MESSAGE_CHARS_MAX] if isinstance(message, str) else ""


def _words(error: object) -> list[str]:
    found = [error.get(name) for name in ("code", "type")] if isinstance(error, Mapping) else []
    return [word for word in found if isinstance(word, str)]


def _kind(status: int, code: str | None, message: str) -> FailureKind:
    if status == 429:
        return FailureKind.RATE_LIMITED
    if status >= 500 or status in _RETRIED_4XX:
        return FailureKind.UNAVAILABLE
    if status in {401, 403}:
        return FailureKind.AUTH
    if status in ANSWER_STATUSES:
        return _answer_kind(code or "", message)
    return FailureKind.NOT_FOUND if status == 404 else FailureKind.UNUSABLE


def _answer_kind(code: str, message: str) -> FailureKind:
    word = _folded(code)
    if _CONTEXT.fullmatch(word) or _CONTEXT_TOLD.search(message):
        return FailureKind.CONTEXT_LENGTH
    return FailureKind.CONTENT_FILTER if _CONTENT.fullmatch(word) else FailureKind.REFUSED


def _folded(word: str) -> str:
    """`RateLimitError`, `rate_limit_error` and `rate-limit-error` are one word."""
    return _SEPARATORS.sub("", word[:WORD_CHARS_MAX].lower())


def _stated_status(error: object) -> int:
    if not isinstance(error, Mapping):
        return 502
    for name in ("code", "status", "status_code", "http_status"):
        number = _http_number(error.get(name))
        if number:
            return number
    for word in _words(error):
        folded = _folded(word)
        for pattern, status in _WORDS:
            if pattern.fullmatch(folded):
                return status
    return 502


def _http_number(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"\d{3}", value):
        value = int(value)
    good = isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599
    return value if good and isinstance(value, int) else 0


def _innermost(error: object) -> object:
    """The error itself, out of the envelopes that it came in."""
    for _ in range(ERROR_DEPTH_MAX):
        inner = error.get("error") if isinstance(error, Mapping) else None
        if not isinstance(inner, Mapping):
            break
        error = inner
    return error


def _code_and_param(error: object) -> tuple[str | None, str | None]:
    """The provider's `code` (or, where that says nothing, its `type`) and `param`, each only if it is safe to show."""
    if not isinstance(error, Mapping):
        return None, None
    words = [word.lower() for name in ("code", "type") if isinstance(word := error.get(name), str)]
    code = next((word for word in words if is_stable_token(word) and not word.isdigit()), None)
    param = error.get("param")
    safe = isinstance(param, str) and _PARAM.fullmatch(param) is not None
    return code, param if safe else None


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None
