#!/bin/sh
# Runs the prototype: correctness first, then the card's ceiling and the times; decode before prefill, for after sustained
# products the clock stays low for a while. $1: the program; $2 "sanitize": compute-sanitizer over small sizes as well.
set -e
nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv,noheader
timeout 60 "$1" check
"$1" ceilings
timeout 60 "$1" bench 1 8 64
timeout 120 "$1" bench 512 2048 8192
if [ "$2" = sanitize ]; then
  for tool in memcheck racecheck; do
    echo "compute-sanitizer $tool"
    timeout 150 compute-sanitizer --tool $tool --kernel-regex kns=expert_layer_kernel \
      "$1" check 1 8 64 2>&1 | tail -20
  done
fi
