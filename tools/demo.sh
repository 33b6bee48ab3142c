#!/usr/bin/env bash
# Shows what motley does so far, on the models and adapters of tests/goldens: tools/demo.sh MOTLEY
set -euo pipefail
cd "$(dirname "$0")/.."
motley=$1
model=tests/goldens/qwen3_moe
adapters=(experts attention shared_outer_tinker dora all_linear)
start=$SECONDS
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

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

printf '\nOne batch for the base and %s adapters at once, each in a convention of its own, compared with what\n' ${#adapters[@]}
printf 'Hugging Face and PEFT say to the same tokens in float32:\n'
options=()
cat "$model/cases/base.jsonl" >"$scratch/lines.jsonl"
for adapter in "${adapters[@]}"; do
  cat "$model/cases/$adapter.jsonl" >>"$scratch/lines.jsonl"
  options+=(--adapter "$adapter=$model/adapters/$adapter")
done
cat "$model/cases/mix.jsonl" >>"$scratch/lines.jsonl"
printf '\n$ motley score %s --adapter NAME=PATH ... --input lines.jsonl --output scores.jsonl --compute f32\n' "$model"
"$motley" score "$model" "${options[@]}" --compute f32 \
  --input "$scratch/lines.jsonl" --output "$scratch/scores.jsonl" 2>/dev/null | tr ';' '\n'
printf '\nIts first line:\n'
head -n 1 "$scratch/scores.jsonl" | cut -c 1-200

printf '\nWhat is damaged, or not what motley does, is refused by name:\n'
for refused in refused_nan refused_init_pissa refused_a_without_b refused_truncated; do
  printf '%s\n' '{"token_ids": [1, 2, 3], "adapter": "x"}' >"$scratch/line.jsonl"
  show_refusal score "$model" --adapter "x=$model/adapters/$refused" --input "$scratch/line.jsonl" \
    --output "$scratch/none.jsonl" | grep -v '^loading'
done
printf '\ndemo: done in %s s. Next: motley serve (docs/guide/http.md), or motley chat, with a model of your own.\n' \
  $((SECONDS - start))
