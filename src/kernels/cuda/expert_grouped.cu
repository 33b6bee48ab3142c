#include <algorithm>
#include <limits>

#include <cudaTypedefs.h>

#include "kernels/cuda/expert_grouped.h"
#include "kernels/cuda/grouped/instances.h"
#include "kernels/cuda/grouped/shrinks.h"
#include "kernels/cuda/grouped/sum_experts.h"
#include "kernels/cuda/norm.cuh"

namespace motley::kernels::cuda {
namespace grouped {
namespace {

// Cuts scratch into arrays, each on a boundary of 256 bytes.
class Cutter {
 public:
  explicit Cutter(void* base) : base_(static_cast<unsigned char*>(base)) {}
  template <class T>
  T* take(std::int64_t count) {
    auto* const at = reinterpret_cast<T*>(base_ + used_);
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 255) / 256 * 256;
    return at;
  }
  std::size_t used() const { return used_; }

 private:
  unsigned char* base_;
  std::size_t used_ = 0;
};

struct Scratch {
  LayerParams layer{};
  std::size_t bytes = 0;
};

// All of it is laid out for most_tokens, so that addresses do not depend on the batch.
Scratch cut_scratch(const GroupedExperts& g) {
  Scratch s;
  LayerParams& p = s.layer;
  Cutter cut(g.scratch);
  const std::int64_t tokens = g.most_tokens;
  const std::int64_t pairs = tokens * g.experts_per_token;
  const std::int64_t tiles = most_tiles(pairs, g.shape.experts, 8);
  const std::int64_t column_blocks = (g.shape.hidden + 63) / 64;
  const std::int64_t summed = std::min<std::int64_t>(tokens, summed_pairs);
  const std::int64_t permuted = pairs / permute_block + 1;
  const std::int64_t count = 4 + 3 * tiles + summed * column_blocks + permuted;
  int* const both = cut.take<int>(2 * count);
  int* next = both + g.turn % 2 * count;
  p.counters.next_run = both + (g.turn + 1) % 2 * count;
  p.counters.count = static_cast<int>(count);
  p.counters.next_item = next;
  p.counters.next_shrink = next + 2;
  next += 4;
  p.counters.tile_done = next;
  next += tiles;
  p.seam[0].done = next;
  next += tiles;
  p.seam[1].done = next;
  next += tiles;
  p.counters.token_done = next;
  next += summed * column_blocks;
  p.counters.permuted = next;

  p.plan.order = cut.take<std::int32_t>(pairs);
  p.plan.tokens = cut.take<std::int32_t>(pairs);
  p.plan.places = cut.take<std::int32_t>(pairs);
  p.plan.expert_begin = cut.take<std::int32_t>(g.shape.experts + 1);
  p.plan.tile_begin = cut.take<std::int32_t>(g.shape.experts + 1);
  p.plan.tiles = cut.take<ExpertTile>(tiles);
  p.plan.block_counts = cut.take<std::int32_t>(plan_scratch_numbers(pairs, g.shape.experts));
  p.h = cut.take<Bf16>(pairs * g.shape.intermediate);
  p.partial = cut.take<Bf16>(pairs * g.shape.hidden);
  p.x_sorted = cut.take<Bf16>(pairs * g.shape.hidden);
  if (g.deltas.most_terms > 0) {
    p.plan.piece_begin = cut.take<std::int32_t>(tiles + 1);
    p.plan.pieces = cut.take<ExpertPiece>(pairs);
    const int ranks[2] = {g.deltas.most_gate_up_rank, g.deltas.most_down_rank};
    for (int seam = 0; seam < 2; ++seam) {
      p.deltas.entries[seam] = cut.take<DeltaEntry>(pairs * g.deltas.most_terms);
      p.seam[seam].pitch = ranks[seam];
      p.seam[seam].rank_rows = cut.take<Bf16>(pairs * ranks[seam]);
    }
  }
  s.bytes = cut.used();
  return s;
}

// Rows of bf16, in boxes of 64 columns; what lies outside reads as zero.
Result<void> make_map(CUtensorMap& map, const void* base, std::int64_t rows, int columns,
                      unsigned box_rows) {
  static PFN_cuTensorMapEncodeTiled_v12000 encode = nullptr;
  if (encode == nullptr) {
    cudaDriverEntryPointQueryResult found{};
    void* entry = nullptr;
    MOTLEY_TRY_VOID(launched(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                              12000, cudaEnableDefault, &found),
                             "cuTensorMapEncodeTiled"));
    if (entry == nullptr)
      return Error(ErrorCode::unavailable, "the GPU's driver has no cuTensorMapEncodeTiled", "cuda",
                   "install a driver for CUDA 12 or later");
    encode = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(entry);
  }
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * 2};
  const cuuint32_t box[2] = {64, box_rows};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult status =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(base), sizes, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status == CUDA_SUCCESS) return {};
  return Error(ErrorCode::internal,
               cat("the driver refuses a tensor map of ", rows, " x ", columns, " numbers (",
                   static_cast<int>(status), ")"),
               "cuda", "report it with the model's sizes");
}

