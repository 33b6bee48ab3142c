#include <algorithm>
#include <cstddef>
#include <string_view>

#include <cuda_bf16.h>

#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/experts/exact.h"
#include "kernels/cuda/experts/factors.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/weight_decode.cuh"

namespace motley::kernels::cuda {
namespace {

constexpr int tile_outputs = 64;
constexpr int tile_inner = 32;
constexpr int threads = 256;

__device__ float widen(const void* data, DType type, std::int64_t index) {
  if (type == DType::bf16) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]);
  return static_cast<const float*>(data)[index];
}

struct Product {
  const WeightView* weights;  // [experts]
  ExpertPlan plan;
  int experts;
  const void* x;
  DType x_type;
  std::int64_t in;
  std::int64_t out;
  bool rows_by_token;  // x has one row per token; else one per place
  float* y;            // [places, out]
};

// A block has one tile's places and 64 outputs; a thread has one place and 8 outputs, with the
// inner index ascending.
__global__ void __launch_bounds__(threads) multiply(Product p) {
  __shared__ float xs[exact_tile_places][tile_inner + 1];
  __shared__ float ws[tile_outputs][tile_inner + 1];
  wait_for_previous_grid();
  launch_dependents();
  const int tile_index = static_cast<int>(blockIdx.x);
  if (tile_index >= p.plan.tile_begin[p.experts]) return;
  const ExpertTile tile = p.plan.tiles[tile_index];
  const WeightView w = p.weights[tile.expert];
  const std::int64_t first_output = std::int64_t{blockIdx.y} * tile_outputs;
  const int t = static_cast<int>(threadIdx.x);
  const int row = t / 8;
  float sums[tile_outputs / 8] = {};
  for (std::int64_t k0 = 0; k0 < p.in; k0 += tile_inner) {
    for (int i = t; i < exact_tile_places * tile_inner; i += threads) {
      const int r = i / tile_inner;
      const std::int64_t k = k0 + i % tile_inner;
      float value = 0;
      if (r < tile.count && k < p.in) {
        const int place = tile.begin + r;
        const std::int64_t from = p.rows_by_token ? p.plan.tokens[place] : place;
        value = widen(p.x, p.x_type, from * p.in + k);
      }
      xs[r][i % tile_inner] = value;
    }
    for (int i = t; i < tile_outputs * tile_inner; i += threads) {
      const std::int64_t o = first_output + i / tile_inner;
      const std::int64_t k = k0 + i % tile_inner;
      ws[i / tile_inner][i % tile_inner] = o < p.out && k < p.in ? decode(w, o, k) : 0.0F;
    }
    __syncthreads();
    const int inner = static_cast<int>(min(std::int64_t{tile_inner}, p.in - k0));
    for (int k = 0; k < inner; ++k) {
      const float value = xs[row][k];
#pragma unroll
      for (int j = 0; j < tile_outputs / 8; ++j)
        sums[j] = fmaf(value, ws[t % 8 + 8 * j][k], sums[j]);
    }
    __syncthreads();
  }
  if (row >= tile.count) return;
#pragma unroll
  for (int j = 0; j < tile_outputs / 8; ++j) {
    const std::int64_t o = first_output + t % 8 + 8 * j;
    if (o < p.out) p.y[std::int64_t{tile.begin + row} * p.out + o] = sums[j];
  }
}

enum class Site : std::uint8_t { gate, up, down };
constexpr int site_kinds = 3;

// One factor of an adapter, in rows of `columns` numbers: element (row, column).
struct Factor {
  const void* numbers;
  DType type;
  std::int64_t columns;
  const float* scales;  // f8_e4m3: one per row, behind all numbers

  __device__ Factor(const void* from, DType of, std::int64_t rows, std::int64_t columns)
      : numbers(from), type(of), columns(columns) {
    const std::int64_t bytes = (rows * columns + 15) / 16 * 16;
    scales = reinterpret_cast<const float*>(static_cast<const unsigned char*>(from) + bytes);
  }
  __device__ float at(std::int64_t row, std::int64_t column) const {
    const std::int64_t index = row * columns + column;
    if (type != DType::f8_e4m3) return widen(numbers, type, index);
    return f8_value(static_cast<const unsigned char*>(numbers)[index]) * scales[row];
  }
};

struct Delta {
  ExactExperts layer;
  Site site;
  const void* x;
  DType x_type;
  std::int64_t in;
  std::int64_t out;
  bool rows_by_token;
  float* rank_rows;  // [places, max_terms, max_rank]
  float* y;          // [places, out]
};

