"""The random exchanges at the Responses API: the same routes, callers, strikes and faults, over providers that speak it, some of them thinly; and how a client reads what it gets.

`responses_case(seed, number)` is the same case every time, as `draw_case` is.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gate.config import Prefill
from gate.errors import UpstreamFault
from tests.assembly import Answer, Choice
from tests.assembly_responses import read_events, texts_of
from tests.doubles import ALIAS, COMMENT, DONE, FOREVER, Read
from tests.e2e.random_cases import (
    BODY_BYTES_MAX,
    BODY_SECONDS_MAX,
    BREAKS,
    Case,
    Request,
    draw_case,
)
from tests.e2e.random_runs import Wire
from tests.e2e.random_scripts import (
    BIG,
    EVENT_BYTES_MAX,
    FAULTS,
    NEVER_TOLD,
    WEIGHTS,
    WHOLE,
    Draw,
    Play,
    Said,
    Script,
    _body,
    _interrupted,
    stream,
)

PATH: Final = "/v1/responses"
GOOD: Final = frozenset({"response.completed", "response.incomplete"})
NULLABLE: Final = ("error", "incomplete_details", "instructions", "previous_response_id", "max_output_tokens", "reasoning")  # fmt: skip

# --- what an attempt says ------------------------------------------------------------------------


def event(kind: str, **members: Any) -> bytes:
    """One event. `kind` without its common beginning."""
    data = json.dumps({"type": f"response.{kind}", **members}, separators=(",", ":"), ensure_ascii=False)  # fmt: skip
    return f"event: response.{kind}\ndata: {data}\n\n".encode()


def response(name: str, status: str, *output: object) -> dict[str, Any]:
    """A response object."""
    known = {"id": name, "object": "response", "created_at": 7, "status": status, "model": "m"}
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    return {**known, "output": list(output), "incomplete_details": details, "usage": usage}


def message(name: str, text: str | None = None) -> dict[str, Any]:
    """A message, begun or whole."""
    content = [] if text is None else [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": f"msg-{name}", "type": "message", "role": "assistant", "status": "in_progress" if text is None else "completed", "content": content}  # fmt: skip


def thinking(name: str, text: str | None = None) -> dict[str, Any]:
    """A reasoning item."""
    content = [] if text is None else [{"type": "reasoning_text", "text": text}]
    return {"id": f"rs-{name}", "type": "reasoning", "summary": [], "content": content}


def draw_said(draw: Draw, number: int) -> Said:
    """What attempt `number` says. A thin provider gives no indexes and few events; some send numbers of their own, or `[DONE]`."""
    name = f"up-{number}"
    words = _words(draw, f"{number}a")
    text, thought = "".join(words), f"{number}?" if draw.chance(0.2) else ""
    thin, numbered = draw.chance(0.3), draw.chance(0.5)
    events = [event("created", response=response(name, "in_progress"))]
    events += [] if thin else [event("in_progress", response=response(name, "in_progress"))]
    output: list[object] = []
    if thought:
        at: dict[str, Any] = {} if thin else {"output_index": 0, "item_id": f"rs-{name}"}
        events += [] if thin else [event("output_item.added", output_index=0, item=thinking(name))]
        events.append(event("reasoning_text.delta", **at, delta=thought))
        output.append(thinking(name, thought))
        events += [] if thin else [event("output_item.done", output_index=0, item=output[0])]
    place: dict[str, Any] = {"output_index": len(output)}
    at = {} if thin else {**place, "item_id": f"msg-{name}", "content_index": 0}
    events += [] if thin else [event("output_item.added", **place, item=message(name))]
    for word in words:
        own = {"sequence_number": draw.randint(0, 99)} if numbered else {}
        events.append(event("output_text.delta", **own, **at, delta=word))
        events += [COMMENT] if draw.chance(0.05) else []
    if not thin:
        events.append(event("output_text.done", **at, text=text))
        events.append(event("output_item.done", **place, item=message(name, text)))
    status = draw.choice(("completed", "completed", "incomplete"))
    finishes = {len(events): 0}
    events.append(event(status, response=response(name, status, *output, message(name, text))))
    events += [DONE] if draw.chance(0.3) else []
    return Said(name, (text,), thought, tuple(events), finishes)


def _words(draw: Draw, mark: str) -> list[str]:
    count = draw.weighted({draw.randint(1, 4): 6, draw.randint(5, 15): 4, 60: 1})
    words = [mark]
    words += [f" {mark}{at}" + draw.choice(("", ".", "é", "🌊", "\\n")) for at in range(1, count)]
    if draw.chance(0.04):
        words.insert(1, BIG)  # more of them would not fit in the event at the end
    return words


# --- what goes wrong with it ---------------------------------------------------------------------


def _misnamed(draw: Draw, said: Said) -> Play:
    """The event at the end has another name than the response's status."""
    last = said.events[said.last]
    kind = "incomplete" if last.startswith(b"event: response.completed") else "completed"
    other = "completed" if kind == "incomplete" else "incomplete"
    named = last.replace(b"response.%b" % other.encode(), b"response.%b" % kind.encode())
    return Play(stream(draw, *said.events[: said.last], named), WHOLE)


