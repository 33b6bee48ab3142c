#!/bin/sh
# Builds the prototype into the folder named by $1; fails on spills and on ptxas notes about wgmma or setmaxnreg.
set -e
here=$(dirname "$0")
out=$1
mkdir -p "$out"
for f in launch kernels_bf16 kernels_int4 main; do
  nvcc -std=c++20 -O3 $EXTRA -gencode arch=compute_90a,code=sm_90a -Xptxas -v -c "$here/$f.cu" -o "$out/$f.o" 2>"$out/$f.log" ||
    { cat "$out/$f.log"; exit 1; }
done
nvcc -gencode arch=compute_90a,code=sm_90a -cudart static "$out/launch.o" "$out/kernels_bf16.o" "$out/kernels_int4.o" "$out/main.o" -o "$out/expert_layer"
strip "$out/expert_layer"
if cat "$out"/*.log | grep -E 'C75(08|10|12|19|20)|[1-9][0-9]* bytes spill'; then
  echo "notes or spills above" >&2
  exit 1
fi
