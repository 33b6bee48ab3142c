#include "kernels/cuda/primitives/tensor_map.h"

#include <algorithm>

#include <cuda_runtime_api.h>

#include "base/cat.h"

namespace motley::kernels::cuda {
namespace {

template <int dimensions>
Result<CUtensorMap> encode_boxes(TensorMapEncoder encoder, const TensorBoxes<dimensions>& boxes) {
  const bool bf16 = boxes.element == BoxElement::bf16;
  const cuuint64_t number_bytes = bf16 ? 2 : 1;
  cuuint64_t sizes[dimensions];
  cuuint64_t strides[dimensions - 1];
  cuuint32_t steps[dimensions];
  std::ranges::copy(boxes.sizes, sizes);
  std::ranges::transform(boxes.strides, strides, [&](std::int64_t stride) {
    return static_cast<cuuint64_t>(stride) * number_bytes;
  });
  std::ranges::fill(steps, 1U);
  CUtensorMap map;
  const CUresult status =
      encoder(&map, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8,
              dimensions, const_cast<void*>(boxes.data), sizes, strides, boxes.box.data(), steps,
              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status == CUDA_SUCCESS) return map;
  return Error(ErrorCode::internal,
               cat("the driver refuses a tensor map of ", boxes.sizes[1], " x ", boxes.sizes[0],
                   " numbers (", static_cast<int>(status), ")"),
               "cuda", "report it with the model's sizes");
}

}  // namespace

Result<TensorMapEncoder> find_tensor_map_encoder() {
  cudaDriverEntryPointQueryResult found{};
  void* entry = nullptr;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault,
                                       &found) != cudaSuccess ||
      entry == nullptr)
    return Error(ErrorCode::unavailable, "the GPU's driver has no cuTensorMapEncodeTiled", "cuda",
                 "install a driver for CUDA 12 or later");
  return reinterpret_cast<TensorMapEncoder>(entry);
}

Result<CUtensorMap> encode(TensorMapEncoder encoder, const TensorBoxes<2>& boxes) {
  return encode_boxes(encoder, boxes);
}

Result<CUtensorMap> encode(TensorMapEncoder encoder, const TensorBoxes<4>& boxes) {
  return encode_boxes(encoder, boxes);
}

}  // namespace motley::kernels::cuda
