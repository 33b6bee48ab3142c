#pragma once

#include <span>

#include "moe/backend.h"

namespace motley::moe {

// The fastest first. A build without CUDA has this function too: there it gives none.
std::span<const Backend* const> cuda_backends();

}  // namespace motley::moe
