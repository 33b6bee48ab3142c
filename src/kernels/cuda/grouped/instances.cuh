#pragma once

#include "kernels/cuda/grouped/instances.h"
#include "kernels/cuda/grouped/kernel.cuh"

namespace motley::kernels::cuda::grouped {

template <class S, int max_width, int blocks_per_sm>
Instance instance() {
  return {.kernel = reinterpret_cast<const void*>(grouped_kernel<S, max_width, blocks_per_sm>),
          .threads = S::threads,
          .rows = S::rows,
          .warpgroups = S::warpgroups,
          .stage_k = S::stage_k,
          .weight_bytes = S::weight_bytes,
          .inside = S::inside};
}

template <ExpertFormat format, int scales, Pages pages>
Instance find_instance(const GroupedTiles& tiles) {
  using Rows = GroupedTiles::Rows;
  const int width = tiles.width;
  const int per_sm = tiles.blocks_per_sm;
  if (tiles.rows == Rows::r64 && width <= 8 && per_sm == 3)
    return instance<TileShape<format, scales, 1, 1, pages>, 8, 3>();
  if (tiles.rows == Rows::r128 && width <= 16 && per_sm == 2)
    return instance<TileShape<format, scales, 2, 1, pages>, 16, 2>();
  if constexpr (format == ExpertFormat::int4) {
    if (tiles.rows == Rows::r256 && width <= 16 && per_sm == 2)
      return instance<TileShape<format, scales, 2, 2, pages, true>, 16, 2>();
  }
  if constexpr (format == ExpertFormat::bf16 && pages == Pages::none) {
    if (tiles.rows == Rows::r64 && width <= 8 && per_sm == 4)
      return instance<TileShape<format, scales, 1, 1, pages>, 8, 4>();
    if (tiles.tall() && width == 160)
      return instance<TileShape<format, scales, 2, 2, pages>, 160, 1>();
  }
  if (tiles.tall() && width <= 128)
    return instance<TileShape<format, scales, 2, 2, pages>, 128, 1>();
  return {};
}

}  // namespace motley::kernels::cuda::grouped
