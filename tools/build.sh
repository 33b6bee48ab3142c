#!/usr/bin/env bash
# Configures and builds one preset, all of it or some targets: tools/build.sh PRESET JOBS [TARGET...]. Quiet where all
# goes well.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1 jobs=$2
shift 2
start=$SECONDS

# MOTLEY_CONFIGURE: more arguments for CMake, as .ci/run has them.
read -ra more <<<"${MOTLEY_CONFIGURE:-}"
tools/configure.sh "$preset" ${more[@]+"${more[@]}"}
log=build/configure-$preset.log
grep -h '^-- CUDA:' "$log" | sed 's/^-- //' || true

# Ninja redraws one line on a terminal. Elsewhere every step would be a line of its own: there the
# output goes to a log, of which only a failure is shown.
build=(cmake --build --preset "$preset" -j "$jobs")
if [ $# -gt 0 ]; then build+=(--target "$@"); fi
if [ -t 1 ]; then
  "${build[@]}"
else
  log=build/build-$preset.log
  if ! "${build[@]}" >"$log" 2>&1; then
    # Not the names of files that are built, some of which hold the word.
    excerpt=$(grep -E -A 30 '^FAILED|error:|undefined reference' "$log" | head -n 80 || true)
    [ -n "$excerpt" ] || excerpt=$(tail -n 40 "$log")
    printf '%s\n' "$excerpt" >&2
    printf 'build: %s failed; the whole output is in %s\n' "$preset" "$log" >&2
    exit 1
  fi
fi
printf 'built %s in %s s\n' "$preset" $((SECONDS - start))
