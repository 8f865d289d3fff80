#!/usr/bin/env bash
# The Responses API as a strict client sees it, through the gateway: before the loopback provider and before llama.cpp with a small model, as responses and translated to chat completions.
#
#   ops/e2e/responses.sh [VENV]
#
# Events and objects are judged by the types of the Open Responses specification (the package openresponses-types). About 260 MB are installed, from the package index alone. What the small
# model can't do (calls, pictures) is asked of the loopback provider only. VENV is made, or used again; without it a temporary one goes away at the end. Exits 1 if anything is wrong.
# The gateway is $TIDEGATE, else .venv/bin/tidegate of this checkout.
set -euo pipefail
# shellcheck source=ops/e2e/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

start_llamacpp
"$venv/bin/pip" install --quiet --disable-pip-version-check openresponses-types==2.4.0

"$tidegate" provider --bind 127.0.0.1:0 >"$work/provider.log" 2>&1 &
provider=$!
started+=("$provider")
loopback=$(line_after "$work/provider.log" "listening on " "$provider")

cat >"$work/gate.toml" <<TOML
[server]
bind = "127.0.0.1:0"
drain_seconds = 5.0

[[providers]]
name = "loopback"
base_url = "$loopback"

[[providers]]
name = "llamacpp"
base_url = "$upstream/v1"

[[models]]
alias = "loopback"
targets = [{ provider = "loopback", model = "any" }]

[[models]]
alias = "loopback-chat"
route = "chat"
targets = [{ provider = "loopback", model = "any", capabilities = ["tools", "json_schema", "vision"] }]

[[models]]
alias = "mixed"
route = "held"
targets = [
  { provider = "loopback", model = "cut:4" },
  { provider = "loopback", model = "any", capabilities = ["tools", "json_schema", "vision"] },
]

[[models]]
alias = "llamacpp"
targets = [{ provider = "llamacpp", model = "smollm2-135m" }]

[[models]]
alias = "llamacpp-chat"
route = "chat"
targets = [{ provider = "llamacpp", model = "smollm2-135m", capabilities = ["tools", "json_schema"] }]

[routes.chat]
responses_over_chat = true

[routes.held]
responses_over_chat = true
hold = { mode = "buffered" }
recovery = { retry_budget_share = 1.0 }
TOML
serve_gateway

cat >"$work/suite.py" <<'PYTHON'
"""Each event and each response object against the types of the Open Responses specification, and what a client that builds an answer from events would trip over.

BASE_URL MODEL LEFT_OUT: one line for each request, but for those left out (with a comma between them); exit code 1 where one is wrong.
"""

import json
import sys
import time
import urllib.error
import urllib.request

import openresponses_types as spec
import pydantic

base, model, left_out = sys.argv[1], sys.argv[2], sys.argv[3].split(",")

EVENTS = {
    next(iter(kind.model_fields["type"].annotation)).value: kind
    for name, kind in vars(spec).items()
    if name.endswith("StreamingEvent") and name.startswith("Response")
}
# The names that servers with open models, and OpenAI, give what the specification calls response.reasoning.
for end in ("delta", "done"):
    EVENTS[f"response.reasoning_text.{end}"] = EVENTS[f"response.reasoning.{end}"]
PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather at a place now",
    "parameters": {"type": "object", "properties": {"location": {"type": "string", "description": "A town"}}, "required": ["location"]},
}


def user(content):
    return {"type": "message", "role": "user", "content": content}


