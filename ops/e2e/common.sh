# Shared by the scripts beside it, which source it with their own arguments: a scratch folder, a virtual environment, the gateway, and the checks.
# shellcheck shell=bash
#
#   make_venv PACKAGE...                     the SDK and the given packages, in $venv
#   line_after FILE START PID                what follows START in the line that the process PID writes to FILE
#   start_gateway NAME BASE_URL MODEL        sets $gate (its process) and $url; the alias is `smol`
#   check_with_curl MEMBERS                  MEMBERS: more members of the request, each with a comma behind it
#   check_with_sdk UPSTREAM MODEL BUSY EXTRA BUSY: how the server tells what it is working on, `slots` or `metrics`; EXTRA: a JSON object
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
    "$tidegate" serve --config "$work/gate.toml" >"$work/gate.log" 2>"$work/gate.err" &
    gate=$!
    started+=("$gate")
    url=$(line_after "$work/gate.log" "tidegate: listening on " "$gate")
    url=${url%%;*}
    echo "$1 at $2, tidegate at $url"
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

stop_gateway() {
    kill -TERM "$gate"
    local code=0
    wait "$gate" || code=$?
    [ "$code" = 0 ] || fail "the gateway ended with $code: $(cat "$work/gate.err")"
    if grep -q -e Traceback -e crashed "$work/gate.err"; then fail "the gateway's log: $(cat "$work/gate.err")"; fi
    echo "all well"
}