__device__ FactorEntry factor_at(const Delta& d, const AdapterTerm& term, int expert) {
  return expert_factor(term, d.layer.deltas.layer, site_kinds, static_cast<int>(d.site), expert);
}

// The expert, label and terms of a block's place; empty if it has no expert or no label.
struct DeltaPlace {
  bool adapted;
  int expert;
  int term_begin;
  int term_end;
};

__device__ DeltaPlace delta_place(const Delta& d, int place) {
  DeltaPlace found{};
  const ExpertPlan& plan = d.layer.plan;
  if (place >= plan.expert_begin[d.layer.experts]) return found;
  const int label = d.layer.deltas.labels[plan.tokens[place]];
  if (label < 0) return found;
  // Finds the expert whose places include this one.
  int low = 0;
  int high = d.layer.experts;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (plan.expert_begin[middle] <= place ? low : high) = middle;
  }
  found.adapted = true;
  found.expert = low;
  found.term_begin = d.layer.deltas.term_begin[label];
  found.term_end = d.layer.deltas.term_begin[label + 1];
  return found;
}

// One block per place: rank_rows[place][term][r] = scale * sum over k of A[r][k] x[k]. One warp per
// rank; each lane sums every 32nd k, then lanes are summed in pairs.
__global__ void __launch_bounds__(threads) shrink(Delta d) {
  wait_for_previous_grid();
  launch_dependents();
  const int place = static_cast<int>(blockIdx.x);
  const DeltaPlace at = delta_place(d, place);
  if (!at.adapted) return;
  const ExactDeltas& deltas = d.layer.deltas;
  const std::int64_t row = d.rows_by_token ? d.layer.plan.tokens[place] : place;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = at.term_begin; i < at.term_end; ++i) {
    const AdapterTerm term = deltas.terms[i];
    const FactorEntry factor = factor_at(d, term, at.expert);
    const Factor a(factor.a, deltas.factor_type, factor.split, d.in);
    float* const to = d.rank_rows + (std::int64_t{place} * deltas.max_terms + (i - at.term_begin)) *
                                        deltas.max_rank;
    for (int r = static_cast<int>(threadIdx.x) / 32; r < factor.rank; r += threads / 32) {
      float sum = 0;
      for (std::int64_t k = lane; k < d.in; k += 32)
        sum = fmaf(a.at(r, k), widen(d.x, d.x_type, row * d.in + k), sum);
      for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_down_sync(0xFFFFFFFF, sum, distance);
      if (lane == 0) to[r] = factor.scale[0] * term.scale * sum;
    }
  }
}

// One block per place: y[place][o] += sum over terms, then ranks, of B[o][r] rank_rows[...][r].
__global__ void __launch_bounds__(threads) expand(Delta d) {
  wait_for_previous_grid();
  launch_dependents();
  const int place = static_cast<int>(blockIdx.x);
  const DeltaPlace at = delta_place(d, place);
  if (!at.adapted) return;
  const ExactDeltas& deltas = d.layer.deltas;
  for (int i = at.term_begin; i < at.term_end; ++i) {
    const FactorEntry factor = factor_at(d, deltas.terms[i], at.expert);
    if (factor.rank == 0) continue;
    const Factor b(factor.b, deltas.factor_type, d.out, factor.split);
    const float* const from =
        d.rank_rows +
        (std::int64_t{place} * deltas.max_terms + (i - at.term_begin)) * deltas.max_rank;
    for (std::int64_t o = threadIdx.x; o < d.out; o += threads) {
      float sum = 0;
      for (int r = 0; r < factor.rank; ++r) sum = fmaf(b.at(o, r), from[r], sum);
      d.y[std::int64_t{place} * d.out + o] += sum;
    }
  }
}

struct Activation {
  ExactExperts layer;
  float* gate;  // in: gate, out: h
  const float* up;
};

