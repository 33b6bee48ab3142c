// Launches of one layer: the sort, the expert kernel once or twice, the sum. Each launch but the
// first may start while the one before it drains.
#include <algorithm>

#include <cudaTypedefs.h>

#include "host.h"
#include "layer_kernel.cuh"
#include "plan.cuh"

namespace expert_layer {

CUtensorMap make_map(const void* base, uint64_t rows, uint64_t cols, uint32_t box_rows) {
  static PFN_cuTensorMapEncodeTiled_v12000 encode = nullptr;
  if (encode == nullptr) {
    cudaDriverEntryPointQueryResult found;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled",
                                                reinterpret_cast<void**>(&encode), 12000,
                                                cudaEnableDefault, &found));
  }
  CUtensorMap map;
  uint64_t dims[2] = {cols, rows}, strides[1] = {cols * 2};
  uint32_t box[2] = {64, box_rows}, steps[2] = {1, 1};
  CUresult r =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(base), dims, strides, box,
             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) std::printf("tensor map: %d\n", static_cast<int>(r)), std::exit(1);
  return map;
}

static void launch(const void* kernel, int grid, int threads, int shared, bool overlap, void** args,
                   cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  CHECK_CUDA(cudaLaunchKernelExC(&config, kernel, args));
}

void launch_layer(const Config& c, const LayerParams& params, const KernelMaps& maps,
                  int multiprocessors, cudaStream_t stream) {
  LayerParams p = params;
  p.max_width = c.max_width;
  void* plan_args[] = {&p};
  int blocks = (p.pairs + kPlanThreads - 1) / kPlanThreads;
  bool inside = c.blocks == 1;  // the sort is the expert kernel's own
  if (inside && (p.pairs > kInsidePairs || !c.whole_layer || !c.combine_inline)) {
    std::printf("tiles of 128 rows sort inside: few pairs, one launch\n");
    std::exit(1);
  }
  if (!inside && blocks > 1)
    launch(reinterpret_cast<void*>(plan_count), blocks, kPlanThreads, 0, false, plan_args, stream);
  if (!inside)
    launch(reinterpret_cast<void*>(plan_scatter), blocks, kPlanThreads, 0, blocks > 1, plan_args,
           stream);
  if (c.parts < 2) return;
  const void* kernel = c.format == Format::kBf16 ? bf16_kernel(c) : int4_kernel(c);
  if (kernel == nullptr) std::printf("no such kernel instance\n"), std::exit(1);
  LaunchParams l{};
  l.window = c.window;
  l.combine_inline = c.combine_inline, l.in_turn = c.in_turn, l.gather = c.gather;
  bool bf16 = c.format == Format::kBf16;
  l.token_bytes = c.max_width * 128 * (bf16 ? 1 : 2) * (c.split ? 2 : 1);
  if (bf16 && c.adapters > 0 && !c.split) l.token_bytes *= 2;  // a shrink stage holds 128 k
  int weights = bf16 ? (c.blocks == 1 ? TileShape<Format::kBf16, 1, false>::kWeightBytes
                                      : TileShape<Format::kBf16, 2, false>::kWeightBytes)
                     : (c.blocks == 1 ? TileShape<Format::kInt4, 1, false>::kWeightBytes
                                      : TileShape<Format::kInt4, 2, false>::kWeightBytes);
  cudaFuncAttributes attributes;
  CHECK_CUDA(cudaFuncGetAttributes(&attributes, kernel));
  // 228 KB a multiprocessor, 1 KB of it a block's own
  int budget =
      228 * 1024 / c.blocks_per_sm - 1024 - static_cast<int>(attributes.sharedSizeBytes) - 1024;
  int stage = weights + l.token_bytes, row = kHidden * 2;
  l.depth = std::min((budget - (inside || c.gather ? 0 : 2 * row)) / stage, kMaxStages);
  if (l.depth < 3) std::printf("too few stages\n"), std::exit(1);
  l.permute_lanes =
      inside || c.gather ? 0 : std::min((budget - l.depth * stage) / row, kPermuteLanes);
  int shared = l.depth * stage + l.permute_lanes * row + 1024;
  CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  KernelMaps m = maps;
  m.x_row = make_map(p.x, p.tokens, kHidden, 1);
  void* args[] = {&p, &l, &m};
  int grid = multiprocessors * c.blocks_per_sm;
  if (c.whole_layer) {
    l.phase = kWholeLayer;
    launch(kernel, grid, kThreads, shared, true, args, stream);
  } else {
    l.phase = kOnlyGateUp, l.cursor = 0;
    launch(kernel, grid, kThreads, shared, true, args, stream);
    if (c.parts < 3) return;
    l.phase = kOnlyDown, l.cursor = 1;
    launch(kernel, grid, kThreads, shared, true, args, stream);
  }
  if (!c.combine_inline && c.parts > 3)
    launch(reinterpret_cast<void*>(combine), p.tokens, kHidden / 8, 0, true, plan_args, stream);
}

}  // namespace expert_layer
