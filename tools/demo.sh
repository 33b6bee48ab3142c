#!/usr/bin/env bash
# The first five minutes: serves models/demo with its adapters on the CPU, asks all of them at once, and says what next.
#   tools/demo.sh MOTLEY [PROMPT]
set -euo pipefail
cd "$(dirname "$0")/.."
motley=$1
prompt=${2:-wisdom}
model=models/demo

options=()
for adapter in "$model"/adapters/*/; do
  options+=(--adapter "$(basename "$adapter")=${adapter%/}")
done

log=$(mktemp)
server=
finish() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -f "$log"
}
trap finish EXIT
trap 'exit 130' INT TERM

bold= dim= plain=
if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; fi

printf '%s$ motley serve %s --device cpu %s ...%s\n' "$dim" "$model" "${options[*]:0:4}" "$plain"
# Its first line says where it listens; port 0 is any that is free.
exec 3< <(exec "$motley" serve "$model" "${options[@]}" --device cpu --port 0 --adapter-memory 64M --kv-memory 64M 2>"$log")
server=$!
if ! read -r line <&3; then
  cat "$log" >&2
  exit 1
fi
url=${line##* }

printf '%s$ motley ask %s "%s"%s\n\n' "$dim" "$url" "$prompt" "$plain"
"$motley" ask "$url" "$prompt" --seed 6 --max-tokens 96

cat <<NEXT

${bold}One process, one base model, $((${#options[@]} / 2)) adapters, every step one batch.${plain} Next:

  make demo PROMPT=money                  asks something else
  $motley chat $model ${options[0]} ${options[1]}
                                          talks to one of them
  docs/guide/serving.md                   your own model and adapters, on a CPU or a GPU
NEXT