def _oversized(draw: Draw, said: Said) -> Play:
    size = EVENT_BYTES_MAX // len(NEVER_TOLD) + 1
    return _interrupted(draw, said, event("output_text.delta", delta=NEVER_TOLD * size))


def _flat_error(draw: Draw, said: Said) -> Play:
    wrong = {"type": "error", "code": draw.choice(("server_error", "rate_limit_exceeded", None)), "message": NEVER_TOLD}  # fmt: skip
    return _interrupted(draw, said, b"event: error\ndata: %b\n\n" % json.dumps(wrong).encode())


def _empty(draw: Draw, said: Said) -> Play:
    begun = event("created", response=response(said.name, "in_progress"))
    blank = event("output_text.delta", delta=draw.choice((" ", "\n\n", "")))
    end = event("completed", response=response(said.name, "completed"))
    ways: tuple[list[bytes], ...] = ([], [DONE], [begun], [begun, end], [begun, blank, end])
    return Play(stream(draw, *draw.choice(ways)))


def _missing_terminal(draw: Draw, said: Said) -> Play:
    told = said.events[: said.last]
    return Play(stream(draw, *told, *([DONE] if draw.chance(0.5) else [])))


def _failed(draw: Draw, said: Said) -> Play:
    """By its status, under whichever name."""
    failed = {**response(said.name, "failed"), "error": {"code": "server_error", "message": NEVER_TOLD}}  # fmt: skip
    end = event(draw.choice(("failed", "completed")), response=failed)
    return Play(stream(draw, *said.events[: said.last], end))


def _object(draw: Draw, said: Said) -> bytes:
    items = [thinking(said.name, said.thought)] if said.thought else []
    value = response(said.name, "completed", *items, message(said.name, said.texts[0]))
    return json.dumps(value, ensure_ascii=draw.chance(0.5)).encode()


def _json_answer(draw: Draw, said: Said) -> Play:
    return _body(draw, _object(draw, said), reach=WHOLE)


def _json_cut(draw: Draw, said: Said) -> Play:
    data = _object(draw, said)
    ends = ((), [Read(fault=UpstreamFault.CUT)], [Read(after=FOREVER)])
    return _body(draw, data[: draw.randint(0, len(data) - 1)], then=draw.choice(ends))


FAULTS_HERE: Final[Mapping[str, Callable[[Draw, Said], Play]]] = {
    **FAULTS,
    "implied": _misnamed,
    "oversized": _oversized,
    "flat_error": _flat_error,
    "empty": _empty,
    "missing_terminal": _missing_terminal,
    "failed_finish": _failed,
    "json_answer": _json_answer,
    "json_cut": _json_cut,
}


def draw_script(draw: Draw, number: int, fault: str) -> Script:
    """Attempt `number`, with this fault, or any."""
    said = draw_said(draw, number)
    fault = fault or draw.weighted({name: WEIGHTS.get(name, 1) for name in FAULTS_HERE})
    return Script(fault, said, FAULTS_HERE[fault](draw, said))


# --- the case ------------------------------------------------------------------------------------

