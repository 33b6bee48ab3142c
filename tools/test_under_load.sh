#!/usr/bin/env bash
# All tests of the gate, release and sanitized, three times in a row beside four busy processes:
# tools/test_under_load.sh JOBS [ROUNDS [BUSY]]. Built once. A test that fails here fails by the machine and not by the
# change: it is a defect.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=$1 rounds=${2:-3} busy=${3:-4}
export MOTLEY_CONFIGURE="-DMOTLEY_CUDA=OFF -DMOTLEY_BENCH=OFF" CTEST_PARALLEL_LEVEL=$jobs
tools/build.sh release "$jobs" && tools/gate_sanitized.sh build "$jobs" || exit 1

pids=()
trap 'kill "${pids[@]}" 2>/dev/null' EXIT
for ((i = 0; i < busy; ++i)); do
  (while :; do :; done) &
  pids+=($!)
done
failed=0
for ((round = 1; round <= rounds; ++round)); do
  for preset in release asan; do
    start=$SECONDS
    tests=(tools/test.sh release)
    [ $preset = release ] || tests=(tools/gate_sanitized.sh test)
    if "${tests[@]}" >"build/load-$preset-$round.log" 2>&1; then verdict=passed; else
      verdict=FAILED
      failed=$((failed + 1))
      grep -E '^\s+[0-9]+ - .*\((Failed|Timeout|.*)\)$' "build/load-$preset-$round.log"
    fi
    printf 'round %d, %s: %s in %d s beside %d busy processes\n' "$round" "$preset" "$verdict" $((SECONDS - start)) "$busy"
  done
done
sed -n '/the slowest, in seconds/,$p' "build/load-release-$rounds.log" | head -n 31
[ "$failed" = 0 ]