Result<void> make_maps(KernelMaps& maps, const GroupedExperts& g, const LayerParams& p,
                       const Instance& kernel) {
  const unsigned weight_box = kernel.rows < 128 ? 64 : 128;
  const std::int64_t experts = g.shape.experts;
  if (g.weights.format == ExpertFormat::bf16) {
    MOTLEY_TRY_VOID(
        make_map(maps.gate_up, g.weights.gate_up, experts * 2 * p.inner, p.hidden, weight_box));
    MOTLEY_TRY_VOID(make_map(maps.down, g.weights.down, experts * p.hidden, p.inner, weight_box));
  }
  MOTLEY_TRY_VOID(make_map(maps.x_row, p.x, p.tokens, p.hidden, 1));
  for (int wide = 0; wide < 2; ++wide) {
    const unsigned box = wide == 0 ? 8 : 64;
    MOTLEY_TRY_VOID(make_map(maps.h[wide], p.h, p.pairs, p.inner, box));
    MOTLEY_TRY_VOID(make_map(maps.x_sorted[wide], p.x_sorted, p.pairs, p.hidden, box));
  }
  return {};
}

LayerParams params_of(const GroupedExperts& g, const GroupedTiles& tiles) {
  LayerParams p = cut_scratch(g).layer;
  p.tokens = static_cast<int>(g.tokens);
  p.top_k = g.experts_per_token;
  p.pairs = p.tokens * p.top_k;
  p.experts = g.shape.experts;
  p.hidden = g.shape.hidden;
  p.inner = g.shape.intermediate;
  p.tile_places = tiles.width;
  p.x = static_cast<const Bf16*>(g.x);
  p.ids = g.ids;
  p.routing_weights = g.routing_weights;
  p.gate_up = static_cast<const unsigned char*>(g.weights.gate_up);
  p.down = static_cast<const unsigned char*>(g.weights.down);
  p.gate_bias = g.gate_bias;
  p.up_bias = g.up_bias;
  p.down_bias = g.down_bias;
  p.activation = g.activation;
  p.swiglu_limit = g.swiglu_limit;
  p.swiglu_alpha = g.swiglu_alpha;
  p.out = g.out;
  p.out_f32 = g.out_type == DType::f32;
  p.labels = g.deltas.labels;
  p.deltas.term_begin = g.deltas.term_begin;
  p.deltas.terms = g.deltas.terms;
  p.deltas.layer = g.deltas.layer;
  p.deltas.most_terms = g.deltas.most_terms;
  p.deltas.unit = g.weights.format == ExpertFormat::int4 ? int4_unit : 1.0F;
  return p;
}

