#!/usr/bin/env bash
# Compiles the CUDA sources that changed since .ci/whole/cuda, and those that include what changed, where nvcc is:
# tools/build_changed_cuda.sh JOBS. `make test-long PARTS=cuda` compiles and links everything.
set -euo pipefail
cd "$(dirname "$0")/.."
count=$(tools/changed_cuda.py | wc -l)
if [ "$count" = 0 ]; then
  echo "no CUDA source changed"
  exit 0
fi
if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  echo "$count CUDA sources changed, and there is no nvcc here: they are not compiled"
  exit 0
fi
tools/configure.sh cuda-objects
mapfile -t objects < <(tools/changed_cuda.py build/cuda-objects)
tools/build.sh cuda-objects "$1" "${objects[@]}"
