"""The ingress snapshot: the caller's body as it was received, and the few members that the gate reads.

Only the top level is scanned; `messages` and everything else stay bytes. What is read is checked here, so that a wrong request is a clear 4xx
before any attempt; what is not read is the provider's business and goes on untouched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from gate.budget import MemoryBudget, Reservation
from gate.errors import RequestRefused, SnapshotClosed
from gate.large_json import JsonNotObject, is_json, scan_large
from gate.loose_json import member_value
from gate.refs import MODEL_CHARS_MAX
from gate.splice import Body, JsonRefused, JsonTooDeep, Member, scan_members
from gate.steps import WINDOW, Steps, finished, holds, word_in

__all__ = [
    "CHAT_RULES",
    "CHOICES_MAX",
    "INLINE_BYTES_MAX",
    "READ",
    "CallerRequest",
    "Details",
    "IngressSnapshot",
    "RequestRules",
    "boolean",
    "brings_tools",
    "check_json",
    "check_large_object",
    "check_model",
    "check_object",
    "choices_in",
    "inside",
    "read_chat_request",
    "read_large_request",
    "read_request",
    "small_value",
    "value_of",
]

CHAT_PATH: Final = "/v1/chat/completions"
CHOICES_MAX: Final = 128  # OpenAI's own bound on `n`
INLINE_BYTES_MAX: Final = (
    131_072  # a larger body is read in steps, and a larger value is not decoded
)
METADATA_BYTES_MAX: Final = 16_384  # OpenAI takes 16 of at most 64 and 512 characters
TRACE_SWITCH: Final = "trace_stream"
# What is read of a request, here or where a plan or a filter needs it, or patched by a plan: no parser may see another value than the gate did.
READ: Final = frozenset(
    {
        "add_generation_prompt",
        "audio",
        "continue_final_message",
        "function_call",
        "functions",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "modalities",
        "model",
        "n",
        "parallel_tool_calls",
        "response_format",
        "stop",
        "stream",
        "stream_options",
        "tool_choice",
        "tools",
        "top_logprobs",
    }
)


class CallerRequest(msgspec.Struct, frozen=True):
    """What the gate reads of a request. `model_at`: where `model` stands in the body; `members`: all of its top level, so that none has to scan it again.

    A request that is relayed may be a form (`form`), whose fields are no members, or name no model at all: then `model` is empty and `model_at` None. `stored`: the
    provider goes on from an answer that it keeps, or keeps this one, so that an attempt that fails may leave one behind. `traced`: the caller wants to be told what is decided.
    `options_at`: where `stream_options` stand; `usage_unasked`: a stream of an endpoint that reports usage where those ask for it, and they don't.
    """

    model: str
    stream: bool
    include_usage: bool
    choices: int
    needs: frozenset[str]
    model_at: Member | None
    members: tuple[Member, ...]
    form: bool = False
    endpoint: str = CHAT_PATH
    stored: bool = False
    traced: bool = False
    options_at: Member | None = None
    usage_unasked: bool = False

    def bound(self, model: str) -> bytes:
        """The provider's name for the model, as the body spells a name."""
        return model.encode() if self.form else msgspec.json.encode(model)


class Details(NamedTuple):
    """What only one endpoint's requests say."""

    include_usage: bool
    choices: int
    needs: frozenset[str]
    stored: bool = False
    reports_usage: bool = False


class RequestRules(NamedTuple):
    """How a request at `path` is read. `names`: members that no parser may see with another value than the gate did; `read`: what only this endpoint has, checked.

    `read` raises `RequestRefused`.
    """

    path: str
    names: frozenset[str]
    read: Callable[[Body, Mapping[str, Member]], Steps[Details]]


