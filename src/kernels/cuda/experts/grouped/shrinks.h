// Rows of rank space for tall tiles, which don't shrink for themselves.
#pragma once

#include "base/result.h"
#include "base/system/stream_handle.h"
#include "kernels/cuda/experts/grouped/layer.cuh"

namespace motley::kernels::cuda::grouped {

// Of all pieces at a seam. At the first one behind the plan; at the second, right behind the kernel
// that makes h, while it drains: `h_parts` say by LayerParams' tile_done that a tile's h is there.
struct ShrinkPieces {
  int seam;
  FactorType factors;
  int h_parts;
};
void shrink_pieces(const LayerParams& params, const ShrinkPieces& which, StreamHandle stream);
// Sets the attributes of the kernels, on the current device.
Result<void> prepare_shrinks();

}  // namespace motley::kernels::cuda::grouped
