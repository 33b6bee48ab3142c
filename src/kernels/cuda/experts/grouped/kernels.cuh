#pragma once

#include "kernels/cuda/experts/grouped/kernel.cuh"
#include "kernels/cuda/experts/grouped/kernels.h"

namespace motley::kernels::cuda::grouped {

template <class S, int max_width, int blocks_per_sm>
GroupedKernel describe(std::string_view name) {
  return {.info = {.name = name,
                   .architecture = Architecture::sm_90a,
                   .layout = WeightLayout::packed,
                   .arithmetic = S::coded_inputs ? coded_arithmetic : grouped_arithmetic,
                   .tile = {.outputs = S::rows, .rows = max_width, .k = S::stage_k}},
          .rows = S::rows == 64    ? GroupedTiles::Rows::r64
                  : S::rows == 128 ? GroupedTiles::Rows::r128
                                   : GroupedTiles::Rows::r256,
          .max_width = max_width,
          .blocks_per_sm = blocks_per_sm,
          .function = reinterpret_cast<const void*>(grouped_kernel<S, max_width, blocks_per_sm>),
          .threads = S::threads,
          .warpgroups = S::warpgroups,
          .weight_bytes = S::weight_bytes,
          .coded_inputs = S::coded_inputs,
          .rounds_h = rounds_h<S>,
          .max_sorted_inside = S::inside};
}

// FP8 sums have accumulators of their own, beside which adapters leave no registers to taller
// tiles.
template <PackedFormat Format, bool adapters>
std::vector<GroupedKernel> describe_coded_inputs() {
  std::vector<GroupedKernel> all{
      describe<TileShape<Format, 1, 1, adapters>, 8, 3>("64x8"),
      describe<TileShape<Format, 2, 1, adapters>, 16, 2>("128x16"),
      describe<TileShape<Format, 2, 1, adapters, false>, 128, 1>("128x128")};
  if constexpr (!adapters)
    all.push_back(describe<TileShape<Format, 2, 2, adapters>, 128, 1>("256x128"));
  return all;
}

template <PackedFormat Format, bool adapters>
std::vector<GroupedKernel> describe_all() {
  constexpr bool bf16 = Format::format == ExpertFormat::bf16;
  std::vector<GroupedKernel> all;
  if constexpr (!bf16) all.push_back(describe<TileShape<Format, 1, 1, adapters>, 8, 3>("64x8"));
  if constexpr (bf16 && !adapters)
    all.push_back(describe<TileShape<Format, 1, 1, adapters>, 8, 4>("64x8"));
  all.push_back(describe<TileShape<Format, 2, 1, adapters>, 16, 2>("128x16"));
  if constexpr (Format::layout.bits == 4)
    all.push_back(describe<TileShape<Format, 2, 2, adapters, true>, 16, 2>("256x16"));
  // Three stages of 8-bit weights and of 128 tokens have no room beside a permutation; a scale for
  // each k16 step takes registers.
  if constexpr (Format::layout.bits == 8 || Format::layout.scales == 8)
    all.push_back(describe<TileShape<Format, 2, 2, adapters>, 64, 1>("256x64"));
  else
    all.push_back(describe<TileShape<Format, 2, 2, adapters>, 128, 1>("256x128"));
  if constexpr (bf16 && !adapters)
    all.push_back(describe<TileShape<Format, 2, 2, adapters>, 160, 1>("256x160"));
  return all;
}

template <ExpertFormat format, bool adapters>
std::span<const GroupedKernel> kernels_of() {
  using Coded = std::conditional_t<has_coded_inputs(format), std::type_identity<CodedRows<format>>,
                                   std::type_identity<CodedWeights<format>>>;
  using Format = typename std::conditional_t<format == ExpertFormat::bf16,
                                             std::type_identity<Bf16Weights>, Coded>::type;
  static const std::vector<GroupedKernel> all = [] {
    if constexpr (Format::code_type != DType::bf16)
      return describe_coded_inputs<Format, adapters>();
    else
      return describe_all<Format, adapters>();
  }();
  return all;
}

}  // namespace motley::kernels::cuda::grouped