Result<void> plan(const GroupedExperts& g, const LayerParams& p, StreamHandle stream) {
  const bool lora = g.deltas.labels != nullptr;
  return plan_experts({.tokens = g.tokens,
                       .experts_per_token = g.experts_per_token,
                       .experts = g.shape.experts,
                       .ids = g.ids,
                       .labels = g.deltas.labels,
                       .tokens_by_label = lora ? g.deltas.tokens_by_label : nullptr,
                       .tile_places = p.tile_places,
                       .deltas = p.deltas,
                       .plan = p.plan},
                      stream);
}

// 228 KB of shared memory a multiprocessor, 1 KB of it a block's own; stages on 1 KB.
Result<LaunchParams> launch_params(const GroupedTiles& tiles, const LayerParams& p,
                                   const Instance& kernel, bool lora, std::size_t& shared) {
  LaunchParams l{};
  l.gather = static_cast<Gather>(tiles.gather);
  l.inside = tiles.inside;
  l.in_turn = tiles.in_turn;
  l.sum = tiles.sum_inside;
  l.token_bytes = tiles.width * 2 * kernel.stage_k;
  l.gate_up_tiles = (2 * p.inner + kernel.rows - 1) / kernel.rows;
  l.down_tiles = (p.hidden + kernel.rows - 1) / kernel.rows;
  cudaFuncAttributes attributes{};
  MOTLEY_TRY_VOID(launched(cudaFuncGetAttributes(&attributes, kernel.kernel), "the experts"));
  // A shrink's products read 4 KB behind the rows that it has.
  const int slack = lora && !tiles.tall() ? 4096 : 0;
  const int budget = 228 * 1024 / tiles.blocks_per_sm - 1024 -
                     static_cast<int>(attributes.sharedSizeBytes) - 1024 - slack;
  const int stage = kernel.weight_bytes + l.token_bytes;
  const int row = p.hidden * 2;
  const bool permutes = tiles.gather == GroupedTiles::Gather::permuted;
  l.depth = std::min((budget - (permutes ? 2 * row : 0)) / stage, most_stages);
  if (l.depth < 3)
    return Error(ErrorCode::unsupported,
                 cat("the experts' kernel finds no room for three stages of ", stage,
                     " bytes in shared memory"),
                 cat("hidden ", p.hidden), "use --experts-backend with another backend");
  l.permute_lanes = permutes ? std::min((budget - l.depth * stage) / row, permute_lanes) : 0;
  shared = static_cast<std::size_t>(l.depth * stage + l.permute_lanes * row + 1024 + slack);
  MOTLEY_TRY_VOID(
      launched(cudaFuncSetAttribute(kernel.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared)),
               "the experts"));
  return l;
}

Result<void> launch_kernel(const Instance& kernel, unsigned grid, std::size_t shared,
                           LayerParams& p, LaunchParams& l, KernelMaps& maps, StreamHandle stream) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes = shared;
  config.stream = native(stream);
  config.attrs = &overlap;
  config.numAttrs = 1;
  void* arguments[] = {&p, &l, &maps};
  return launched(cudaLaunchKernelExC(&config, kernel.kernel, arguments), "the experts");
}

template <ExpertFormat format, int scales>
Instance find_of(const GroupedExperts& g, const GroupedTiles& tiles) {
  if (g.deltas.labels == nullptr) return find_instance<format, scales, Pages::none>(tiles);
  if (g.deltas.factor_type == DType::bf16) return find_instance<format, scales, Pages::bf16>(tiles);
  return find_instance<format, scales, Pages::f8>(tiles);
}

Instance find(const GroupedExperts& g, const GroupedTiles& tiles) {
  if (g.weights.format == ExpertFormat::bf16) return find_of<ExpertFormat::bf16, 1>(g, tiles);
  return g.weights.scales_per_128 == 1 ? find_of<ExpertFormat::int4, 1>(g, tiles)
                                       : find_of<ExpertFormat::int4, 4>(g, tiles);
}

}  // namespace
}  // namespace grouped

