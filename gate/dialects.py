"""Dialects: how a provider is told to go on with an answer that has begun, and what of the request has to change for it.

    vllm        chat: the answer as a last assistant message, `continue_final_message` true and `add_generation_prompt` false beside it
                responses: an output item that says it is incomplete
    prefix      the last message says `prefix: true`
    partial     the last message says `partial: true`
    assistant   the last message is enough
    none        it can't be told

Sources: the servers' own API references (vLLM, DeepSeek and Mistral, Model Studio, llama.cpp). `none` is the default, because a server that does
not know the flag begins anew, or takes the text for the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gate.config import Prefill

__all__ = ["CEILINGS", "can_continue", "continuation_item", "flags", "lowered"]

CEILINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "/v1/chat/completions": ("max_tokens", "max_completion_tokens"),
    "/v1/responses": ("max_output_tokens",),
}
"""The members that bound an answer's tokens, by endpoint."""

_CHAT: Final = "/v1/chat/completions"
_MARKS: Final[Mapping[str, Mapping[str, bool]]] = {
    "vllm": {},
    "prefix": {"prefix": True},
    "partial": {"partial": True},
    "assistant": {},
}
_RESPONSES: Final = frozenset({"vllm"})


def can_continue(dialect: Prefill, endpoint: str) -> bool:
    """Whether a provider of this dialect can be asked at this endpoint to go on."""
    return dialect in (_MARKS if endpoint == _CHAT else _RESPONSES)


def continuation_item(dialect: Prefill, endpoint: str, prefix: str) -> bytes:
    """The last item of the request, JSON, which holds `prefix`, the answer so far."""
    if endpoint == _CHAT:
        return msgspec.json.encode({"role": "assistant", "content": prefix, **_MARKS[dialect]})
    part = {"type": "output_text", "text": prefix, "annotations": []}
    return msgspec.json.encode(
        {"type": "message", "role": "assistant", "status": "incomplete", "content": [part]}
    )


def flags(dialect: Prefill, endpoint: str) -> Mapping[str, bytes]:
    """The members beside the item, JSON by name."""
    if dialect == "vllm" and endpoint == _CHAT:
        # The default of the second, true, would open another turn behind the message.
        return {"continue_final_message": b"true", "add_generation_prompt": b"false"}
    return {}


def lowered(ceilings: Mapping[str, int], produced: int) -> Mapping[str, bytes] | None:
    """The caller's ceilings less the tokens that were produced; None where one of them leaves nothing to go on with."""
    left = {name: ceiling - produced for name, ceiling in ceilings.items()}
    if any(rest <= 0 for rest in left.values()):
        return None
    return {name: b"%d" % rest for name, rest in left.items()}
