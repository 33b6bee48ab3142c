// Rows of rank space for tall tiles, which don't shrink for themselves.
#pragma once

#include "base/result.h"
#include "base/stream_handle.h"
#include "kernels/cuda/grouped/layer.cuh"

namespace motley::kernels::cuda::grouped {

// Of all pieces at a seam. At the first one behind the plan; at the second, right behind the kernel
// that makes h, while it drains: `h_parts` say by LayerParams' tile_done that a tile's h is there.
Result<void> shrink_pieces(const LayerParams& params, int seam, Pages pages, int h_parts,
                           int multiprocessors, StreamHandle stream);

}  // namespace motley::kernels::cuda::grouped
