// Stands in for cuda_backends.cc in a build without CUDA.

#include "moe/cuda/cuda_backends.h"

namespace motley::moe {

std::span<const Backend* const> cuda_backends() { return {}; }

}  // namespace motley::moe
