#!/bin/bash
# The proof that no test fails because the machine is busy: `make test` several times with busy loops beside it.
# bash tools/test_beside_load.sh [RUNS] [LOOPS]   (five runs beside two loops unless said otherwise)
# TESTS="tests/client tests/unit" runs these in place of the whole suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs=${1:-5} loops=${2:-2} failed=0 pids=()
logs=$(mktemp -d "${TMPDIR:-/tmp}/unskew-load.XXXXXX")
stop() { for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; }
trap stop EXIT
trap 'exit 130' INT TERM

for ((loop = 0; loop < loops; loop++)); do
    python3 -c 'while True: pass' & pids+=($!)
done
for ((run = 1; run <= runs; run++)); do
    log="$logs/run-$run.log"
    if make test ${TESTS:+"TESTS=$TESTS"} >"$log" 2>&1 </dev/null; then ended=passed; else ended=failed failed=$((failed + 1)); fi
    echo "run $run of $runs $ended: $(grep -E '^=+ .* in [0-9.]+s' "$log" | tail -1 || true)"
    grep -E '^(FAILED|ERROR) ' "$log" || true
    [ $ended = passed ] || grep -qE '^=+ .* in [0-9.]+s' "$log" || tail -5 "$log"
done
echo "$failed of $runs runs failed beside $loops busy loops; logs in $logs"
[ "$failed" = 0 ]
