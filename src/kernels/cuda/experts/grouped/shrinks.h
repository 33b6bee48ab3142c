// Computes rank rows for tall tiles, which do not shrink themselves.
#pragma once

#include "base/result.h"
#include "base/system/stream_handle.h"
#include "kernels/cuda/experts/grouped/layer.cuh"

namespace motley::kernels::cuda::grouped {

// Shrinks places [begin, end) at a seam. At the first seam it runs behind the plan; at the second
// right behind the kernel that computes h, while that drains: a tile's h is complete when its
// `tile_done` reaches `h_parts`.
struct ShrinkPieces {
  int seam;
  int h_parts;
  int begin = 0;
  int end = 0;
};
void shrink_pieces(const LayerParams& params, const ShrinkPieces& which, StreamHandle stream);
// Sets the kernels' attributes on the current device.
Result<void> prepare_shrinks();

}  // namespace motley::kernels::cuda::grouped
