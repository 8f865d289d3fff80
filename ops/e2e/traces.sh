#!/usr/bin/env bash
# llama.cpp behind a gateway that records: some fifty exchanges with our own prompts, as traces for the test suite.
#
#   ops/e2e/traces.sh FILE [VENV]
#
# FILE gets the traces (tests/traces/llamacpp.trace.gz). VENV is made, or used again, for the model server. The gateway is $TIDEGATE, else .venv/bin/tidegate of
# this checkout. About 250 MB are installed, from the package index alone.
set -euo pipefail
file=$1
shift
# shellcheck source=ops/e2e/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

start_llamacpp
# A second one, with the same model, that will die in the middle of its answers.
"$venv/bin/python" "$work/server.py" >"$work/doomed.log" 2>&1 &
doomed=$!
started+=("$doomed")
mortal=$(line_after "$work/doomed.log" "READY " "$doomed")

cat >"$work/gate.toml" <<TOML
[server]
bind = "127.0.0.1:0"
drain_seconds = 5.0
[routes.live]
[routes.window.hold]
mode = "window"
tail_chars = 40
tail_ms = 50
opening_chars = 12
[routes.window.recovery]
continuation = "held"
[routes.buffered.hold]
mode = "buffered"
pings_commit = true
ping_seconds = 0.3
[routes.impatient.clocks]
first_content_seconds = 0.02
json_seconds = 0.05
[routes.impatient.recovery]
attempts_max = 2
[routes.joined.recovery]
continuation = "committed"
[routes.guarded]
filters = ["empty", "no-sky"]
[filters.no-sky]
kind = "patterns"
patterns = ["(?i)sky"]
[[providers]]
name = "llamacpp"
base_url = "$upstream/v1"
prefill = "assistant"
[[providers]]
name = "mortal"
base_url = "$mortal/v1"
prefill = "assistant"
[[providers]]
name = "raw"
base_url = "$upstream/v1"
path = "tunnel"
TOML
for route in live window buffered impatient joined guarded; do
    printf '[[models]]\nalias = "%s"\nroute = "%s"\ntargets = [{ provider = "llamacpp", model = "smollm2-135m" }]\n' "$route" "$route" >>"$work/gate.toml"
    printf '[[models]]\nalias = "%s-mortal"\nroute = "%s"\ntargets = [{ provider = "mortal", model = "smollm2-135m" }, { provider = "llamacpp", model = "smollm2-135m", priority = 1 }]\n' "$route" "$route" >>"$work/gate.toml"
done
printf '[[models]]\nalias = "raw"\nroute = "live"\ntargets = [{ provider = "raw", model = "smollm2-135m" }]\n' >>"$work/gate.toml"

"$tidegate" record --dir "$work/traces" --config "$work/gate.toml" >"$work/gate.log" 2>"$work/gate.err" &
gate=$!
started+=("$gate")
url=$(line_after "$work/gate.log" "tidegate: listening on " "$gate")
url=${url%%;*}

cat >"$work/ask.py" <<'PYTHON'
"""Asks for everything that a trace of this suite is to show; each exchange is named after what it shows."""

import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
from urllib.parse import urlsplit

gate, doomed = urlsplit(sys.argv[1]), int(sys.argv[2])
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
PARAMETERS = {"name": "get_weather", "description": "The weather in a city, for some days.", "parameters": SCHEMA}
told: list[str] = []


def ask(name, endpoint, body, *, leave=None, method="POST"):
    """One exchange; the caller leaves after so many bytes."""
    connection = http.client.HTTPConnection(gate.hostname, gate.port, timeout=60)
    data = json.dumps(body).encode() if body is not None else None
    connection.request(method, endpoint, data, {"content-type": "application/json", "x-request-id": f"llamacpp.{name}"})
    if leave == 0:
        time.sleep(0.15)
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        return
    answer, got = connection.getresponse(), b""
    try:
        while piece := answer.read1(4096):
            got += piece
            if leave is not None and len(got) >= leave:
                connection.sock.shutdown(socket.SHUT_RDWR)
                break
    except (http.client.IncompleteRead, ConnectionError):
        pass
    connection.close()
    told.append(f"{name}: {answer.status}, {len(got)} bytes")


def chat(model, said, stream=True, **members):
    return {"model": model, "stream": stream, "messages": [{"role": "user", "content": said}], "max_tokens": 24, "temperature": 0, "cache_prompt": False, **members}


