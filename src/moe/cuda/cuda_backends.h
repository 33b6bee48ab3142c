#pragma once

#include <span>

#include "moe/backend.h"

namespace motley::moe {

// The fastest first. Empty in a build without CUDA.
std::span<const Backend* const> cuda_backends();

}  // namespace motley::moe
