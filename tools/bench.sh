#!/usr/bin/env bash
# Runs every benchmark program of a build: tools/bench.sh FOLDER
set -euo pipefail
for program in "$1"/bench_*; do
  printf '== %s\n' "$(basename "$program")"
  "$program"
done