Result<void> grouped_supports(const ExpertShape& shape, int experts_per_token, WeightKind kind,
                              int group) {
  const auto no = [](std::string_view why, const auto& what) {
    return Error(ErrorCode::unsupported, cat("the grouped expert kernels ", why, what), "experts",
                 "use another backend (--experts-backend)");
  };
  if (kind != WeightKind::bf16 && kind != WeightKind::int4_group)
    return no("read bf16 and int4 weights only", "");
  if (kind == WeightKind::int4_group && group != 32 && group != 64 && group != 128)
    return no("read int4 in groups of 32, 64 or 128, not ", group);
  if (shape.hidden % 8 != 0) return no("need a hidden size that 8 divides, not ", shape.hidden);
  if (shape.intermediate % 8 != 0)
    return no("need an intermediate size that 8 divides, not ", shape.intermediate);
  if (shape.experts > most_experts) return no("sort at most 512 experts, not ", shape.experts);
  if (shape.hidden > 16384) return no("hold rows of at most 16384 numbers, not ", shape.hidden);
  if (experts_per_token < 1 || experts_per_token > 64)
    return no("sum 1 to 64 experts of a token, not ", experts_per_token);
  return {};
}

std::int64_t grouped_max_tokens(const ExpertShape& shape, int experts_per_token) {
  constexpr std::int64_t int32 = std::numeric_limits<std::int32_t>::max();
  // Pairs, tokens x hidden, and pairs x the vec4 of a row of h, of gate and up, or of the result.
  const std::int64_t widest = std::max(shape.hidden, 2 * shape.intermediate);
  const std::int64_t pairs = int32 / std::max<std::int64_t>(widest / 4, 1);
  return std::min(pairs / experts_per_token, int32 / shape.hidden);
}

std::size_t grouped_scratch_bytes(const GroupedExperts& params) {
  return grouped::cut_scratch(params).bytes;
}

Result<void> prepare_grouped_scratch(const GroupedExperts& params, StreamHandle stream) {
  const grouped::Counters counters = grouped::cut_scratch(params).layer.counters;
  return launched(
      cudaMemsetAsync(params.scratch, 0, 2 * static_cast<std::size_t>(counters.count) * sizeof(int),
                      native(stream)),
      "the experts' counters");
}

GroupedTiles choose_grouped_tiles(const GroupedExperts& params) {
  using Rows = GroupedTiles::Rows;
  using Gather = GroupedTiles::Gather;
  const std::int64_t pairs = params.tokens * params.experts_per_token;
  const std::int64_t experts = params.shape.experts;
  const bool lora = params.deltas.labels != nullptr;
  const bool int4 = params.weights.format == ExpertFormat::int4;
  GroupedTiles tiles;
  tiles.one_launch = true;
  // Entries of adapters take room in every block.
  const std::int64_t to_sort = lora ? pairs * params.deltas.most_terms : pairs;
  tiles.inside = to_sort <= (lora ? grouped::inside_lora_pairs : grouped::inside_pairs);
  const std::int64_t row_tiles = (2 * params.shape.intermediate + 127) / 128;
  const std::int64_t items = std::min(pairs, experts) * row_tiles;
  const bool few_items = items < params.multiprocessors;
  if (pairs <= 64 && (few_items || (int4 && !lora && items < 2 * params.multiprocessors))) {
    // Too few tiles of 128 rows for all multiprocessors.
    tiles.sum_inside = !int4 || few_items;
    if (lora && !int4) return tiles;
    tiles.rows = Rows::r64;
    tiles.inside = to_sort <= grouped::inside_small_pairs;
    tiles.blocks_per_sm = int4 ? 3 : 4;
    tiles.in_turn = true;
    return tiles;
  }
  if (int4 && items >= 8 * params.multiprocessors && pairs <= 12 * experts) {
    tiles.rows = Rows::r256;
    tiles.width = 16;
    if (!lora && pairs > 6 * experts) tiles.gather = Gather::copies;
    return tiles;
  }
  if (pairs <= (lora && !int4 ? 4 : 2) * experts && pairs <= grouped::summed_pairs) {
    tiles.width = pairs <= experts ? 8 : 16;
    // int4 keeps the warps busy that would sum: a launch of its own costs less
    tiles.sum_inside = !int4;
    return tiles;
  }
  tiles.inside = false;
  if (pairs <= (int4 || lora ? 8 : 0) * experts) {
    // Tall tiles' shrinks would be two launches more.
    tiles.width = 16;
    if (!lora || (!int4 && pairs <= 4 * experts)) tiles.gather = Gather::copies;
    return tiles;
  }
  tiles.gather = Gather::copies;
  // From here on few tiles read an expert's weights: tall ones, as wide as its tokens.
  tiles.rows = Rows::r256;
  tiles.blocks_per_sm = 1;
  tiles.one_launch = !lora;  // shrinks stand between
  tiles.width = pairs <= 40 * experts ? 64 : 128;
  if (!int4 && !lora && pairs > 96 * experts && pairs <= 144 * experts) tiles.width = 160;
  if (pairs >= (int4 ? 128 : 145) * experts) tiles.gather = Gather::permuted;
  return tiles;
}