class IngressSnapshot:
    """The body of one request under one reservation; filled by ingress, owned by the exchange, closed with its block."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._reservation: Reservation | None = budget.reserve(0)
        self._body: Body = b""
        self._request: CallerRequest | None = None

    def reserve(self, size: int) -> None:
        """Asks for room for `size` bytes of body in all. Raises `BudgetExceeded`."""
        self._open().resize(size)

    def fill(self, body: Body, request: CallerRequest) -> None:
        """Takes the checked body, which nobody changes any more; its reservation is the body's size from now on."""
        self._open().resize(len(body))
        self._body, self._request = body, request

    @property
    def body(self) -> Body:
        self._open()
        return self._body

    @property
    def filled(self) -> bool:
        """Whether a body is in it."""
        return self._request is not None

    @property
    def request(self) -> CallerRequest:
        self._open()
        assert self._request is not None, "filled before it is read"
        return self._request

    def close(self) -> None:
        """Gives the bytes back."""
        reservation, self._reservation = self._open(), None
        self._body = b""
        reservation.release()

    def _open(self) -> Reservation:
        if self._reservation is None:
            raise SnapshotClosed
        return self._reservation

    def __repr__(self) -> str:
        state = "closed" if self._reservation is None else f"{len(self._body)} bytes"
        return f"IngressSnapshot({state})"


def read_chat_request(body: bytes, *, depth_max: int) -> CallerRequest:
    """Checks a chat request and reads it. Raises `RequestRefused` (400, with `param` where one member is to blame)."""
    return read_request(body, CHAT_RULES, depth_max=depth_max)


def read_request(body: bytes, rules: RequestRules, *, depth_max: int) -> CallerRequest:
    """Checks a request and reads it by these rules. Raises `RequestRefused` (400, with `param` where one member is to blame)."""
    return finished(_read(body, check_object(body, depth_max=depth_max), rules))


def read_large_request(
    body: Body, rules: RequestRules | None = None, *, depth_max: int, window: int = WINDOW
) -> Steps[CallerRequest]:
    """The same in bounded steps, for a body that no single call should go over. Without `rules`: a chat request."""
    members = yield from check_large_object(body, depth_max=depth_max, window=window)
    return (yield from _read(body, members, rules or CHAT_RULES))


def check_object(body: bytes, *, depth_max: int) -> tuple[Member, ...]:
    """The members of the JSON object that `body` is. Raises `RequestRefused`."""
    check_json(body)
    if not body.lstrip().startswith(b"{"):
        raise RequestRefused(400, "invalid_body")
    try:
        return scan_members(body, depth_max=depth_max)
    except JsonRefused as error:
        raise _refusal(error) from error


def check_large_object(
    body: Body, *, depth_max: int, window: int = WINDOW
) -> Steps[tuple[Member, ...]]:
    """The same in bounded steps."""
    try:
        return (yield from scan_large(body, depth_max=depth_max, window=window))
    except JsonRefused as error:
        raise _refusal(error) from error


def _refusal(error: JsonRefused) -> RequestRefused:
    match error:
        case JsonNotObject():
            return RequestRefused(400, "invalid_body")
        case JsonTooDeep():
            return RequestRefused(400, "json_too_deep")
        case _:
            return RequestRefused(400, "invalid_json")


def check_json(body: bytes) -> None:
    """Whether `body` is one JSON value in UTF-8; raises `RequestRefused` where not. Half surrogates in strings are the provider's business."""
    try:
        if not is_json(body):
            raise RequestRefused(400, "invalid_json")
        body.decode()
    except RecursionError as error:
        raise RequestRefused(400, "json_too_deep") from error
    except UnicodeDecodeError as error:
        raise RequestRefused(400, "invalid_json") from error


def _read(body: Body, members: tuple[Member, ...], rules: RequestRules) -> Steps[CallerRequest]:
    """What the members say; they have been checked as JSON."""
    found: dict[str, Member] = {}
    for member in members:
        if member.key in rules.names and member.key in found:
            raise RequestRefused(400, "duplicate_key", param=member.key)
        found[member.key] = member
    model = value_of(body, found.get("model"))
    if model is None:
        raise RequestRefused(400, "missing_required_parameter", param="model")
    check_model(model)
    stream = boolean(value_of(body, found.get("stream")), "stream")
    details = yield from rules.read(body, found)
    return CallerRequest(
        model=model,
        stream=stream,
        include_usage=details.include_usage,
        choices=details.choices,
        needs=details.needs,
        model_at=found["model"],
        members=members,
        endpoint=rules.path,
        stored=details.stored,
        traced=_is_traced(body, found.get("metadata")),
        options_at=found.get("stream_options"),
        usage_unasked=stream and details.reports_usage and not details.include_usage,
    )


