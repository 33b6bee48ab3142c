// Tensor maps, which describe boxes of a tensor in global memory to bulk copies.
#pragma once

#include <array>
#include <cstdint>

#include <cuda.h>
#include <cudaTypedefs.h>

#include "base/result.h"

namespace motley::kernels::cuda {

// The driver's function.
using TensorMapEncoder = PFN_cuTensorMapEncodeTiled_v12000;
Result<TensorMapEncoder> find_tensor_map_encoder();

enum class BoxElement : std::uint8_t { bf16, byte };

// A tensor, innermost dimension first, in boxes whose rows have the 128-byte swizzle.
// Elements of a box outside of the tensor read as zero.
template <int dimensions>
struct TensorBoxes {
  const void* data = nullptr;
  std::array<std::int64_t, dimensions> sizes{};
  // of all dimensions except the innermost, in elements
  std::array<std::int64_t, dimensions - 1> strides{};
  std::array<std::uint32_t, dimensions> box{};
  BoxElement element = BoxElement::bf16;
};
Result<CUtensorMap> encode(TensorMapEncoder encoder, const TensorBoxes<2>& boxes);
Result<CUtensorMap> encode(TensorMapEncoder encoder, const TensorBoxes<4>& boxes);

}  // namespace motley::kernels::cuda
