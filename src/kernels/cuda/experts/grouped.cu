#include <algorithm>

#include "base/check.h"
#include "kernels/collectives.h"
#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/elementary/norm.cuh"
#include "kernels/cuda/experts/code_inputs.h"
#include "kernels/cuda/experts/grouped.h"
#include "kernels/cuda/experts/grouped/kernels.h"
#include "kernels/cuda/experts/grouped/layer.cuh"
#include "kernels/cuda/experts/grouped/shrinks.h"
#include "kernels/cuda/experts/grouped/sum_experts.h"

namespace motley::kernels::cuda {
namespace grouped {
namespace {

// Divides the scratch into arrays, each aligned to 256 bytes.
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

// Sized for max_tokens, so that addresses do not depend on the batch.
Scratch cut_scratch(const GroupedExperts& g) {
  Scratch s;
  LayerParams& p = s.layer;
  Cutter cut(g.scratch);
  const std::int64_t tokens = g.max_tokens;
  const std::int64_t pairs = tokens * g.experts_per_token;
  const std::int64_t tiles = max_tiles(pairs, g.shape.experts, 8);
  const std::int64_t column_blocks = (g.shape.hidden + 63) / 64;
  const std::int64_t summed = std::min<std::int64_t>(tokens, summed_pairs);
  const std::int64_t permuted = pairs / permute_block + 1;
  const std::int64_t count = 5 + 3 * tiles + summed * column_blocks + permuted;
  int* const both = cut.take<int>(2 * count);
  int* next = both + g.turn % 2 * count;
  p.counters.next_run = both + (g.turn + 1) % 2 * count;
  p.counters.count = static_cast<int>(count);
  p.counters.next_item = next;
  p.counters.next_shrink = next + 2;
  p.counters.next_permuted = next + 4;
  next += 5;
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
  // Rows of h, too, where down's inputs are arranged, which the scratch does not know.
  const int widest = std::max(g.shape.hidden, g.shape.down_columns());
  p.x_sorted = cut.take<Bf16>(pairs * widest);
  if (g.deltas.max_terms > 0) {
    p.plan.piece_begin = cut.take<std::int32_t>(tiles + 1);
    p.plan.pieces = cut.take<ExpertPiece>(pairs);
    const int ranks[2] = {g.deltas.max_gate_up_rank, g.deltas.max_down_rank};
    for (int seam = 0; seam < 2; ++seam) {
      p.deltas.entries[seam] = cut.take<DeltaEntry>(pairs * g.deltas.max_terms);
      p.seam[seam].pitch = ranks[seam];
      // Parts that ranks share are of equal size, so the last may end behind the pairs.
      p.seam[seam].rank_rows = cut.take<Bf16>((pairs + max_peers - 1) * ranks[seam]);
    }
  }
  s.bytes = cut.used();
  return s;
}

// Rows of bf16, in boxes of 64 columns.
TensorBoxes<2> boxes_of(const void* base, std::int64_t rows, int columns, unsigned box_rows) {
  return {.data = base, .sizes = {columns, rows}, .strides = {columns}, .box = {64, box_rows}};
}

// `sorted_columns`: of the rows in x_sorted or of codes.
Result<KernelMaps> make_maps(TensorMapEncoder encoder, const GroupedExperts& g,
                             const LayerParams& p, const GroupedKernel& kernel,
                             int sorted_columns) {
  // Of codes, a map counts two as one number.
  const int sorted_numbers = kernel.coded_inputs ? sorted_columns / 2 : sorted_columns;
  const void* const sorted = kernel.coded_inputs ? static_cast<void*>(p.inputs.codes) : p.x_sorted;
  const unsigned weight_box = count_rows(kernel.rows) < 128 ? 64 : 128;
  const std::int64_t experts = g.shape.experts;
  const auto make = [&](const void* base, std::int64_t rows, int columns, unsigned box_rows) {
    return encode(encoder, boxes_of(base, rows, columns, box_rows));
  };
  KernelMaps maps{};
  if (g.weights.format == ExpertFormat::bf16) {
    MOTLEY_TRY(maps.gate_up, make(g.weights.gate_up, experts * 2 * p.inner, p.hidden, weight_box));
    MOTLEY_TRY(maps.down, make(g.weights.down, experts * p.hidden, p.down_columns, weight_box));
  }
  MOTLEY_TRY(maps.x_row, make(p.x, p.tokens, p.hidden, 1));
  for (int wide = 0; wide < 2; ++wide) {
    const unsigned box = wide == 0 ? 8 : 64;
    MOTLEY_TRY(maps.h[wide], make(p.h, p.pairs, p.inner, box));
    MOTLEY_TRY(maps.x_sorted[wide], make(sorted, p.pairs, sorted_numbers, box));
  }
  return maps;
}

bool has_row_scaled_codes(const GroupedExperts& g) {
  const auto by_row = [](const GroupedInputs& inputs) {
    return inputs.rounding.scales != InputRounding::Scales::row_block;
  };
  return g.weights.scales_of_rows && by_row(g.inputs[0]) && by_row(g.inputs[1]);
}

LayerParams params_of(const GroupedExperts& g, const GroupedTiles& tiles) {
  LayerParams p = cut_scratch(g).layer;
  p.tokens = static_cast<int>(g.tokens);
  p.top_k = g.experts_per_token;
  p.pairs = p.tokens * p.top_k;
  p.row_scaled_codes = has_row_scaled_codes(g);
  p.tile_scaled_codes = g.weights.scales_of_tiles;
  p.experts = g.shape.experts;
  p.hidden = g.shape.hidden;
  p.inner = g.shape.intermediate;
  p.down_columns = g.shape.down_columns();
  p.tile_places = tiles.width;
  p.x = static_cast<const Bf16*>(g.x);
  p.ids = g.ids;
  p.routing_weights = g.routing_weights;
  p.gate_up = static_cast<const unsigned char*>(g.weights.gate_up);
  p.down = static_cast<const unsigned char*>(g.weights.down);
  p.half_scales = g.weights.scales;
  p.row_scales[0] = g.weights.gate_up_rows;
  p.row_scales[1] = g.weights.down_rows;
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
  p.deltas.max_terms = g.deltas.max_terms;
  p.deltas.unit = decoded_unit(g.weights.format);
  p.f8_factors = g.deltas.factor_type == DType::f8_e4m3;
  if (g.shared_shrink.is_shared()) p.seam[0].pitch = g.shared_shrink.columns;
  return p;
}

void plan(const GroupedExperts& g, const LayerParams& p, StreamHandle stream) {
  const bool lora = g.deltas.labels != nullptr;
  plan_experts({.tokens = g.tokens,
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

// The MMAs of a shrink read up to 4 KB behind their last row.
int slack_of(const GroupedTiles& tiles, bool lora) { return lora && !tiles.tall() ? 4096 : 0; }

// The ring of stages, aligned to 1 KB, fills the kernel's dynamic shared memory.
LaunchParams launch_params(const GroupedTiles& tiles, const LayerParams& p,
                           const GroupedKernel& kernel, bool arranged, int ring_bytes) {
  LaunchParams l{};
  const int rows = count_rows(kernel.rows);
  l.gather = tiles.gather;
  l.inside = tiles.sort_inside;
  l.sum = tiles.sum_inside;
  l.token_bytes = kernel.token_bytes(tiles.width);
  l.gate_up_tiles = (2 * p.inner + rows - 1) / rows;
  l.down_tiles = (p.hidden + rows - 1) / rows;
  const int stage = kernel.weight_bytes + l.token_bytes;
  const int row = p.hidden * 2;
  const bool permutes = tiles.gather == Gather::permuted && !arranged;
  // Of the widest rows, the fewest stages leave room for one.
  const int permuted = permutes ? std::min(2 * row, ring_bytes - min_stages * stage) : 0;
  l.depth = std::min((ring_bytes - permuted) / stage, max_stages);
  MOTLEY_CHECK(l.depth >= min_stages, "room for the stages that the tiles need");
  l.permute_lanes = permutes ? std::min((ring_bytes - l.depth * stage) / row, permute_lanes) : 0;
  MOTLEY_CHECK(!permutes || l.permute_lanes > 0, "room for a row that is permuted");
  return l;
}

// All rows in rank space, or this rank's and then the others'.
void shrink_seam(const GroupedExperts& g, const LayerParams& p, int seam, int h_parts,
                 StreamHandle stream) {
  ShrinkPieces which{.seam = seam, .h_parts = h_parts, .end = p.pairs};
  const SharedShrink& shared = g.shared_shrink;
  if (seam == 1 || !shared.is_shared()) return shrink_pieces(p, which, stream);
  MOTLEY_CHECK(shared.ranks <= max_peers && shared.columns <= g.deltas.max_gate_up_rank,
               "rows in rank space that there is room for");
  const int places = (p.pairs + shared.ranks - 1) / shared.ranks;
  which.begin = std::min(shared.rank * places, p.pairs);
  which.end = std::min(which.begin + places, p.pairs);
  shrink_pieces(p, which, stream);
  (*shared.gather)(p.seam[0].rank_rows,
                   std::int64_t{places} * shared.columns * std::int64_t{sizeof(Bf16)});
}

// Of the rows of h, which are by place.
void find_maxima(const GroupedExperts& g, const LayerParams& p, StreamHandle stream) {
  if (g.cut.scales == 0) return;
  input_maxima({.rows = p.pairs,
                .width = p.inner,
                .x = p.h,
                .x_type = DType::bf16,
                .x_stride = p.inner,
                .x_rows = p.plan.places,
                .x_count = p.plan.expert_begin + p.experts,
                .rounding = g.inputs[1].rounding,
                .scales = g.cut.scales,
                .first = g.cut.first,
                .out = g.cut.maxima},
               stream);
  (*g.cut.over_ranks)();
}

// Writes the codes of x and their scales.
void code_x(const GroupedExperts& g, LayerParams& p, StreamHandle stream) {
  p.inputs = row_codes_in(p.x_sorted, p.pairs, p.hidden);
  code_expert_inputs({.rows = p.tokens,
                      .experts_per_token = p.top_k,
                      .width = p.hidden,
                      .x = p.x,
                      .places = p.plan.places,
                      .expert_begin = p.plan.expert_begin,
                      .experts = p.experts,
                      .rounding = g.inputs[0].rounding,
                      .each = g.inputs[0].each,
                      .to = p.inputs},
                     stream);
}

// The same of h, if gate_up's tiles have not written them.
void code_h(const GroupedExperts& g, LayerParams& p, StreamHandle stream) {
  if (p.h_codes.codes != nullptr) {
    p.inputs = p.h_codes;
    return;
  }
  p.inputs = row_codes_in(p.x_sorted, p.pairs, p.inner);
  code_expert_inputs({.rows = p.pairs,
                      .width = p.inner,
                      .x = p.h,
                      .expert_begin = p.plan.expert_begin,
                      .experts = p.experts,
                      .rounding = g.inputs[1].rounding,
                      .each = g.inputs[1].each,
                      .maxima = g.cut.own(),
                      .pairs_of = p.plan.order,
                      .to = p.inputs},
                     stream);
}

// Where gate_up's tiles write codes of h in its place.
RowCodes codes_of_h(const GroupedExperts& g, const LayerParams& p, const GroupedKernel& kernel) {
  const bool in_tiles = kernel.rounds_h && g.cut.scales == 0 &&
                        g.inputs[1].rounding.scales == InputRounding::Scales::row_block;
  return in_tiles ? row_codes_in(p.h, p.pairs, p.inner) : RowCodes{};
}

// Writes the phase's inputs to x_sorted as its weights take them.
void arrange_phase(const GroupedExperts& g, const LayerParams& p, int seam, StreamHandle stream) {
  // No more than addresses: it is device memory.
  const ExpertInputs* const each = g.inputs[seam].each;
  arrange_expert_inputs({.pairs = p.pairs,
                         .width = seam == 0 ? p.hidden : p.down_columns,
                         .x = seam == 0 ? p.x : p.h,
                         .x_type = DType::bf16,
                         .x_stride = seam == 0 ? p.hidden : p.inner,
                         .tokens = seam == 0 ? p.plan.tokens : nullptr,
                         .expert_begin = p.plan.expert_begin,
                         .experts = p.experts,
                         .roundings = &each->rounding,
                         .orders = &each->order,
                         .stride = sizeof *each,
                         .columns = g.inputs[seam].rounding.columns,
                         .first = g.inputs[seam].rounding.first,
                         .maxima = seam == 0 ? InputMaxima{} : g.cut.own(),
                         .pairs_of = p.plan.order,
                         .out = p.x_sorted,
                         .out_type = DType::bf16},
                        stream);
}

Result<void> run(const GroupedExperts& params, const GroupedTiles& tiles, StreamHandle stream) {
  MOTLEY_CHECK(grouped_supports(tiles, params), "tiles that the problem supports");
  const bool lora = params.deltas.labels != nullptr;
  const bool arranges = params.arranges_inputs();
  const Device& device = device_of(stream);
  const GroupedKernel& kernel = *find_kernel(tiles, params);
  LayerParams p = params_of(params, tiles);
  const int slack = slack_of(tiles, lora);
  LaunchParams l = launch_params(tiles, p, kernel, params.inputs[0].each != nullptr,
                                 device.experts().dynamic_bytes(kernel) - 1024 - slack);
  const int ring = l.depth * (kernel.weight_bytes + l.token_bytes);
  const LaunchShape shape{
      .grid = static_cast<unsigned>(device.multiprocessors() * kernel.blocks_per_sm),
      .threads = static_cast<unsigned>(kernel.threads),
      .shared_bytes =
          static_cast<std::size_t>(ring + l.permute_lanes * p.hidden * 2 + 1024 + slack)};
  const TensorMapEncoder encoder = device.encode_tensor_map();
  MOTLEY_CHECK(!kernel.coded_inputs ||
                   (params.inputs[0].each != nullptr && params.inputs[1].each != nullptr),
               "inputs that are rounded, between two launches");
  p.h_codes = codes_of_h(params, p, kernel);
  p.h_rounding = params.inputs[1].rounding;
  KernelMaps maps{};
  const auto map = [&](int sorted_columns) -> Result<void> {
    MOTLEY_TRY(maps, make_maps(encoder, params, p, kernel, sorted_columns));
    return {};
  };
  if (!tiles.sort_inside) plan(params, p, stream);
  const auto launch_phase = [&](Phase phase) {
    l.phase = phase;
    void* arguments[] = {&p, &l, &maps};
    return try_launch("the experts", kernel.function, shape, stream, arguments);
  };
  // Tall tiles do not shrink: their rank rows are computed by launches of their own.
  const auto shrink = [&](int seam) {
    if (!lora || !tiles.tall()) return;
    shrink_seam(params, p, seam, l.gate_up_tiles * kernel.warpgroups, stream);
  };
  const auto arrange = [&](int seam) {
    l.arranged = params.inputs[seam].each != nullptr;
    if (!l.arranged) return;
    if (seam == 1) find_maxima(params, p, stream);
    if (!kernel.coded_inputs)
      arrange_phase(params, p, seam, stream);
    else if (seam == 0)
      code_x(params, p, stream);
    else
      code_h(params, p, stream);
  };
  if (arranges || (lora && tiles.tall())) {
    shrink(0);
    arrange(0);
    MOTLEY_TRY_VOID(map(p.hidden));
    MOTLEY_TRY_VOID(launch_phase(Phase::gate_up));
    shrink(1);
    arrange(1);
    if (l.arranged) MOTLEY_TRY_VOID(map(p.down_columns));
    l.permute_lanes = 0;
    MOTLEY_TRY_VOID(launch_phase(Phase::down));
  } else {
    MOTLEY_TRY_VOID(map(p.hidden));
    MOTLEY_TRY_VOID(launch_phase(Phase::both));
  }
  if (tiles.sum_inside) return {};
  params.next != nullptr ? sum_experts_and_norm(p, *params.next, stream) : sum_experts(p, stream);
  return {};
}

}  // namespace
}  // namespace grouped

std::size_t grouped_scratch_bytes(const GroupedExperts& params) {
  return grouped::cut_scratch(params).bytes;
}

void prepare_grouped_scratch(const GroupedExperts& params, StreamHandle stream) {
  const grouped::Counters counters = grouped::cut_scratch(params).layer.counters;
  device_of(stream).note_launch("the experts' counters");
  device_of(stream).keep(launched(
      cudaMemsetAsync(params.scratch, 0, 2 * static_cast<std::size_t>(counters.count) * sizeof(int),
                      native(stream)),
      "the experts' counters"));
}

bool grouped_sums_into(const AfterExperts& next, const GroupedTiles& tiles) {
  const AddScaled& shared = next.shared;
  return !tiles.sum_inside && next.rows.add.b_bias == nullptr && norm_takes_vec4(next.rows) &&
         (shared.x == nullptr ||
          (shared.x_type == DType::f32 && vec4_aligned(shared.x, DType::f32, shared.x_stride)));
}

void run_grouped_experts(const GroupedExperts& params, const GroupedTiles& tiles,
                         StreamHandle stream) {
  if (params.tokens > 0) device_of(stream).keep(grouped::run(params, tiles, stream));
}

}  // namespace motley::kernels::cuda