// A block has one tile's places and all of I.
__global__ void __launch_bounds__(threads) activate(Activation a) {
  wait_for_previous_grid();
  launch_dependents();
  const ExactExperts& layer = a.layer;
  const int tile_index = static_cast<int>(blockIdx.x);
  if (tile_index >= layer.plan.tile_begin[layer.experts]) return;
  const ExpertTile tile = layer.plan.tiles[tile_index];
  const std::int64_t width = layer.intermediate;
  for (std::int64_t i = threadIdx.x; i < tile.count * width; i += threads) {
    const std::int64_t at = tile.begin * width + i;
    const std::int64_t bias = tile.expert * width + i % width;
    float gate = a.gate[at];
    float up = a.up[at];
    if (layer.gate_bias != nullptr) {
      gate += layer.gate_bias[bias];
      up += layer.up_bias[bias];
    }
    float h = 0;
    if (layer.activation == ExpertActivation::silu_mul) {
      h = gate / (1.0F + expf(-gate)) * up;
    } else {
      // Written so that NaN stays NaN.
      const float limit = layer.swiglu_limit;
      if (gate > limit) gate = limit;
      if (up > limit) up = limit;
      if (up < -limit) up = -limit;
      h = (up + 1.0F) * (gate / (1.0F + expf(-layer.swiglu_alpha * gate)));
    }
    a.gate[at] = layer.round_h ? __bfloat162float(__float2bfloat16(h)) : h;
  }
}

struct Combination {
  ExactExperts layer;
  const float* down;  // [places, H]
};

// One block per token; its experts are added in the order of its slots.
__global__ void __launch_bounds__(threads) combine(Combination c) {
  wait_for_previous_grid();
  launch_dependents();
  const ExactExperts& layer = c.layer;
  const std::int64_t token = blockIdx.x;
  const int routed = layer.plan.expert_begin[layer.experts];
  for (std::int64_t i = threadIdx.x; i < layer.hidden; i += threads) {
    float sum = 0;
    for (int slot = 0; slot < layer.experts_per_token; ++slot) {
      const std::int64_t pair = token * layer.experts_per_token + slot;
      const int place = layer.plan.places[pair];
      if (place >= routed) continue;
      float value = c.down[place * layer.hidden + i];
      if (layer.down_bias != nullptr) {
        int expert = 0;
        int high = layer.experts;
        while (high - expert > 1) {
          const int middle = (expert + high) / 2;
          (layer.plan.expert_begin[middle] <= place ? expert : high) = middle;
        }
        value += layer.down_bias[expert * layer.hidden + i];
      }
      sum = fmaf(layer.routing_weights[pair], value, sum);
    }
    layer.out[token * layer.hidden + i] = sum;
  }
}

struct Scratch {
  float* gate;       // [pairs, I], then h
  float* up;         // [pairs, I]
  float* down;       // [pairs, H]
  float* rank_rows;  // [pairs, max_terms, max_rank]
  float* arranged;   // [pairs, max(H, columns of down)] inputs
  std::size_t numbers;
};

Scratch scratch_of(const ExactExperts& p) {
  const std::int64_t pairs = p.tokens * p.experts_per_token;
  auto* const base = static_cast<float*>(p.scratch);
  const std::int64_t inner = pairs * p.intermediate;
  const std::int64_t rank = pairs * p.deltas.max_terms * p.deltas.max_rank;
  const std::int64_t widest = std::max(p.hidden, p.intermediate + p.more_columns);
  float* const rank_rows = base + 2 * inner + pairs * p.hidden;
  return {.gate = base,
          .up = base + inner,
          .down = base + 2 * inner,
          .rank_rows = rank_rows,
          .arranged = rank_rows + rank,
          .numbers = static_cast<std::size_t>(2 * inner + pairs * (p.hidden + widest) + rank)};
}

// The product of inputs as the weights take them, which are arranged first where they are to be.
struct Taken {
  std::int64_t width;  // of a row before it is arranged
  const InputRounding& rounding;
  bool ordered;
  InputMaxima maxima{};  // by pair
};
void multiply_taken(std::string_view name, const ExactExperts& layer, Product product,
                    const Taken& inputs, StreamHandle stream) {
  const std::int64_t pairs = layer.tokens * layer.experts_per_token;
  if (inputs.ordered || inputs.rounding.scales != InputRounding::Scales::none) {
    float* const arranged = scratch_of(layer).arranged;
    // Of views in device memory no more than the address is taken here.
    const auto* const first = reinterpret_cast<const unsigned char*>(product.weights);
    arrange_expert_inputs(
        {.pairs = pairs,
         .width = product.in,
         .x = product.x,
         .x_type = product.x_type,
         .x_stride = inputs.width,
         .tokens = product.rows_by_token ? product.plan.tokens : nullptr,
         .expert_begin = product.plan.expert_begin,
         .experts = product.experts,
         .roundings = reinterpret_cast<const InputRounding*>(first + offsetof(WeightView, inputs)),
         .orders = reinterpret_cast<const std::int32_t* const*>(first +
                                                                offsetof(WeightView, input_order)),
         .stride = sizeof(WeightView),
         .columns = inputs.rounding.columns,
         .first = inputs.rounding.first,
         .maxima = inputs.maxima,
         .pairs_of = product.plan.order,
         .out = arranged,
         .out_type = DType::f32},
        stream);
    product.x = arranged;
    product.x_type = DType::f32;
    product.rows_by_token = false;
  }
  const LaunchShape shape{
      .grid = static_cast<unsigned>(max_tiles(pairs, layer.experts, exact_tile_places)),
      .grid_y = static_cast<unsigned>((product.out + tile_outputs - 1) / tile_outputs),
      .threads = threads};
  launch(name, multiply, shape, stream, product);
}

