#!/usr/bin/env bash
# What a machine with a GPU, borrowed for minutes, has to run, each part a command that can be repeated alone:
#
#   tools/gpu_session.sh pack BUILD FOLDER     stripped binaries of a build into FOLDER, to be carried there
#   tools/gpu_session.sh tests FOLDER          the whole gpu label, in shards
#   tools/gpu_session.sh memcheck FOLDER [FILTER]    compute-sanitizer over small kernel tests; racecheck, synccheck too
#   tools/gpu_session.sh bench FOLDER          the expert layer's matrix, attention, products, sampling
#
# Run from the repository's root there: whole-model tests read tests/goldens.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-}
folder=${2:-}
small='GroupedExperts.SmallBatch*:ExactExperts.*:ExpertPlan.*:Router.*:DeviceElementary.*'

usage() {
  sed -n '4,7s/^#   //p' tools/gpu_session.sh >&2
  exit 2
}

# Each shard is a process of its own, so that a broken one leaves the rest.
tests() {
  local shards=8 start=$SECONDS failed=0
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i "$folder/gpu_tests" --gtest_brief=1 >"$folder/shard.$i.log" 2>&1 &
  done
  for job in $(jobs -p); do wait "$job" || failed=$((failed + 1)); done
  grep -hE 'FAILED|PASSED|broken invariant' "$folder"/shard.*.log | sort | uniq -c
  echo "gpu tests: $((shards - failed)) of $shards shards passed in $((SECONDS - start)) s"
  [ "$failed" = 0 ] && python3 tests/gpu/memory_test.py "$folder/motley"
}

case $what in
  pack)
    out=${3:-}
    [ -d "$folder" ] && [ -n "$out" ] || usage
    mkdir -p "$out"
    for program in tests/gpu_tests motley; do
      strip -o "$out/$(basename "$program")" "$folder/$program"
    done
    for program in expert_layer/bench_expert_layer attention/bench_attention dense_linear/bench_dense_linear \
      bench_gpu_sampling bench_gpu_layer_stack; do
      if [ -x "$folder/bench/$program" ]; then
        strip -o "$out/$(basename "$program")" "$folder/bench/$program"
      fi
    done
    du -ch "$out/gpu_tests" "$out/motley" | tail -1
    ;;
  tests) [ -x "$folder/gpu_tests" ] || usage; tests ;;
  memcheck | racecheck | synccheck)
    [ -x "$folder/gpu_tests" ] || usage
    compute-sanitizer --tool "$what" --error-exitcode 1 "$folder/gpu_tests" --gtest_brief=1 \
      --gtest_filter="${3:-$small}"
    ;;
  bench)
    [ -x "$folder/bench_expert_layer" ] || usage
    for format in bf16 int4; do
      for adapters in 0 1 4 32 64; do
        "$folder/bench_expert_layer" bench "$format" "$adapters" 1 8 32 64 128 512 2048 8192
      done
    done
    "$folder/bench_attention"
    "$folder/bench_dense_linear"
    "$folder/bench_gpu_sampling"
    ;;
  *) usage ;;
esac
