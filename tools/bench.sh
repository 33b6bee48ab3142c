#!/usr/bin/env bash
# Runs every benchmark program of a build: tools/bench.sh FOLDER
set -euo pipefail
shopt -s nullglob
programs=("$1"/bench_*)
if [ ${#programs[@]} = 0 ]; then
  printf 'bench: no benchmark programs in %s: build with MOTLEY_BENCH=ON\n' "$1" >&2
  exit 1
fi
for program in "${programs[@]}"; do
  printf '== %s\n' "$(basename "$program")"
  "$program"
done