def respond(model, said, stream=True, **members):
    return {"model": model, "stream": stream, "input": said, "max_output_tokens": 24, "temperature": 0, **members}


SAID = "Name three rivers."
for way in ("live", "window", "buffered", "raw"):
    ask(f"chat-{way}", CHAT, chat(way, SAID, stream_options={"include_usage": True}))
    ask(f"chat-whole-{way}", CHAT, chat(way, SAID, stream=False))
    ask(f"responses-{way}", RESPONSES, respond(way, SAID))
    ask(f"responses-whole-{way}", RESPONSES, respond(way, SAID, stream=False))
for stream in (True, False):
    form = "stream" if stream else "whole"
    ask(f"length-{form}", CHAT, chat("live", "Tell a long story.", stream, max_tokens=6))
    ask(f"responses-length-{form}", RESPONSES, respond("live", "Tell a long story.", stream, max_output_tokens=6))
    ask(f"stop-{form}", CHAT, chat("live", "Count from one to nine.", stream, stop=["five", "5"]))
    ask(f"json-object-{form}", CHAT, chat("live", "A person as JSON.", stream, response_format={"type": "json_object"}))
    schema = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}}
    ask(f"json-schema-{form}", CHAT, chat("live", "A trip to Oslo for 3 days, as JSON.", stream, response_format=schema, max_tokens=60))
    ask(f"responses-schema-{form}", RESPONSES, respond("live", "A trip to Oslo for 3 days, as JSON.", stream, text={"format": {"type": "json_schema", "name": "trip", "schema": SCHEMA}}, max_output_tokens=60))
    tools = [{"type": "function", "function": PARAMETERS}]
    ask(f"tool-{form}", CHAT, chat("live", "The weather in Oslo for 3 days?", stream, tools=tools, max_tokens=60))
    ask(f"tool-required-{form}", CHAT, chat("live", "The weather in Oslo for 3 days?", stream, tools=tools, tool_choice="required", max_tokens=60))
    ask(f"responses-tool-{form}", RESPONSES, respond("live", "The weather in Oslo for 3 days?", stream, tools=[{"type": "function", **PARAMETERS}], max_output_tokens=60))
    ask(f"completions-{form}", "/v1/completions", {"model": "live", "prompt": "Once upon", "stream": stream, "max_tokens": 12, "temperature": 0})
    ask(f"impatient-{form}", CHAT, chat("impatient", "Why is the sea salt?", stream))
    ask(f"guarded-{form}", CHAT, chat("guarded", "Repeat: the sky is blue.", stream))
    ask(f"context-length-{form}", CHAT, chat("live", "word " * 9000, stream))
ask("two-choices", CHAT, chat("live", SAID, n=2, temperature=0.8, seed=7))
ask("several-turns", CHAT, chat("window", "x", messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Bye."}]))
ask("logprobs", CHAT, chat("live", SAID, logprobs=True, top_logprobs=2, max_tokens=6))
ask("refused-member", CHAT, chat("live", SAID, temperature="warm"))
ask("other-model", CHAT, chat("nobody", SAID))
ask("embeddings", "/v1/embeddings", {"model": "live", "input": "river"})
ask("leaves-early", CHAT, chat("live", "Tell a long story.", max_tokens=200), leave=400)
ask("leaves-late", CHAT, chat("window", "Tell a long story.", max_tokens=120), leave=6000)
ask("leaves-before-a-byte", CHAT, chat("buffered", "Tell a long story.", max_tokens=300), leave=0)
ask("responses-leaves", RESPONSES, respond("live", "Tell a long story.", max_output_tokens=200), leave=3000)

# The server of the alias's first target is killed in the middle of these.
LONG = "Tell a long story of a ship."
dying = [
    ("killed-live", CHAT, chat("live-mortal", LONG, max_tokens=120)),
    ("killed-joined", CHAT, chat("joined-mortal", LONG, max_tokens=120)),
]
for group in (dying,):
    threads = [threading.Thread(target=ask, args=each) for each in group]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    os.kill(doomed, signal.SIGKILL)
    for thread in threads:
        thread.join()
for way in ("live", "window", "buffered"):
    ask(f"refused-connection-{way}", CHAT, chat(f"{way}-mortal", SAID))
    ask(f"responses-refused-connection-{way}", RESPONSES, respond(f"{way}-mortal", SAID))
print("\n".join(told))
PYTHON
python3 "$work/ask.py" "$url" "$doomed"
stop_gateway
"$tidegate" replay "$work/traces" --save "$file"