BAD_BODIES: Final[Sequence[tuple[bytes, int, str]]] = (
    (b"{", 400, "invalid_json"),
    (b'{"model":"small"}', 400, "missing_required_parameter"),
    (b'{"model":"small","input":[]}', 400, "invalid_value"),
    (b'{"model":"small","input":"a","background":true}', 400, "unsupported_parameter"),
    (b'{"model":"small","input":"a","previous_response_id":7}', 400, "invalid_type"),
)


def draw_request(draw: Draw, like: Request) -> Request:
    """A request that comes as another one does: in as many parts, with the same gaps; its input a text or items."""
    given = [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]
    members: dict[str, Any] = {"input": draw.choice(("Hi", given))}
    if draw.chance(0.3):
        members |= {"previous_response_id": "resp_0", "store": True}
    members["user"] = "u" * draw.choice((0, 10, 1_000, BODY_BYTES_MAX // 2))
    data, refusal = json.dumps({"model": ALIAS, "stream": like.stream, **members}).encode(), None
    if draw.chance(0.06):
        data, status, code = draw.choice(BAD_BODIES)
        refusal = (status, code)
    count = len(like.parts)
    if count * like.gap > BODY_SECONDS_MAX:
        refusal = (408, "body_timeout")
    size = len(data) // count + 1
    parts = tuple(data[at * size : (at + 1) * size] for at in range(count))
    return dataclasses.replace(like, parts=parts, choices=1, include_usage=True, refusal=refusal)


def responses_case(seed: int, number: int) -> Case:
    """Case `number` of a seed, as `draw_case` has it but for the request and what the providers say."""
    case = draw_case(seed, number)
    draw = Draw(f"responses {seed}/{number}")
    turn = list(FAULTS_HERE)[number // 3 % len(FAULTS_HERE)] if number % 3 == 0 else ""
    prefill: Prefill = "none" if case.prefill == "none" else "vllm"
    if prefill != "none" and not turn and draw.chance(0.6):
        turn = draw.choice(BREAKS)
    scripts = [draw_script(draw, at, turn if at == 1 else "") for at, _ in enumerate(case.scripts, 1)]  # fmt: skip
    request = draw_request(draw, case.request)
    return dataclasses.replace(case, request=request, scripts=tuple(scripts), prefill=prefill)


# --- what a caller makes of it -------------------------------------------------------------------


def read(body: bytes) -> Answer:
    """An event stream, with everything that a strict client asserts of it, as an answer."""
    got = read_events(body)
    answer = Answer()
    last = got.events[-1] if got.events else {}
    if got.response:
        kinds = {name.removeprefix("response.") for name, _, _ in got.texts}
        told = {kind: text for kind in kinds if (text := got.said(kind))}
        assert texts_of(got.response) == told, "the response is not what was said"
    for each in (one["response"] for one in got.events if "response" in one):
        answer.identities.add((each["id"], each["created_at"], each["model"]))
    answer.done = last.get("type") in GOOD
    if last.get("type") == "response.failed":
        answer.error = last["response"]["error"]
    if got.events:
        answer.choices[0] = _choice(got.text, got.said("reasoning_text"), done=answer.done)
    return answer


def read_whole(body: bytes) -> Answer:
    """One response object, with its nullable members, as an answer."""
    value = json.loads(body)
    answer = Answer()
    assert set(NULLABLE) <= value.keys()
    answer.done = value["status"] in {"completed", "incomplete"}
    assert value["error"] is None
    assert (value["status"] == "incomplete") == bool(value["incomplete_details"])
    answer.identities.add((value["id"], value["created_at"], value["model"]))
    texts = texts_of(value)
    answer.choices[0] = _choice(texts.get("output_text", ""), texts.get("reasoning_text", ""), done=answer.done)  # fmt: skip
    return answer


def _choice(text: str, thought: str, *, done: bool) -> Choice:
    return Choice(text=text, reasoning=thought, roles=["assistant"], finishes=["stop"] if done else [])  # fmt: skip


def begun(body: Any) -> str | None:
    """The answer so far, of a request as its provider sees it."""
    last = body["input"][-1] if isinstance(body["input"], list) else {}
    return last["content"][0]["text"] if last.get("role") == "assistant" else None


RESPONSES: Final = Wire(PATH, read, read_whole, begun, own_codes=False)