CASES = {
    "basic": {"input": [user("Say hello in three words.")]},
    "string": {"input": "Say hello in three words.", "instructions": "Be brief."},
    "system": {"input": [{"type": "message", "role": "system", "content": "You are a pirate."}, user("Say hello.")]},
    "tool": {"input": [user("What is the weather in Oslo?")], "tools": [WEATHER], "tool_choice": "required"},
    "tool_result": {
        "input": [
            user("What is the weather in Oslo?"),
            {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"location": "Oslo"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
        ],
        "tools": [WEATHER],
    },
    "image": {"input": [user([{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": PICTURE}])]},
    "turns": {
        "input": [
            user("My name is Alice."),
            {"type": "message", "role": "assistant", "content": "Hello Alice!"},
            user("What is my name?"),
        ]
    },
    "turns_parts": {
        "input": [
            user([{"type": "input_text", "text": "My name is Alice."}]),
            {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [{"type": "output_text", "text": "Hello Alice!", "annotations": []}]},
            user([{"type": "input_text", "text": "What is my name?"}]),
        ]
    },
    "thoughts": {"input": "Think, then say hello.", "reasoning": {"effort": "low"}, "metadata": {"a": "b"}, "temperature": 0.5},
    "named": {"input": "What is the weather in Oslo?", "tools": [WEATHER], "tool_choice": {"type": "function", "name": "get_weather"}},
    "short": {"input": "Count from one to a hundred.", "max_output_tokens": 16},
    "format": {
        "input": "A person, as JSON.",
        "text": {"format": {"type": "json_schema", "name": "person", "strict": True, "schema": {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"], "additionalProperties": False}}},
        "max_output_tokens": 100,
    },
}


def sent(members, stream):
    body = json.dumps({"model": model, "stream": stream, "temperature": 0, "max_output_tokens": 400, **members}).encode()
    asked = urllib.request.Request(f"{base}/responses", body, {"content-type": "application/json", "authorization": "Bearer none"})
    with urllib.request.urlopen(asked, timeout=300) as answer:
        return answer.read().decode()


def readable(value):
    """The types have a schema that is always null where a format brings one; here it only has to be there."""
    if isinstance(value, list):
        return [readable(each) for each in value]
    if not isinstance(value, dict):
        return value
    told = {name: readable(each) for name, each in value.items()}
    return {**told, "schema": None} if told.get("type") == "json_schema" and "schema" in told else told


def problems(kind, value):
    try:
        kind.model_validate(readable(value))
    except pydantic.ValidationError as error:
        # Of a union, each member says what it misses: the first few tell enough.
        return [f"{value.get('type') or value.get('object')}: {'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:4]]
    return []


def told_by_events(text):
    """The response of the last event, and what is wrong with any of them."""
    wrong, last, events = [], None, []
    for block in filter(None, text.split("\n\n")):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if lines.get("data") in (None, "[DONE]"):
            continue
        said = json.loads(lines["data"])
        events.append(said)
        if lines.get("event") != said.get("type"):
            wrong.append(f"{said.get('type')} is named {lines.get('event')}")
        if said.get("sequence_number") != len(events) - 1:
            wrong.append(f"{said.get('type')} has the number {said.get('sequence_number')} at {len(events) - 1}")
        wrong += problems(EVENTS[said["type"]], said) if said.get("type") in EVENTS else [f"unknown event {said.get('type')}"]
        if said.get("type") in {"response.completed", "response.incomplete", "response.failed"}:
            last = said["response"]
    wrong += in_order(events)
    return last or {}, wrong


def in_order(events):
    """What a client that builds the answer from its events would trip over."""
    wrong, items, texts, over = [], {}, {}, set()
    for said in events:
        kind, at = said["type"], said.get("output_index")
        if kind == "response.output_item.added":
            if at in items or at != len(items):
                wrong.append(f"item {at} begins out of order")
            items[at] = said["item"]
        elif kind == "response.output_item.done":
            over.add(at)
            if said["item"]["id"] != items.get(at, {}).get("id"):
                wrong.append(f"item {at} changed its id")
        elif at is not None and (at not in items or at in over):
            wrong.append(f"{kind} for an item that is not open")
        if kind.endswith(".delta"):
            place = at, said.get("content_index"), kind
            texts[place] = texts.get(place, "") + said["delta"]
        elif kind in {"response.output_text.done", "response.reasoning_text.done"}:
            place = at, said.get("content_index"), kind.replace(".done", ".delta")
            if texts.get(place, "") != said["text"]:
                wrong.append(f"{kind} says something else than its deltas")
        elif kind == "response.function_call_arguments.done" and texts.get((at, None, kind.replace(".done", ".delta")), "") != said.get("arguments"):
            wrong.append("arguments.done says something else than its deltas")
    if over != set(items):
        wrong.append("an item has no end")
    return wrong


def judged(name, response):
    wrong = problems(spec.ResponseResource, response)
    kinds = [item["type"] for item in response.get("output", [])]
    if not kinds:
        wrong.append("no output")
    wanted = {"incomplete"} if name == "short" else {"completed", "incomplete"} if name == "format" else {"completed"}
    if response.get("status") not in wanted and not (name in {"tool", "named", "tool_result"} and response.get("status") == "incomplete"):
        wrong.append(f"status {response.get('status')}")
    if name in {"tool", "named"} and "function_call" not in kinds:
        wrong.append(f"no call in {kinds}")
    return wrong


failed = 0
for name, members in CASES.items():
    for stream in (False, True):
        if name in left_out:
            continue
        began, events = time.monotonic(), ""
        try:
            text = sent(members, stream)
            response, wrong = told_by_events(text) if stream else (json.loads(text), [])
            wrong = [*wrong, *judged(name, response)]
            events = f"{text.count('data: {')} events" if stream else ""
        except urllib.error.HTTPError as error:
            wrong = [f"{error.code}: {error.read().decode()[:300]}"]
        failed += bool(wrong)
        print(f"{'WRONG' if wrong else 'ok':5} {name}{', stream' if stream else ''} {events} {time.monotonic() - began:.1f} s")
        for each in wrong[:8]:
            print("      ", each[:300])
print(f"{failed} wrong")
sys.exit(1 if failed else 0)
PYTHON

wrong=0
judge() {
    echo "== $1"
    "$venv/bin/python" "$work/suite.py" "$url/v1" "$1" "${2:-}" || wrong=1
}

judge loopback
judge loopback-chat
judge mixed
# Cut by its ceiling, this server says that it is complete.
judge llamacpp tool,named,image,short
judge llamacpp-chat tool,named,image

stop_gateway
[ "$wrong" = 0 ] || fail "what a strict client saw"
echo "all as it should be"
