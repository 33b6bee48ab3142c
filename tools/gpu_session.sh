#!/usr/bin/env bash
# What a machine with a GPU, borrowed for minutes, has to run, each part a command that can be repeated alone:
#
#   tools/gpu_session.sh pack BUILD FOLDER     stripped binaries of a build into FOLDER, to be carried there
#   tools/gpu_session.sh needs FOLDER [COMMIT] or what a build there needs; of COMMIT, too, to compare with
#   tools/gpu_session.sh build FOLDER TARGET...      there, of the tree that lies there: build/there
#   tools/gpu_session.sh compare FOLDER OPTIONS...   there: `motley bench OPTIONS` of COMMIT and of the tree, in turns
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
  sed -n '4,10s/^#   //p' tools/gpu_session.sh >&2
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

# Warnings of another compiler are none of ours.
configure() {
  local source=$1 build=$2
  shift 2
  cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMOTLEY_CUDA=ON \
    -DMOTLEY_CUDA_ARCHITECTURES=90a-real "-DCMAKE_PREFIX_PATH=$there/gtest;$there/yaml" \
    -DMOTLEY_XGRAMMAR="$(echo "$there"/packages/xgrammar-*)" "$@" >"$there/configure.log" 2>&1 ||
    { tail -n 30 "$there/configure.log" && exit 1; }
  sed -i 's/-Werror=all-warnings//g; s/-Werror//g' "$build/build.ninja"
}

make_targets() {
  ninja -C "$@" >"$there/build.log" 2>&1 || { grep -E -A 10 'FAILED|error' "$there/build.log" | head -n 60 && exit 1; }
}

# What the machine has no packages of: GoogleTest, libyaml, xgrammar's sources.
unpack() {
  exec {lock}>"$there.lock"
  flock "$lock"
  if [ -d "$there/gtest" ]; then flock -u "$lock" && return; fi
  mkdir -p "$there"
  tar -xf "$folder/needs.tar.xz" -C "$there"
  cmake -S "$there/googletest" -B "$there/gtest-build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$there/gtest" >"$there/configure.log" 2>&1
  make_targets "$there/gtest-build" install
  flock -u "$lock"
}

compare() {
  local other=$there/other-build/motley one
  if [ ! -x "$other" ]; then
    mkdir -p "$there/other"
    tar -xf "$folder/other.tar.xz" -C "$there/other"
    configure "$there/other" "$there/other-build" -DMOTLEY_TESTS=OFF -DMOTLEY_BENCH=OFF
    make_targets "$there/other-build" motley
    other=$(find "$there/other-build" -name motley -type f -perm -1 -print -quit)
  fi
  for _ in 1 2 3; do
    for one in "$other" "$(find build/there -name motley -type f -perm -1 -print -quit)"; do
      "$one" bench --device cuda --steps 20 --prefill none "$@" |
        awk -v which="$one" '/^(decode|prompts)/ {print which == "'"$other"'" ? "other" : "tree", $2, $3, $4}'
    done
  done | awk '{key = $2 " rows, " $3 " adapters"; name = $1 SUBSEP key
               if (!(key in seen)) {seen[key] = ++count; keys[count] = key}
               if (!(name in best) || $4 < best[name]) best[name] = $4}
       END {for (i = 1; i <= count; ++i) {
              other = best["other" SUBSEP keys[i]]; tree = best["tree" SUBSEP keys[i]]
              printf "%-28s %8.3f -> %8.3f ms  %.3f\n", keys[i], other, tree, tree / other}}'
}

there=/tmp/gpu-session
export CPATH=$there/yaml/include

case $what in
  needs)
    [ -n "$folder" ] || usage
    mkdir -p "$folder/yaml/include" "$folder/yaml/lib"
    cp /usr/include/yaml.h "$folder/yaml/include"
    cp /usr/lib/*/libyaml.a "$folder/yaml/lib"
    tar -cJf "$folder/needs.tar.xz" -C /usr/src googletest -C "$PWD/.cache" packages -C "$PWD/$folder" yaml
    rm -r "$folder/yaml"
    if [ $# -gt 2 ]; then
      git archive "$3" src cmake CMakeLists.txt CMakePresets.json bench fuzz tools | xz >"$folder/other.tar.xz"
    fi
    ;;
  build)
    unpack
    [ -f build/there/build.ninja ] || configure . build/there
    make_targets build/there "${@:3}"
    ;;
  compare)
    unpack
    compare "${@:3}"
    ;;
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
