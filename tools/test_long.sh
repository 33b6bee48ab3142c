#!/usr/bin/env bash
# What a change need not wait for: tools/test_long.sh JOBS [PART...]
#
#   tidy      clang-tidy over the whole tree
#   headers   every file compiled alone (preset debug), so that none leans on another's includes
#   cuda      everything compiled with CUDA, where nvcc is
#   sanitized all tests under the address and undefined-behaviour sanitizers
#   volume    tests of the label long: soaks, hostile times, memory as the system sees it
#   load      the gate's tests three times in a row beside busy processes, release and sanitized
#   threads   thread sanitizer over the engine, the server's sockets and ranks
#   coverage  what the tests run of each module
#   fuzz      libFuzzer over every parser for a minute each
#
# Without a part all of them run, one after the other, and a summary says which failed. `today` is one of them, by the
# date. The records of `tidy` and `cuda` under .ci/whole are what the gate compares a change with: commit them.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=$1
shift
all=(tidy headers cuda sanitized volume load threads coverage fuzz)

tidy() {
  tools/setup.sh build lint && tools/configure.sh tidy && tools/lint.py --jobs "$jobs" build/tidy
}
headers() { tools/setup.sh build && tools/build.sh debug "$jobs"; }
cuda() {
  if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
    echo "cuda: no nvcc here"
    return 0
  fi
  tools/setup.sh build && tools/build.sh cuda "$jobs" && mkdir -p .ci/whole &&
    printf '%s: all CUDA sources compiled\n' "$(date +%F)" >.ci/whole/cuda
}
sanitized() {
  tools/setup.sh build fuzz python && tools/build.sh asan "$jobs" && MOTLEY_SLOW_TESTS=1 tools/test.sh asan
}
volume() {
  tools/setup.sh build python && tools/build.sh release "$jobs" &&
    ctest --preset long --output-junit "$PWD/build/release/tests.xml"
}
load() { tools/setup.sh build fuzz python && tools/test_under_load.sh "$jobs"; }
threads() {
  tools/setup.sh build && tools/build.sh tsan "$jobs" engine_tests server_tests core_tests &&
    ctest --preset tsan -R '^(engine_tests|server_tests|core_tests)\.'
}
coverage() { tools/setup.sh build python fuzz coverage && tools/coverage.sh "$jobs"; }
fuzz() {
  tools/setup.sh build fuzz && tools/build.sh fuzz "$jobs" && tools/fuzz.sh build/fuzz/fuzz
}

parts=("$@")
if [ ${#parts[@]} = 0 ]; then parts=("${all[@]}"); fi
for i in "${!parts[@]}"; do
  if [ "${parts[$i]}" = today ]; then parts[i]=${all[$(($(date +%s) / 86400 % ${#all[@]}))]}; fi
  if [[ ! " ${all[*]} " == *" ${parts[$i]} "* ]]; then
    printf "test-long: no part '%s': use %s, or today\n" "${parts[$i]}" "${all[*]}" >&2
    exit 2
  fi
done

failed=()
summary=()
for part in "${parts[@]}"; do
  printf '\n== %s\n' "$part"
  start=$SECONDS
  if "$part"; then verdict=passed; else
    verdict=FAILED
    failed+=("$part")
  fi
  summary+=("$(printf '%-9s %-7s %5d s' "$part" "$verdict" $((SECONDS - start)))")
done
printf '\n'
printf '%s\n' "${summary[@]}"
[ ${#failed[@]} = 0 ]