bool grouped_sums_into(const AddAndNorm& next, const GroupedTiles& tiles) {
  return !tiles.sum_inside && normed_in_fours(next);
}

Result<void> run_grouped_experts(const GroupedExperts& params, const GroupedTiles& tiles,
                                 StreamHandle stream) {
  using namespace grouped;
  if (params.tokens == 0) return {};
  const bool lora = params.deltas.labels != nullptr;
  const Instance kernel = find(params, tiles);
  const std::int64_t to_sort =
      params.tokens * params.experts_per_token * (lora ? params.deltas.most_terms : 1);
  const bool small = !tiles.tall();
  const bool boxes = tiles.gather == GroupedTiles::Gather::boxes;
  if (kernel.kernel == nullptr || (small && tiles.gather == GroupedTiles::Gather::permuted) ||
      (boxes && (!small || tiles.width > 32)) || (tiles.inside && to_sort > kernel.inside) ||
      (tiles.sum_inside && (tiles.rows == GroupedTiles::Rows::r256 || !tiles.one_launch)) ||
      (!boxes && tiles.rows == GroupedTiles::Rows::r64) || (lora && !small && tiles.one_launch))
    return Error(ErrorCode::internal, "no grouped expert kernel has these tiles", "experts",
                 "use choose_grouped_tiles()");
  LayerParams p = params_of(params, tiles);
  std::size_t shared = 0;
  MOTLEY_TRY(LaunchParams l, launch_params(tiles, p, kernel, lora, shared));
  KernelMaps maps{};
  MOTLEY_TRY_VOID(make_maps(maps, params, p, kernel));
  if (!tiles.inside) MOTLEY_TRY_VOID(plan(params, p, stream));
  const auto grid = static_cast<unsigned>(params.multiprocessors * tiles.blocks_per_sm);
  const auto shrink = [&](int seam) -> Result<void> {
    if (!lora || small) return {};
    const Pages pages = params.deltas.factor_type == DType::bf16 ? Pages::bf16 : Pages::f8;
    return shrink_pieces(p, seam, pages, l.gate_up_tiles * kernel.warpgroups,
                         params.multiprocessors, stream);
  };
  MOTLEY_TRY_VOID(shrink(0));
  if (tiles.one_launch) {
    l.phase = Phase::both;
    MOTLEY_TRY_VOID(launch_kernel(kernel, grid, shared, p, l, maps, stream));
  } else {
    l.phase = Phase::gate_up;
    MOTLEY_TRY_VOID(launch_kernel(kernel, grid, shared, p, l, maps, stream));
    MOTLEY_TRY_VOID(shrink(1));
    l.phase = Phase::down;
    l.permute_lanes = 0;
    MOTLEY_TRY_VOID(launch_kernel(kernel, grid, shared, p, l, maps, stream));
  }
  if (tiles.sum_inside) return {};
  return params.next != nullptr ? sum_experts_and_norm(p, *params.next, stream)
                                : sum_experts(p, stream);
}

}  // namespace motley::kernels::cuda
