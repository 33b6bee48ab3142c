#include "moe/cuda/cuda_backends.h"

#include <array>

#include "moe/cuda/cuda_exact.h"
#include "moe/cuda/cuda_grouped.h"

namespace motley::moe {

std::span<const Backend* const> cuda_backends() {
  static const CudaGrouped grouped(CudaGrouped::Weights::native);
  static const CudaGrouped decoded(CudaGrouped::Weights::decoded);
  static const CudaExact exact;
  static const std::array<const Backend*, 3> backends{&grouped, &decoded, &exact};
  return backends;
}

}  // namespace motley::moe
