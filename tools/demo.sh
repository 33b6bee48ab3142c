#!/usr/bin/env bash
# Shows what motley does so far, on the models and adapters of tests/goldens: tools/demo.sh MOTLEY
set -euo pipefail
cd "$(dirname "$0")/.."
motley=$1
model=tests/goldens/qwen3_moe
start=$SECONDS

show() {
  printf '\n$ motley %s\n' "$*"
  "$motley" "$@"
}

# A command that must fail, with its answer.
show_refusal() {
  printf '\n$ motley %s\n' "$*"
  if "$motley" "$@" 2>&1; then
    echo "demo: that should have been refused" >&2
    exit 1
  fi
}

show --version
show inspect "$model"
show inspect "$model/adapters/experts"
show_refusal inspect "$model/adapters/refused_pickle"
show_refusal inspect "$model/adapters/refused_truncated"
show_refusal serve "$model"
printf '\ndemo: done in %s s. So far motley reads and checks models and adapters; serving them comes next (README.md).\n' \
  $((SECONDS - start))
