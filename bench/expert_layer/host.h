// Host face of the kernels: a configuration, and the launch of one layer on a stream.
#pragma once

#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

#include "layer.cuh"

namespace expert_layer {

#define CHECK_CUDA(call)                                                                    \
  do {                                                                                      \
    cudaError_t error_ = (call);                                                            \
    if (error_ != cudaSuccess) {                                                            \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
      std::exit(1);                                                                         \
    }                                                                                       \
  } while (0)

struct Config {
  Format format;
  bool whole_layer;     // one launch for gate_up, down (and the sum), or one each
  bool combine_inline;  // the sum in the down tiles' epilogue
  int blocks;           // 64-row blocks a consumer warpgroup holds: tiles of 128 x blocks rows
  bool split;           // both warpgroups on the same 64 rows, k halved
  int max_width;        // widest N
  int blocks_per_sm;
  int window;            // whole layer: segments between a gate_up tile and its down tiles
  bool in_turn = false;  // static order of items
  int adapters = 0;      // tokens use adapter t % adapters; 0: the kernel without them
  bool gather = false;   // tiles of 256 rows: copy token rows from x, do not permute x first
  int parts = 4;  // for timing: 1 only the sort, 2 and gate_up, 3 and down, 4 all (split launches)
};

// The kernel instance of a configuration; null where none was built.
const void* bf16_kernel(const Config& c);
const void* int4_kernel(const Config& c);

// Stages that fit, the launches in their order. `multiprocessors`: of the device.
void launch_layer(const Config& c, const LayerParams& p, const KernelMaps& maps,
                  int multiprocessors, cudaStream_t stream);

CUtensorMap make_map(const void* base, uint64_t rows, uint64_t cols, uint32_t box_rows);

}  // namespace expert_layer
