#include "moe/cpu/cpu_grouped.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "base/check.h"
#include "kernels/cpu/gemm.h"
#include "kernels/elementary.h"
#include "moe/cpu/cpu_workspace.h"
#include "moe/cpu/threads.h"
#include "ops/combine.h"
#include "ops/over_ranks.h"
#include "tensor/arena.h"

namespace motley::moe {
namespace {

// The size of a task's piece of a product. A block of weights (outputs x inputs in bf16: a quarter
// MiB for 2048 inputs) stays in a core's L2 while rows are multiplied. Both numbers are small
// enough that one row of eight experts, and one expert with every row, make tasks for all threads.
// Results do not depend on either (kernels/cpu/gemm.h), except that the activation's depend on
// where outputs are divided, which is the same for every call.
constexpr std::int64_t tile_outputs = 64;
constexpr std::int64_t tile_rows = 128;

std::int64_t blocks_of(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

// Places [begin, end) of one expert and outputs [out_begin, out_end) of its weight.
struct Tile {
  std::int64_t expert;
  std::int64_t begin;
  std::int64_t end;
  std::int64_t out_begin;
  std::int64_t out_end;
};

// Divides the rows of experts into blocks, and numbers the tiles of a product.
class Tiling {
 public:
  // row_blocks [experts + 1] receives the counts.
  Tiling(const plan::Plan& plan, std::span<std::int32_t> row_blocks)
      : begin_(plan.expert_begin()), row_blocks_(row_blocks) {
    row_blocks_[0] = 0;
    for (std::size_t expert = 0; expert + 1 < row_blocks_.size(); ++expert) {
      const std::int64_t blocks = blocks_of(begin_[expert + 1] - begin_[expert], tile_rows);
      row_blocks_[expert + 1] = row_blocks_[expert] + static_cast<std::int32_t>(blocks);
    }
  }

  std::int64_t tiles(std::int64_t outputs) const {
    return row_blocks_.back() * blocks_of(outputs, tile_outputs);
  }

  // In order of expert, then outputs, then rows, so that concurrent tiles share weights.
  Tile tile(std::int64_t outputs, std::int64_t index) const {
    const std::int64_t output_blocks = blocks_of(outputs, tile_outputs);
    // The last expert whose tiles begin at or before the index; experts without rows have no tiles.
    const auto after = std::upper_bound(
        row_blocks_.begin(), row_blocks_.end(), index,
        [&](std::int64_t at, std::int32_t blocks) { return at < blocks * output_blocks; });
    const std::int64_t expert = after - row_blocks_.begin() - 1;
    const auto e = static_cast<std::size_t>(expert);
    const std::int64_t inside = index - row_blocks_[e] * output_blocks;
    const std::int64_t blocks = row_blocks_[e + 1] - row_blocks_[e];
    const std::int64_t row_block = inside % blocks;
    const std::int64_t out_begin = inside / blocks * tile_outputs;
    const std::int64_t rows = begin_[e + 1] - begin_[e];
    return {.expert = expert,
            .begin = begin_[e] + rows * row_block / blocks,
            .end = begin_[e] + rows * (row_block + 1) / blocks,
            .out_begin = out_begin,
            .out_end = std::min(out_begin + tile_outputs, outputs)};
  }

 private:
  std::span<const std::int32_t> begin_;
  std::span<std::int32_t> row_blocks_;
};

class Run {
 public:
  Run(const ExpertCall& call, const plan::Plan& plan, const Tiling& tiling)
      : call_(call), weights_(call.experts.weights()), plan_(plan), tiling_(tiling) {}

  // h [pairs, I] from x, through gate and up [pairs, I].
  void gate_up(const tensor::Tensor& gate, const tensor::Tensor& up, const tensor::Tensor& h) {
    const std::int64_t outputs = weights_.intermediate;
    const bool has_seam = call_.deltas != nullptr;
    for_tasks(call_.context, tiling_.tiles(outputs), [&](std::int64_t index) {
      const Tile tile = tiling_.tile(outputs, index);
      multiply(tile, weights_.gate, {call_.x, tokens()}, gate);
      multiply(tile, weights_.up, {call_.x, tokens()}, up);
      if (!has_seam) activate(tile, gate, up, h);
    });
    if (!has_seam) return;
    lora::add_gate_up(*call_.deltas, plan_, call_.x, gate, up, call_.context);
    for_tasks(call_.context, tiling_.tiles(outputs),
              [&](std::int64_t index) { activate(tiling_.tile(outputs, index), gate, up, h); });
  }

  // `maxima` of the rows of h by place.
  void down(const tensor::Tensor& h, const kernels::InputMaxima& maxima,
            const tensor::Tensor& down) {
    const std::int64_t outputs = weights_.hidden;
    const std::vector<float>& bias = weights_.down_bias;
    const bool has_seam = call_.deltas != nullptr;
    for_tasks(call_.context, tiling_.tiles(outputs), [&](std::int64_t index) {
      const Tile tile = tiling_.tile(outputs, index);
      multiply(tile, weights_.down, {h, nullptr, maxima}, down);
      if (!has_seam) add_bias(tile, bias, down);
    });
    if (!has_seam) return;
    lora::add_down(*call_.deltas, plan_, h, down, call_.context);
    if (bias.empty()) return;
    for_tasks(call_.context, tiling_.tiles(outputs),
              [&](std::int64_t index) { add_bias(tiling_.tile(outputs, index), bias, down); });
  }

 private:
  const std::int32_t* tokens() const { return plan_.tokens_in_order().data(); }

  struct Inputs {
    const tensor::ConstTensor& x;
    const std::int32_t* rows = nullptr;  // of a place; null: x is by place
    kernels::InputMaxima maxima{};
  };

  // y[place] = w x[rows[place]]
  void multiply(const Tile& tile, const std::vector<quant::Weight>& weights, const Inputs& inputs,
                const tensor::Tensor& y) const {
    const auto& [x, rows, maxima] = inputs;
    const std::int64_t first_maximum = tile.begin * maxima.stride;
    const std::int64_t x_begin = rows == nullptr ? tile.begin : 0;
    kernels::cpu::gemm_tile({
        .x = x.bytes() + x_begin * x.stride(0) * bits(x.dtype()) / 8,
        .x_type = x.dtype(),
        .x_stride = x.stride(0),
        .x_rows = rows == nullptr ? nullptr : rows + tile.begin,
        .maxima = {maxima.data == nullptr ? nullptr : maxima.data + first_maximum, maxima.stride},
        .rows = tile.end - tile.begin,
        .w = weights[static_cast<std::size_t>(tile.expert)].view(),
        .out_begin = tile.out_begin,
        .out_end = tile.out_end,
        .y = y.data<float>() + tile.begin * y.stride(0) + tile.out_begin,
        .y_stride = y.stride(0),
        .exact = call_.context.exact,
    });
  }

  static void add_bias(const Tile& tile, const std::vector<float>& bias, const tensor::Tensor& y) {
    if (bias.empty()) return;
    const float* const own = bias.data() + tile.expert * y.dim(1);
    for (std::int64_t place = tile.begin; place < tile.end; ++place) {
      float* const row = y.data<float>() + place * y.stride(0);
      for (std::int64_t o = tile.out_begin; o < tile.out_end; ++o) row[o] += own[o];
    }
  }

  void activate(const Tile& tile, const tensor::Tensor& gate, const tensor::Tensor& up,
                const tensor::Tensor& h) const {
    add_bias(tile, weights_.gate_bias, gate);
    add_bias(tile, weights_.up_bias, up);
    const std::int64_t at = tile.begin * h.stride(0) + tile.out_begin;
    const bool silu = weights_.activation == ActivationKind::silu_mul;
    // Without a pool, because this already is one of its tasks.
    call_.context.kernels->activate_and_multiply(
        {
            .rows = tile.end - tile.begin,
            .width = tile.out_end - tile.out_begin,
            .activation = silu ? kernels::Activation::silu : kernels::Activation::clamped_swiglu,
            .limit = weights_.swiglu_limit,
            .alpha = weights_.swiglu_alpha,
            .gate = gate.data<float>() + at,
            .up = up.data<float>() + at,
            .type = DType::f32,
            .gate_stride = gate.stride(0),
            .up_stride = up.stride(0),
            .out = h.bytes() + at * bits(h.dtype()) / 8,
            .out_type = h.dtype(),
            .out_stride = h.stride(0),
        },
        StreamHandle{});
  }

  const ExpertCall& call_;
  const ExpertWeights& weights_;
  const plan::Plan& plan_;
  const Tiling& tiling_;
};

}  // namespace

std::size_t CpuGrouped::scratch_bytes(const Problem& problem, std::int64_t tokens) const {
  const std::int64_t pairs = tokens * problem.top_k;
  const std::int64_t h = pairs * problem.intermediate * (problem.exact ? 4 : 2);
  const std::int64_t gate_up = pairs * problem.intermediate * 2 * 4;
  const std::int64_t down = pairs * problem.hidden * 4;
  const std::int64_t row_blocks = (std::int64_t{problem.experts} + 1) * 4;
  const std::int64_t maxima = pairs * problem.cut_scales * 4;
  constexpr std::size_t max_tensors = 6;
  return static_cast<std::size_t>(row_blocks + h + std::max(gate_up, 2 * maxima + down)) +
         max_tensors * tensor::Allocator::alignment;
}

namespace {

// By place, the maxima of rows of h [pairs, I] that ranks cut; none where they are whole. Ranks
// find them by pair, as each has the pairs of its experts in an order of its own.
kernels::InputMaxima maxima_of(const ExpertCall& call, const plan::Plan& plan,
                               const tensor::Tensor& h) {
  const ExpertWeights& weights = call.experts.weights();
  const auto& [count, first] = weights.down_scales;
  if (count == 0) return {};
  const auto take = [&] {
    return call.context.scratch->allocate(DType::f32, {plan.pairs(), count}).value();
  };
  const tensor::Tensor by_pair = take();
  const tensor::Tensor by_place = take();
  const auto routed = static_cast<std::int32_t>(plan.routed_pairs());
  call.context.kernels->input_maxima({.rows = plan.pairs(),
                                      .width = h.dim(1),
                                      .x = h.bytes(),
                                      .x_type = h.dtype(),
                                      .x_stride = h.stride(0),
                                      .x_rows = plan.places().data(),
                                      .x_count = &routed,
                                      .rounding = weights.down[0].view().inputs,
                                      .scales = count,
                                      .first = first,
                                      .out = by_pair.data<float>()},
                                     call.context.stream);
  ops::max_over_ranks(call.context, by_pair);
  for (std::int64_t place = 0; place < routed; ++place) {
    const std::int64_t pair = plan.order()[static_cast<std::size_t>(place)];
    std::copy_n(by_pair.data<float>() + pair * count, count,
                by_place.data<float>() + place * count);
  }
  return {by_place.data<float>() + first, count};
}

void run(const ExpertCall& call, const ExpertKernel&) {
  const ExpertWeights& weights = call.experts.weights();
  const plan::Plan& plan = CpuWorkspace::build_plan(call);
  tensor::Arena& scratch = *call.context.scratch;
  const std::size_t mark = scratch.mark();
  const std::int64_t pairs = plan.pairs();
  const auto take = [&](DType dtype, const tensor::Shape& shape) {
    return scratch.allocate(dtype, shape).value();
  };

  const auto row_blocks = take(DType::i32, {weights.experts + 1});
  const Tiling tiling(
      plan, {row_blocks.data<std::int32_t>(), static_cast<std::size_t>(weights.experts) + 1});
  Run run(call, plan, tiling);
  const DType h_type = call.context.exact ? DType::f32 : DType::bf16;
  const auto h = take(h_type, {pairs, weights.intermediate});
  const std::size_t after_h = scratch.mark();
  const auto gate = take(DType::f32, {pairs, weights.intermediate});
  const auto up = take(DType::f32, {pairs, weights.intermediate});
  run.gate_up(gate, up, h);
  scratch.rewind(after_h);
  const kernels::InputMaxima maxima = maxima_of(call, plan, h);
  const auto down = take(DType::f32, {pairs, weights.hidden});
  run.down(h, maxima, down);
  ops::combine(call.context, down.slice(0, 0, plan.routed_pairs()), call.routing_weights,
               {.places = plan.places()}, call.out);
  scratch.rewind(mark);
}

constexpr std::array<ExpertKernel, 1> all_kernels{
    {{.info = {.name = "cpu_grouped",
               .architecture = kernels::Architecture::cpu,
               .arithmetic = {"gemm: the instruction set's, fixed by the row"},
               .tile = {.outputs = tile_outputs, .rows = tile_rows}},
      .run = run}}};

}  // namespace

std::span<const ExpertKernel> CpuGrouped::kernels() const { return all_kernels; }

}  // namespace motley::moe
