#!/usr/bin/env bash
# Calls and JSON of llama.cpp, with and without the gateway: how many are as asked for. Prints the figures, exits 1 if the gateway let anything broken through.
#
#   ops/e2e/tools.sh [VENV]
#
# The model is small and the server does not hold it to its tools: most of what is asked of it has to end in an error, and none of it in a call that is broken or left in the text.
# COUNT: how often the most telling are asked (40), the others a quarter of that; about ten minutes in all. VENV and the gateway are those of llamacpp.sh.
set -euo pipefail
# shellcheck source=ops/e2e/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

start_llamacpp
start_gateway llamacpp "$upstream/v1" smollm2-135m
# Its grammars leave out that no two of some numbers may be equal.
check_demands "$upstream" smollm2-135m '{"uniqueItems": true}'
stop_gateway
