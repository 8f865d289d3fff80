"""What the gate reads of a request that it only relays: which model it is for, and how the answer comes.

    JSON object           the top-level members `model` and `stream`; of legacy completions also how many choices come
    multipart form        the fields of these names
    nothing               of a stored response, whether the query asks for its events
    anything else         nothing: a file as it is

A body that names no model is served all the same, if it is clear which alias is meant. A type is only believed where it says JSON or a form: an object is read as one whatever it is
called, for so may the provider, and it must not see a model there that the gate did not.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qs

from gate.completions import PATH as COMPLETIONS
from gate.errors import RequestRefused
from gate.form import Field, boundary_of, scan_form
from gate.ingress import (
    INLINE_BYTES_MAX,
    CallerRequest,
    boolean,
    check_large_object,
    check_model,
    check_object,
    choices_in,
    small_value,
)
from gate.loose_json import member_value
from gate.reader import JSON, media_type
from gate.relay import STORED_RESPONSES
from gate.splice import Body, JsonRefused, Member, first_word, scan_elements
from gate.steps import Steps

__all__ = ["PROMPTS_MAX", "read_relayed_request"]

PROMPTS_MAX: Final = 2_048  # OpenAI's own bound on a list of inputs
_READ: Final = frozenset({"model", "n", "prompt", "stream", "stream_format"})
_FORM: Final = frozenset({"model", "stream"})
_SWITCHES: Final = {"": False, "0": False, "false": False, "1": True, "true": True}
_LISTED: Final = b'"['  # what a list of prompts begins with, rather than one of tokens


def read_relayed_request(
    body: Body, content_type: bytes, *, endpoint: str, depth_max: int, query: str = ""
) -> Steps[CallerRequest]:
    """Checks a request and reads it, in bounded steps where it is large. Raises `RequestRefused` (400)."""
    media = media_type(content_type)
    if media == b"multipart/form-data":
        boundary = boundary_of(content_type)
        if boundary is None:
            raise RequestRefused(400, "invalid_form")
        fields = yield from scan_form(body, boundary, _FORM)
        return _of_form({field.name: field for field in fields})
    if not len(body):
        return _request("", None, stream=_asks_stream(endpoint, query))
    if media == b"application/x-www-form-urlencoded":
        raise RequestRefused(415, "unsupported_type")
    if media != JSON and not bytes(body[:64]).lstrip().startswith(b"{"):
        return _request("", None)
    try:
        if isinstance(body, bytes) and len(body) <= INLINE_BYTES_MAX:
            members = check_object(body, depth_max=depth_max)
        else:
            members = yield from check_large_object(body, depth_max=depth_max)
    except RequestRefused:
        if media == JSON:
            raise
        return _request("", None)
    return _of_members(body, members, endpoint)


def _of_members(body: Body, members: tuple[Member, ...], endpoint: str) -> CallerRequest:
    found: dict[str, Member] = {}
    for member in members:
        if member.key in _READ and member.key in found:
            raise RequestRefused(400, "duplicate_key", param=member.key)
        found[member.key] = member
    values: dict[str, Any] = {
        name: small_value(body, found[name])
        for name in ("model", "stream", "stream_format")
        if name in found
    }
    named = values.get("model") is not None
    legacy = endpoint == COMPLETIONS
    stream = boolean(values.get("stream"), "stream") or values.get("stream_format") == "sse"
    return _request(
        check_model(values["model"]) if named else "",
        found["model"] if named else None,
        stream=stream,
        choices=_choices(body, found) if legacy else 1,
        members=members,
        options_at=found.get("stream_options"),
        usage_unasked=legacy and stream and _asks_no_usage(body, found.get("stream_options")),
    )


def _asks_stream(endpoint: str, query: str) -> bool:
    """Whether a stored response is asked for as its events."""
    said = parse_qs(query).get("stream", []) if endpoint.startswith(STORED_RESPONSES) else []
    return any(_SWITCHES.get(each.strip().lower(), False) for each in said)


def _asks_no_usage(body: Body, options: Member | None) -> bool:
    """Whether usage may be asked for behind the caller's back: its options ask for none, and are such that more can be put into them."""
    value = None if options is None else member_value(body, options, bytes_max=INLINE_BYTES_MAX)
    return value is None or (isinstance(value, dict) and value.get("include_usage") is not True)


def _choices(body: Body, found: dict[str, Member]) -> int:
    """How many choices come: `n` for each prompt."""
    each = choices_in(small_value(body, found["n"]) if "n" in found else None)
    prompt = found.get("prompt")
    if prompt is None or body[prompt.value_start : prompt.value_start + 1] != b"[":
        return each
    first = first_word(body, prompt.value_start + 1)
    if body[first] not in _LISTED:
        return each
    try:
        # In one call: what it costs is bounded by the body's own limit, and only who completes a list of prompts pays it.
        prompts = scan_elements(
            body, start=prompt.value_start, depth_max=4, elements_max=PROMPTS_MAX
        )
    except JsonRefused as error:
        raise RequestRefused(400, "invalid_value", param="prompt") from error
    return each * len(prompts)


def _of_form(fields: dict[str, Field]) -> CallerRequest:
    model, stream = fields.get("model"), fields.get("stream")
    said = stream.text.strip().lower() if stream is not None else ""
    if said not in _SWITCHES:
        raise RequestRefused(400, "invalid_type", param="stream")
    if model is None:
        return _request("", None, stream=_SWITCHES[said])
    place = Member("model", model.start, model.start, model.end)
    return _request(check_model(model.text), place, stream=_SWITCHES[said], form=True)


def _request(
    model: str,
    model_at: Member | None,
    *,
    stream: bool = False,
    choices: int = 1,
    members: tuple[Member, ...] = (),
    form: bool = False,
    options_at: Member | None = None,
    usage_unasked: bool = False,
) -> CallerRequest:
    return CallerRequest(
        model=model,
        stream=stream,
        include_usage=False,
        choices=choices,
        needs=frozenset(),
        model_at=model_at,
        members=members,
        form=form,
        options_at=options_at,
        usage_unasked=usage_unasked,
    )
