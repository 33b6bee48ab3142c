#!/usr/bin/env bash
# Runs every fuzz target of a fuzz build: tools/fuzz.sh FOLDER. SECONDS_EACH (default 60) bounds the
# time of each, or RUNS the number of inputs. New inputs that reach new code stay under build/.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
bound=(-max_total_time="${SECONDS_EACH:-60}")
[ -z "${RUNS:-}" ] || bound=(-runs="$RUNS")
for target in "$folder"/fuzz_*; do
  name=$(basename "$target")
  name=${name#fuzz_}
  found=build/fuzz-corpus/$name
  mkdir -p "$found"
  printf '== %s\n' "$name"
  "$target" "${bound[@]}" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz-corpus/$name-" "$found" "fuzz/corpus/$name" 2>"build/fuzz-$name.log" || {
    tail -n 40 "build/fuzz-$name.log" >&2
    printf 'fuzz: %s found something; the input is beside build/fuzz-corpus/\n' "$name" >&2
    exit 1
  }
  grep -E '^(Done|stat::)' "build/fuzz-$name.log"
done
