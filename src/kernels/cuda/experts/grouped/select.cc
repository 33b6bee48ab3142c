// Chooses the tiles of an expert layer: a function of the problem and the table of thresholds.

#include <algorithm>
#include <limits>

#include "base/cat.h"
#include "base/check.h"
#include "kernels/cuda/experts/grouped.h"
#include "kernels/cuda/experts/grouped/kernels.h"
#include "kernels/cuda/thresholds.h"

namespace motley::kernels::cuda {
namespace grouped {
namespace {

template <ExpertFormat format>
std::span<const GroupedKernel> kernels_of_format(bool adapters) {
  return adapters ? kernels_of<format, true>() : kernels_of<format, false>();
}

// Whether the codes of such inputs can be multiplied as they are.
bool takes_codes(const GroupedInputs& inputs, DType type) {
  const InputRounding& rounding = inputs.rounding;
  using Scales = InputRounding::Scales;
  return inputs.each != nullptr && !inputs.ordered && rounding.scales != Scales::none &&
         rounding.type == type && rounding.zero == 0 &&
         (rounding.scales != Scales::row_block ||
          (type == DType::f8_e4m3 && rounding.columns == 128 && rounding.first == 0));
}

bool fits(const GroupedExperts& g, const ExpertLayerShape& layer) {
  return blob_layout(g.weights.format).bits == layer.bits && g.shape.experts == layer.experts &&
         g.shape.hidden == layer.hidden && g.shape.intermediate == layer.intermediate &&
         g.experts_per_token == layer.experts_per_token;
}

bool holds(const ExpertThreshold& row, const GroupedExperts& g) {
  const std::int64_t pairs = g.tokens * g.experts_per_token;
  const std::int64_t experts = g.shape.experts;
  const std::int64_t row_tiles = (2 * g.shape.intermediate + 127) / 128;
  const std::int64_t items = std::min(pairs, experts) * row_tiles;
  const int bits = blob_layout(g.weights.format).bits;
  const bool adapted = g.deltas.labels != nullptr;
  using Weights = ExpertThreshold::Weights;
  using Adapters = ExpertThreshold::Adapters;
  return (row.weights == Weights::any || static_cast<int>(row.weights) == bits) &&
         (row.adapters == Adapters::any || (row.adapters == Adapters::some) == adapted) &&
         (row.layer == nullptr || fits(g, *row.layer)) && row.pairs.holds(pairs) &&
         row.pairs_per_expert.holds(pairs, experts) &&
         items >= row.items_from * g.multiprocessors &&
         (row.items_below == Range::none || items < row.items_below * g.multiprocessors);
}

// Places that a block needs to sort the pairs; the terms of adapters need places, too.
std::int64_t places_to_sort(const GroupedExperts& g) {
  const std::int64_t pairs = g.tokens * g.experts_per_token;
  return g.deltas.labels != nullptr ? pairs * g.deltas.max_terms : pairs;
}

}  // namespace

int GroupedKernel::token_bytes(int width) const {
  // Shrinks take bf16.
  if (!coded_inputs || !is_tall()) return width * 2 * info.tile.k;
  return width * info.tile.k;
}

std::span<const GroupedKernel> kernels_of(ExpertFormat format, bool adapters) {
  switch (format) {
    case ExpertFormat::bf16:
      return kernels_of_format<ExpertFormat::bf16>(adapters);
    case ExpertFormat::int4:
      return kernels_of_format<ExpertFormat::int4>(adapters);
    case ExpertFormat::int4_fine:
      return kernels_of_format<ExpertFormat::int4_fine>(adapters);
    case ExpertFormat::int4_any:
      return kernels_of_format<ExpertFormat::int4_any>(adapters);
    case ExpertFormat::int4_any_fine:
      return kernels_of_format<ExpertFormat::int4_any_fine>(adapters);
    case ExpertFormat::int8:
      return kernels_of_format<ExpertFormat::int8>(adapters);
    case ExpertFormat::int8_any_fine:
      return kernels_of_format<ExpertFormat::int8_any_fine>(adapters);
    case ExpertFormat::fp8:
      return kernels_of_format<ExpertFormat::fp8>(adapters);
    case ExpertFormat::fp8_fine:
      return kernels_of_format<ExpertFormat::fp8_fine>(adapters);
    case ExpertFormat::mxfp8:
      return kernels_of_format<ExpertFormat::mxfp8>(adapters);
    case ExpertFormat::mxfp4:
      return kernels_of_format<ExpertFormat::mxfp4>(adapters);
    case ExpertFormat::nvfp4:
      return kernels_of_format<ExpertFormat::nvfp4>(adapters);
    case ExpertFormat::int8_rows:
      return kernels_of_format<ExpertFormat::int8_rows>(adapters);
    case ExpertFormat::fp8_rows:
      return kernels_of_format<ExpertFormat::fp8_rows>(adapters);
  }
  return {};
}

const GroupedKernel* find_kernel(const GroupedTiles& tiles, const GroupedExperts& g) {
  for (const GroupedKernel& kernel : kernels_of(g.weights.format, g.deltas.labels != nullptr)) {
    if (kernel.rows == tiles.rows && kernel.is_tall() == tiles.tall() &&
        kernel.max_width >= tiles.width)
      return &kernel;
  }
  return nullptr;
}

}  // namespace grouped

ExpertFormat format_for_inputs(const PackedExperts& weights, const GroupedInputs (&inputs)[2],
                               const ExpertShape& shape) {
  const ExpertFormat format = weights.format;
  if (format != ExpertFormat::fp8 && format != ExpertFormat::int8) return format;
  const DType type = format == ExpertFormat::fp8 ? DType::f8_e4m3 : DType::i8;
  // Sums of integers stay with the tensor core through all k.
  if (type == DType::i8 && !weights.scales_of_rows) return format;
  // Rows of codes are read in pieces of 16.
  if (shape.hidden % 16 != 0 || shape.intermediate % 16 != 0) return format;
  if (!grouped::takes_codes(inputs[0], type) || !grouped::takes_codes(inputs[1], type))
    return format;
  return format == ExpertFormat::fp8 ? ExpertFormat::fp8_rows : ExpertFormat::int8_rows;
}

Support grouped_supports(const ExpertShape& shape, int experts_per_token) {
  const auto no = [](std::string_view why, const auto& what) {
    return Support::no(cat("it ", why, what));
  };
  if (shape.hidden % 8 != 0) return no("needs a hidden size that 8 divides, not ", shape.hidden);
  if (shape.intermediate % 8 != 0)
    return no("needs an intermediate size that 8 divides, not ", shape.intermediate);
  if (shape.more_columns % 8 != 0)
    return no("needs a number of columns that 8 divides, not ", shape.down_columns());
  if (shape.experts > max_experts) return no("sorts at most 512 experts, not ", shape.experts);
  if (shape.hidden > 16384) return no("holds rows of at most 16384 numbers, not ", shape.hidden);
  if (experts_per_token < 1 || experts_per_token > 64)
    return no("sums 1 to 64 experts of a token, not ", experts_per_token);
  return Support::yes();
}

std::int64_t grouped_max_tokens(const ExpertShape& shape, int experts_per_token) {
  constexpr std::int64_t int32 = std::numeric_limits<std::int32_t>::max();
  // Bounds pairs, tokens * hidden, and pairs * the vec4s of a row of h, of gate and up, or of the
  // result.
  const std::int64_t widest =
      std::max({shape.hidden, 2 * shape.intermediate, shape.down_columns()});
  const std::int64_t pairs = int32 / std::max<std::int64_t>(widest / 4, 1);
  return std::min(pairs / experts_per_token, int32 / shape.hidden);
}

Support grouped_supports(const GroupedTiles& tiles, const GroupedExperts& g) {
  if (!can_run(tiles)) return Support::no("there is no code for such tiles");
  const std::int64_t pairs = g.tokens * g.experts_per_token;
  const std::int64_t max_tokens = grouped_max_tokens(g.shape, g.experts_per_token);
  if (g.tokens > max_tokens)
    return Support::no("it counts {} tokens in 32 bits, not {}", max_tokens, g.tokens);
  if (has_coded_inputs(g.weights.format) &&
      (g.inputs[0].each == nullptr || g.inputs[1].each == nullptr))
    return Support::no("its token rows are codes, and these inputs are not rounded");
  const grouped::GroupedKernel* const kernel = grouped::find_kernel(tiles, g);
  if (kernel == nullptr)
    return Support::no("it has no tiles of {} x {} for these weights and adapters",
                       count_rows(tiles.rows), tiles.width);
  if (tiles.sort_inside && grouped::places_to_sort(g) > kernel->max_sorted_inside)
    return Support::no("its blocks sort {} pairs, not {}", kernel->max_sorted_inside,
                       grouped::places_to_sort(g));
  if (g.arranges_inputs() &&
      (tiles.sort_inside || tiles.sum_inside || tiles.gather == GroupedTiles::Gather::copies))
    return Support::no("inputs are arranged between launches, in the order of places");
  if (g.shared_shrink.is_shared() && !tiles.tall())
    return Support::no("other ranks take part in launches of shrinks, which it does not have");
  if (tiles.sum_inside && pairs > grouped::summed_pairs)
    return Support::no("its tiles sum {} pairs, not {}", grouped::summed_pairs, pairs);
  return Support::yes();
}

const KernelInfo& grouped_kernel_of(const GroupedTiles& tiles, const GroupedExperts& params) {
  const grouped::GroupedKernel* const kernel = grouped::find_kernel(tiles, params);
  MOTLEY_CHECK(kernel != nullptr, "tiles that the problem supports");
  return kernel->info;
}

GroupedTiles choose_grouped_tiles(const GroupedExperts& params,
                                  std::span<const ExpertThreshold> table) {
  for (const ExpertThreshold& row : table) {
    if (!grouped::holds(row, params)) continue;
    GroupedTiles tiles = row.tiles;
    if (params.arranges_inputs()) {
      using Gather = GroupedTiles::Gather;
      tiles.sort_inside = tiles.sum_inside = false;
      if (tiles.gather == Gather::copies)
        tiles.gather = tiles.tall() ? Gather::permuted : Gather::boxes;
    }
    for (const bool inside : {tiles.sort_inside, false}) {
      tiles.sort_inside = inside;
      if (grouped_supports(tiles, params)) return tiles;
    }
  }
  MOTLEY_CHECK(false, "a last row without bounds, whose tiles support all that was packed");
  return {};
}

std::int64_t min_shared_shrink_pairs(int columns) {
  const auto* const row =
      std::ranges::find_if(grouped::shared_shrink_thresholds,
                           [&](const auto& each) { return columns <= each.max_columns; });
  return row->min_pairs;
}

GroupedTiles choose_grouped_tiles(const GroupedExperts& params) {
  return choose_grouped_tiles(params, grouped::expert_thresholds);
}

}  // namespace motley::kernels::cuda
