"""What a provider of the Responses API says: events as bytes, one at a time or as whole answers."""

from __future__ import annotations

import json
from typing import Any, Final

ID: Final = "resp_up"
CREATED: Final = 5
USAGE: Final = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}


def event(kind: str, **members: Any) -> bytes:
    """One event, named before its data. `kind` without its common beginning."""
    name = kind if kind == "error" else f"response.{kind}"
    data = json.dumps({"type": name, **members}, separators=(",", ":"))
    return f"event: {name}\ndata: {data}\n\n".encode()


def response(status: str = "completed", *output: Any, **members: Any) -> dict[str, Any]:
    """A response object."""
    usage = USAGE if status in {"completed", "incomplete"} else None
    known = {
        "id": ID,
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "model": "big",
    }
    return {**known, "output": list(output), "usage": usage, **members}


def created(**members: Any) -> bytes:
    """The two events that begin a stream."""
    began = response("in_progress", **members)
    return event("created", response=began) + event("in_progress", response=began)


def message(text: str | None = None, name: str = "msg_1", **members: Any) -> dict[str, Any]:
    """A message item; without a text as it begins."""
    content = [] if text is None else [{"type": "output_text", "text": text, "annotations": []}]
    status = "in_progress" if text is None else "completed"
    return {"id": name, "type": "message", "status": status, "role": "assistant", "content": content, **members}  # fmt: skip


def call(arguments: str = "", *, name: str = "sail", call_id: str = "call_1", item: str = "fc_1", **members: Any) -> dict[str, Any]:  # fmt: skip
    """A function call item."""
    return {"id": item, "type": "function_call", "status": "completed", "call_id": call_id, "name": name, "arguments": arguments, **members}  # fmt: skip


def thought(*texts: str, name: str = "rs_1") -> dict[str, Any]:
    """A reasoning item with a summary."""
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"id": name, "type": "reasoning", "summary": summary}


def added(item: Any, index: int | None = 0) -> bytes:
    """An item begins."""
    place = {} if index is None else {"output_index": index}
    return event("output_item.added", **place, item=item)


def done(item: Any, index: int | None = 0) -> bytes:
    """An item ends."""
    place = {} if index is None else {"output_index": index}
    return event("output_item.done", **place, item=item)


def text(said: str, *, index: int = 0, part: int = 0, item: str = "msg_1", **members: Any) -> bytes:
    """A piece of answer text."""
    return event("output_text.delta", item_id=item, output_index=index, content_index=part, delta=said, **members)  # fmt: skip


def arguments(said: str, *, index: int = 0, item: str = "fc_1") -> bytes:
    """A piece of a call's arguments."""
    return event("function_call_arguments.delta", item_id=item, output_index=index, delta=said)


def completed(*output: Any, status: str = "completed", **members: Any) -> bytes:
    """The end of a stream."""
    return event(status, response=response(status, *output, **members))


def answer(*words: str) -> bytes:
    """A healthy stream of one message."""
    said = "".join(words)
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    return b"".join(
        (
            created(),
            added(message()),
            event("content_part.added", **place, part=part),
            *(text(word, logprobs=[]) for word in words),
            event("output_text.done", **place, text=said, logprobs=[]),
            event("content_part.done", **place, part={**part, "text": said}),
            done(message(said)),
            completed(message(said)),
        )
    )


def spoken_call(*pieces: str, **members: Any) -> bytes:
    """A healthy stream of one call."""
    whole = call("".join(pieces), **members)
    said = event("function_call_arguments.done", item_id="fc_1", output_index=0, arguments="".join(pieces))  # fmt: skip
    events = (added({**whole, "arguments": ""}), *map(arguments, pieces), said, done(whole))
    return created() + b"".join(events) + completed(whole)