// Of the rows of h [pairs, I] by place.
void find_maxima(const ExactExperts& p, const float* h, StreamHandle stream) {
  if (p.cut.scales == 0) return;
  input_maxima({.rows = p.tokens * p.experts_per_token,
                .width = p.intermediate,
                .x = h,
                .x_stride = p.intermediate,
                .x_rows = p.plan.places,
                .x_count = p.plan.expert_begin + p.experts,
                .rounding = p.down_inputs,
                .scales = p.cut.scales,
                .first = p.cut.first,
                .out = p.cut.maxima},
               stream);
  (*p.cut.over_ranks)();
}

void add_delta(const Delta& delta, StreamHandle stream) {
  const auto pairs = static_cast<unsigned>(delta.layer.tokens * delta.layer.experts_per_token);
  const LaunchShape shape{.grid = pairs, .threads = threads};
  launch("an expert adapter's shrink", shrink, shape, stream, delta);
  launch("an expert adapter's expand", expand, shape, stream, delta);
}

}  // namespace

std::size_t exact_scratch_bytes(const ExactExperts& params) {
  return scratch_of(params).numbers * sizeof(float);
}

void run_exact_experts(const ExactExperts& params, StreamHandle stream) {
  const Scratch scratch = scratch_of(params);
  const std::int64_t pairs = params.tokens * params.experts_per_token;
  const auto tiles = static_cast<unsigned>(max_tiles(pairs, params.experts, exact_tile_places));
  const bool adapted = params.deltas.labels != nullptr;

  Product gate_up{.weights = params.gate,
                  .plan = params.plan,
                  .experts = params.experts,
                  .x = params.x,
                  .x_type = params.x_type,
                  .in = params.hidden,
                  .out = params.intermediate,
                  .rows_by_token = true,
                  .y = scratch.gate};
  const Taken gate_up_inputs{params.hidden, params.gate_up_inputs, params.gate_up_ordered};
  multiply_taken("the experts' gate", params, gate_up, gate_up_inputs, stream);
  gate_up.weights = params.up;
  gate_up.y = scratch.up;
  multiply_taken("the experts' up", params, gate_up, gate_up_inputs, stream);
  if (adapted) {
    Delta delta{.layer = params,
                .site = Site::gate,
                .x = params.x,
                .x_type = params.x_type,
                .in = params.hidden,
                .out = params.intermediate,
                .rows_by_token = true,
                .rank_rows = scratch.rank_rows,
                .y = scratch.gate};
    add_delta(delta, stream);
    delta.site = Site::up;
    delta.y = scratch.up;
    add_delta(delta, stream);
  }
  launch("the experts' activation", activate, {.grid = tiles, .threads = threads}, stream,
         Activation{params, scratch.gate, scratch.up});
  const Product down{.weights = params.down,
                     .plan = params.plan,
                     .experts = params.experts,
                     .x = scratch.gate,
                     .x_type = DType::f32,
                     .in = params.intermediate + params.more_columns,
                     .out = params.hidden,
                     .rows_by_token = false,
                     .y = scratch.down};
  find_maxima(params, scratch.gate, stream);
  multiply_taken("the experts' down", params, down,
                 {params.intermediate, params.down_inputs, params.down_ordered, params.cut.own()},
                 stream);
  if (adapted) {
    add_delta({.layer = params,
               .site = Site::down,
               .x = scratch.gate,
               .x_type = DType::f32,
               .in = params.intermediate,
               .out = params.hidden,
               .rows_by_token = false,
               .rank_rows = scratch.rank_rows,
               .y = scratch.down},
              stream);
  }
  launch("the sum over a token's experts", combine,
         {.grid = static_cast<unsigned>(params.tokens), .threads = threads}, stream,
         Combination{params, scratch.down});
}

}  // namespace motley::kernels::cuda
