#!/usr/bin/env bash
# Configures one preset, quietly where all goes well: tools/configure.sh PRESET [CMAKE ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
log=build/configure-$preset.log
mkdir -p build

# A build folder knows where its sources are: one that was copied or moved here with the tree is of
# no use.
made_for=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "build/$preset/CMakeCache.txt" 2>/dev/null || true)
if [ -n "$made_for" ] && [ "$made_for" != "$(pwd -P)" ] && [ "$made_for" != "$PWD" ]; then
  printf 'build: build/%s was made for %s: it is removed and made anew\n' "$preset" "$made_for"
  rm -rf "build/$preset"
fi

if ! cmake --preset "$preset" "$@" >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  printf 'build: configuring %s failed; the whole output is in %s\n' "$preset" "$log" >&2
  exit 1
fi
