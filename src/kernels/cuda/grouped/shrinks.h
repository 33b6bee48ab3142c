// Rows of rank space for tall tiles, which don't shrink for themselves.
#pragma once

#include "base/result.h"
#include "base/stream_handle.h"
#include "kernels/cuda/grouped/layer.cuh"

namespace motley::kernels::cuda::grouped {

// Of all pieces at a seam; behind the plan, at the second seam behind h.
Result<void> shrink_pieces(const LayerParams& params, int seam, Pages pages, int multiprocessors,
                           StreamHandle stream);

}  // namespace motley::kernels::cuda::grouped