def _is_traced(body: Body, metadata: Member | None) -> bool:
    """The older way to ask to be told what is decided: `metadata.trace_stream`, true or a word for it, since metadata are texts. What else stands there is the provider's business."""
    if metadata is None:
        return False
    value = member_value(body, metadata, bytes_max=METADATA_BYTES_MAX)
    switch = value.get(TRACE_SWITCH) if isinstance(value, dict) else None
    return switch is True or (isinstance(switch, str) and switch.lower() in {"1", "true"})


def _read_chat(body: Body, found: Mapping[str, Member]) -> Steps[Details]:
    messages = inside(body, found.get("messages"), b"[")
    if messages is None:
        raise RequestRefused(400, "missing_required_parameter", param="messages")
    if (yield from word_in(body, *messages)) == messages[1]:
        raise RequestRefused(400, "invalid_value", param="messages")
    include_usage = _include_usage(value_of(body, found.get("stream_options")))
    choices = choices_in(value_of(body, found.get("n")))
    return Details(include_usage, choices, (yield from _needs(body, found)), reports_usage=True)


def check_model(value: object) -> str:
    """The name of a model. Raises `RequestRefused`."""
    if not isinstance(value, str):
        raise RequestRefused(400, "invalid_type", param="model")
    if not value or len(value) > MODEL_CHARS_MAX:
        raise RequestRefused(400, "invalid_value", param="model")
    return value


def boolean(value: object, param: str) -> bool:
    """A switch, off where it is absent or null. Raises `RequestRefused`."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise RequestRefused(400, "invalid_type", param=param)


def _include_usage(options: object) -> bool:
    if options is None:
        return False
    if not isinstance(options, dict):
        raise RequestRefused(400, "invalid_type", param="stream_options")
    return boolean(options.get("include_usage"), "stream_options.include_usage")


def choices_in(value: object) -> int:
    """How many choices a member `n` asks for, 1 where it is absent or null. Raises `RequestRefused`."""
    if value is None:
        return 1
    if not isinstance(value, int) or isinstance(value, bool):
        raise RequestRefused(400, "invalid_type", param="n")
    if not 1 <= value <= CHOICES_MAX:
        raise RequestRefused(400, "invalid_value", param="n")
    return value


def _needs(body: Body, found: Mapping[str, Member]) -> Steps[frozenset[str]]:
    """The capabilities that a target must have for this request."""
    needs = set()
    if (yield from brings_tools(body, found.get("tools"))):
        needs.add("tools")
    form = inside(body, found.get("response_format"), b"{")
    if form is not None and (yield from holds(body, b'"json_schema"', *form)):
        needs.add("json_schema")
    return frozenset(needs)


def brings_tools(body: Body, member: Member | None) -> Steps[bool]:
    """Whether a request declares a tool. Raises `RequestRefused`."""
    tools = inside(body, member, b"[")
    return tools is not None and (yield from word_in(body, *tools)) < tools[1]


def inside(body: Body, member: Member | None, opener: bytes) -> tuple[int, int] | None:
    """From where to where the content of an array or object goes; None where it is absent or null. Raises `RequestRefused`."""
    if member is None:
        return None
    first = body[member.value_start : member.value_start + 1]
    if first == b"n":  # null
        return None
    if first != opener:
        raise RequestRefused(400, "invalid_type", param=member.key)
    return member.value_start + 1, member.value_end - 1


def small_value(body: Body, member: Member) -> Any:
    """One small value, decoded; it has been checked as JSON. Raises `RequestRefused`."""
    if member.value_end - member.value_start > INLINE_BYTES_MAX:
        raise RequestRefused(400, "invalid_value", param=member.key)
    try:
        return json.loads(body[member.value_start : member.value_end])
    except ValueError as error:  # a number with more digits than an integer may have
        raise RequestRefused(400, "invalid_value", param=member.key) from error


def value_of(body: Body, member: Member | None) -> Any:
    """The same; None where it is absent."""
    return None if member is None else small_value(body, member)


CHAT_RULES: Final = RequestRules(CHAT_PATH, READ, _read_chat)
