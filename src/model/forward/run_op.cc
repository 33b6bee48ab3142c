#include "model/forward/run_op.h"

#include <algorithm>
#include <array>

#include "lora/apply/step_table.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/over_ranks.h"
#include "ops/recurrence.h"
#include "ops/rope.h"
#include "tensor/arena.h"

namespace motley::model {

using tensor::Tensor;

namespace {

// Positions that are multiplied by kv_b together: few enough that their accumulators stay in a
// GPU's L2 until they are rounded.
std::int64_t expanded_at_once(std::int64_t out) {
  constexpr std::int64_t accumulator_bytes = std::int64_t{32} << 20;
  return std::max<std::int64_t>(accumulator_bytes / (out * std::int64_t{sizeof(float)}), 1);
}

// The tensor for the experts that rows choose: the caller's, if choices are kept, else the value's.
Tensor expert_ids(std::int32_t layer, ValueId ids, const Frame& frame) {
  const Tensor* const kept = frame.batch.choices;
  return kept == nullptr ? frame.at(ids) : kept->select(layer).slice(0, 0, frame.batch.count);
}

kernels::InputMaxima maxima_at(ValueId value, const Frame& frame) {
  if (value == ops::no_value) return {};
  const Tensor maxima = frame.at(value);
  return {maxima.data<float>(), maxima.stride(0)};
}

std::size_t row_numbers_bytes(std::int64_t rows) {
  return static_cast<std::size_t>(rows) * sizeof(float) + tensor::Allocator::alignment;
}

void run(const EmbedOp& op, const Frame& frame) {
  const kernels::WeightView& view = op.table.weight.view();
  const tensor::ConstTensor table(static_cast<const std::byte*>(view.data),
                                  op.table.weight.format().element, {view.out, view.in},
                                  frame.at(op.out).device());
  if (op.first)
    return ops::embed_part(frame.context, table, *op.first, frame.batch.tokens, frame.at(op.out));
  ops::embed(frame.context, table, frame.batch.tokens, frame.at(op.out));
}

void run(const AdaptEmbeddingOp& op, const Frame& frame) {
  const Tensor x = frame.at(op.x);
  lora::finish_embedding(frame.mixes, frame.batch.tokens, op.vocabulary, x, x, frame.context);
}

void run(const RopeTableOp& op, const Frame& frame) {
  ops::rope_table(frame.context, op.table.frequencies.view(), op.table.attention_factor,
                  frame.batch.rows.positions, frame.at(op.out));
}

void run(const AddOp& op, const Frame& frame) {
  ops::add(frame.context, frame.at(op.a), frame.at(op.b), frame.at(op.sum));
}

void run(const NormOp& op, const Frame& frame) {
  ops::rms_norm(frame.context, frame.at(op.x), op.norm.weight.view(), op.norm.options(),
                frame.at(op.out));
}

void run(const ArrangeInputsOp& op, const Frame& frame) {
  ops::arrange_inputs(frame.context, frame.at(op.x), taken_inputs(op, frame), frame.at(op.out));
}

void run(const LinearOp& op, const Frame& frame) {
  ops::linear(frame.context, frame.at(op.x), op.linear.weight, frame.at(op.y),
              maxima_at(op.maxima, frame));
}

void run_bias(const AdaptOp& op, const Frame& frame) {
  const Tensor y = frame.at(op.y);
  ops::round_to(frame.context, y, {.bias = op.linear.bias.data()}, y);
}

void run(const AdaptOp& op, const Frame& frame) {
  const lora::AdaptedLinear map = adapted(op, frame);
  lora::finish_linears(frame.mixes, frame.at(op.x), std::span(&map, 1), frame.context);
}

void run(const ClipOp& op, const Frame& frame) {
  const Tensor x = frame.at(op.x);
  ops::round_to(frame.context, x, {.limit = op.limit}, x);
}

// One operation of ops::prepare_heads.
void run(const RotateOp& op, const Frame& frame) {
  const Tensor x = frame.at(op.x);
  const ops::PreparedHeads heads{.x = x, .rotated = true, .out = x};
  ops::prepare_heads(frame.context,
                     {frame.context,
                      frame.rows(),
                      {.cos_sin = frame.at(op.cos_sin), .interleaved = op.interleaved},
                      std::span(&heads, 1)});
}

void run(const StoreOp& op, const Frame& frame) {
  const ops::PreparedHeads heads{.x = frame.whole(op.x),
                                 .pages = pages_of(op.layer, op.cache, frame)};
  ops::prepare_heads(frame.context, {frame.context, frame.rows(), {}, std::span(&heads, 1)});
}

// Head by head, unless the heads of all rows are contiguous.
void run(const RoundOp& op, const Frame& frame) {
  const Tensor x = frame.at(op.x);
  const Tensor out = frame.at(op.out);
  if (x.shape().rank() == 2) return ops::round_to(frame.context, x, {}, out);
  if (x.can_merge(0) && out.can_merge(0))
    return ops::round_to(frame.context, x.merge(0), {}, out.merge(0));
  for (std::int64_t head = 0; head < x.dim(1); ++head)
    ops::round_to(frame.context, x.slice(1, head, head + 1).merge(1), {},
                  out.slice(1, head, head + 1).merge(1));
}

const ops::LayerStates& states_of(std::int32_t layer, const Frame& frame) {
  return frame.batch.layer_states[static_cast<std::size_t>(layer)];
}

void run(const RecurOp& op, const Frame& frame) {
  const tensor::ConstTensor beta =
      op.beta == ops::no_value ? tensor::ConstTensor() : frame.at(op.beta);
  ops::recur(frame.context, frame.rows(), frame.batch.states, states_of(op.layer, frame),
             {.q = frame.at(op.q),
              .k = frame.at(op.k),
              .v = frame.at(op.v),
              .g = frame.at(op.g),
              .beta = beta,
              .out = frame.at(op.out)});
}

ops::Convolution convolution_of(const ConvolveOp& op, const Frame& frame) {
  const Tensor x = frame.at(op.x);
  const std::int64_t channels = x.dim(1);
  const tensor::ConstTensor weight(reinterpret_cast<const std::byte*>(op.weight.data()), DType::f32,
                                   {channels, op.weight.size() / channels}, x.device());
  const tensor::ConstTensor bias =
      op.bias.empty() ? tensor::ConstTensor() : tensor::ConstTensor(op.bias.view());
  return {.x = x, .weight = weight, .bias = bias, .silu = op.silu, .out = frame.at(op.out)};
}

void run(const ConvolveOp& op, const Frame& frame) {
  ops::convolve(frame.context, frame.rows(), frame.batch.states, states_of(op.layer, frame),
                convolution_of(op, frame));
}

ops::Gates gates_of(const DeltaGatesOp& op, const Frame& frame) {
  return {.decay = op.decay.view(),
          .bias = op.bias.view(),
          .a = frame.at(op.a),
          .b = frame.at(op.b),
          .g = frame.at(op.g),
          .beta = frame.at(op.beta)};
}

void run(const DeltaGatesOp& op, const Frame& frame) {
  ops::delta_gates(frame.context, gates_of(op, frame));
}

void run(const AttendOp& op, const Frame& frame) {
  const ops::KvPages& keys = pages_of(op.layer, keys_cache, frame);
  const ops::KvPages values = op.values_in_keys > 0 ? ops::values_in_keys(keys, op.values_in_keys)
                                                    : pages_of(op.layer, values_cache, frame);
  ops::attention(frame.context, frame.rows(), frame.whole(op.queries), {keys, values},
                 {.scale = op.scale,
                  .window = op.window,
                  .sinks = op.sinks,
                  .gates = op.gates == ops::no_value ? Tensor() : frame.whole(op.gates),
                  .scratch = frame.attention_scratch},
                 frame.whole(op.out));
}

void run(const PerHeadOp& op, const Frame& frame) {
  const auto product = op.transposed ? ops::linear_per_head_transposed : ops::linear_per_head;
  product(frame.context, frame.at(op.x), op.weight, op.rows, frame.at(op.y),
          {.narrow = op.narrow, .rounded = {}});
}

void run(const ScaleQueriesOp& op, const Frame& frame) {
  lora::kv_b_scale_queries(frame.mixes, {op.kv_b.site.layer, op.rows_per_head},
                           frame.at(op.queries), frame.context);
}

void run(const AdaptPerHeadOp& op, const Frame& frame) {
  const auto adapt = op.keys ? lora::kv_b_key_delta : lora::kv_b_value_delta;
  adapt(frame.mixes, {op.kv_b.site.layer, op.rows_per_head}, frame.at(op.x), frame.at(op.y),
        frame.context, {});
}

void run(const GatherOp& op, const Frame& frame) {
  const bool adapted = frame.batch.mixes.batch != nullptr;
  ops::gather_kv(frame.context, frame.rows(), pages_of(op.layer, keys_cache, frame),
                 {.begin = frame.batch.position_begin,
                  .out = frame.at(op.latents),
                  .labels = adapted ? frame.batch.mixes.labels : nullptr,
                  .out_labels = adapted ? frame.at(op.labels).data<std::int32_t>() : nullptr});
}

void run(const ExpandLatentsOp& op, const Frame& frame) {
  const lora::RowMixes& mixes = frame.batch.mixes;
  const Tensor latents = frame.at(op.latents);
  const Tensor expanded = frame.at(op.expanded);
  const std::int32_t* const labels = frame.at(op.labels).data<std::int32_t>();
  const std::int64_t positions = latents.dim(0);
  std::int64_t at_once = expanded_at_once(op.kv_b.out());
  if (mixes.table != nullptr) at_once = std::min<std::int64_t>(at_once, mixes.table->limits().rows);
  tensor::Arena& scratch = *frame.context.scratch;
  const std::size_t mark = scratch.mark();
  const Tensor sums =
      scratch.allocate(DType::f32, {std::min(at_once, positions), op.kv_b.out()}).value();
  for (std::int64_t first = 0; first < positions; first += at_once) {
    const std::int64_t end = std::min(first + at_once, positions);
    const Tensor x = latents.slice(0, first, end);
    const Tensor acc = sums.slice(0, 0, end - first);
    ops::linear(frame.context, x, op.weight, acc);
    const lora::AdaptedLinear map{.site = op.kv_b.site,
                                  .acc = acc,
                                  .bias = op.kv_b.bias.data(),
                                  .out = expanded.slice(0, first, end)};
    lora::finish_linears({.batch = mixes.batch,
                          .labels = labels + first,
                          .table = mixes.table,
                          .labels_in_step = true},
                         x, std::span(&map, 1), frame.context);
  }
  scratch.rewind(mark);
}

void run(const AttendExpandedOp& op, const Frame& frame) {
  const Tensor latents = frame.whole(op.latents);
  const Tensor by_head = frame.whole(op.expanded).split(1, op.key_width + op.value_width);
  const std::int64_t latent = latents.dim(1) - op.shared_width;
  ops::attention(frame.context, frame.rows(), frame.whole(op.queries),
                 {.begin = frame.batch.position_begin,
                  .max_positions = frame.part.max_positions,
                  .keys = by_head.slice(2, 0, op.key_width),
                  .shared = latents.slice(1, latent, latents.dim(1)),
                  .values = by_head.slice(2, op.key_width, op.key_width + op.value_width)},
                 {.scale = op.scale, .scratch = frame.attention_scratch}, frame.whole(op.out));
}

void run(const RouteOp& op, const Frame& frame) { moe::route(routing(op, frame), frame.context); }

void run(const LocalExpertsOp& op, const Frame& frame) {
  ops::shift_ids(frame.context, expert_ids(op.layer, op.ids, frame), op.first, frame.at(op.own));
}

void run(const ExpertsOp& op, const Frame& frame) {
  const lora::ExpertDeltas deltas = deltas_of(op, frame);
  moe::run_experts(op.backend, expert_call(op, nullptr, deltas, frame));
}

void run(const ActivateOp& op, const Frame& frame) {
  ops::activate_and_multiply(frame.context, op.spec, frame.at(op.gate), frame.at(op.up),
                             frame.at(op.out));
}

void run(const AddScaledOp& op, const Frame& frame) {
  frame.context.kernels->add_scaled(add_scaled_call(op, frame), frame.context.stream);
}

void run(const SumOverRanksOp& op, const Frame& frame) {
  ops::sum_over_ranks(frame.context, frame.at(op.x), op.sum);
}

void run(const NormOverRanksOp& op, const Frame& frame) {
  ops::rms_norm_over_ranks(
      frame.context, op.norm.weight.view(),
      {.options = op.norm.options(), .whole_width = op.whole_width, .part = op.part},
      frame.at(op.x));
}

void run(const InputMaximaOverRanksOp& op, const Frame& frame) {
  if (op.x == ops::no_value)
    return ops::input_maxima_over_ranks(frame.context, nullptr, op.cut, frame.at(op.out));
  const tensor::ConstTensor x = frame.at(op.x);
  ops::input_maxima_over_ranks(frame.context, &x, op.cut, frame.at(op.out));
}

void run(const GatherOverRanksOp& op, const Frame& frame) {
  ops::gather_over_ranks(frame.context, frame.at(op.x), op.columns, frame.at(op.out));
}

template <class Params>
void run_as(const ops::Op& op, const Frame& frame) {
  run(op.as<Params>(), frame);
}

}  // namespace

const ops::KvPages& pages_of(std::int32_t layer, std::size_t cache, const Frame& frame) {
  const LayerPages& pages = frame.batch.pages[static_cast<std::size_t>(layer)];
  MOTLEY_CHECK(cache < pages.size(), "a layer keeps what it stores and reads");
  return pages[cache];
}

lora::AdaptedLinear adapted(const AdaptOp& op, const Frame& frame) {
  const Tensor y = frame.at(op.y);
  return {.site = op.linear.site, .acc = y, .bias = op.linear.bias.data(), .out = y};
}

moe::Routing routing(const RouteOp& op, const Frame& frame) {
  const ops::PagedRows& rows = frame.batch.rows;
  return {.spec = op.spec,
          .logits = frame.at(op.logits),
          .correction_bias = op.correction_bias.data(),
          .ids = expert_ids(op.layer, op.ids, frame),
          .weights = frame.at(op.weights),
          .live_rows = rows.seq_begin + rows.sequences};
}

ops::TakenInputs taken_inputs(const ArrangeInputsOp& op, const Frame& frame) {
  ops::TakenInputs taken = op.taken;
  taken.maxima = maxima_at(op.maxima, frame);
  return taken;
}

lora::ExpertDeltas deltas_of(const ExpertsOp& op, const Frame& frame) {
  return {.batch = frame.mixes.batch, .layer = op.layer, .table = frame.mixes.table};
}

kernels::AddScaled add_scaled_call(const AddScaledOp& op, const Frame& frame) {
  return ops::add_scaled_call(frame.context, frame.at(op.x), frame.at(op.scale), {.sigmoid = true},
                              frame.at(op.y));
}

kernels::Convolve convolve_call(const ConvolveOp& op, const Frame& frame) {
  return ops::convolve_call(frame.context, frame.rows(), frame.batch.states,
                            states_of(op.layer, frame), convolution_of(op, frame));
}

kernels::DeltaGates gates_call(const DeltaGatesOp& op, const Frame& frame) {
  return ops::gates_call(frame.context, gates_of(op, frame));
}

moe::ExpertCall expert_call(const ExpertsOp& op, const kernels::AfterExperts* next,
                            const lora::ExpertDeltas& deltas, const Frame& frame) {
  return {.experts = op.experts,
          .x = frame.at(op.x),
          .ids = op.local_ids ? frame.at(op.ids) : expert_ids(op.layer, op.ids, frame),
          .routing_weights = frame.at(op.weights),
          .deltas = lora::touches_experts(frame.mixes, op.layer) ? &deltas : nullptr,
          .out = frame.at(op.out),
          .next = next,
          .workspace = frame.experts.of(op.backend),
          .context = frame.context};
}

void run_op(const ops::LiveOp& live, const Frame& frame) {
  const ops::Op& op = *live.op;
  switch (live.kind) {
    case OpKind::embed:
      return run_as<EmbedOp>(op, frame);
    case OpKind::adapt_embedding:
      return run_as<AdaptEmbeddingOp>(op, frame);
    case OpKind::rope_table:
      return run_as<RopeTableOp>(op, frame);
    case OpKind::add:
      return run_as<AddOp>(op, frame);
    case OpKind::norm:
      return run_as<NormOp>(op, frame);
    case OpKind::arrange_inputs:
      return run_as<ArrangeInputsOp>(op, frame);
    case OpKind::linear:
      return run_as<LinearOp>(op, frame);
    case OpKind::bias:
      return run_bias(op.as<AdaptOp>(), frame);
    case OpKind::adapt:
      return run_as<AdaptOp>(op, frame);
    case OpKind::clip:
      return run_as<ClipOp>(op, frame);
    case OpKind::rotate:
      return run_as<RotateOp>(op, frame);
    case OpKind::store:
      return run_as<StoreOp>(op, frame);
    case OpKind::round:
      return run_as<RoundOp>(op, frame);
    case OpKind::attend:
      return run_as<AttendOp>(op, frame);
    case OpKind::product_per_head:
      return run_as<PerHeadOp>(op, frame);
    case OpKind::scale_queries:
      return run_as<ScaleQueriesOp>(op, frame);
    case OpKind::adapt_per_head:
      return run_as<AdaptPerHeadOp>(op, frame);
    case OpKind::gather:
      return run_as<GatherOp>(op, frame);
    case OpKind::expand_latents:
      return run_as<ExpandLatentsOp>(op, frame);
    case OpKind::attend_expanded:
      return run_as<AttendExpandedOp>(op, frame);
    case OpKind::route:
      return run_as<RouteOp>(op, frame);
    case OpKind::local_experts:
      return run_as<LocalExpertsOp>(op, frame);
    case OpKind::experts:
      return run_as<ExpertsOp>(op, frame);
    case OpKind::recur:
      return run_as<RecurOp>(op, frame);
    case OpKind::convolve:
      return run_as<ConvolveOp>(op, frame);
    case OpKind::delta_gates:
      return run_as<DeltaGatesOp>(op, frame);
    case OpKind::activate:
      return run_as<ActivateOp>(op, frame);
    case OpKind::add_scaled:
      return run_as<AddScaledOp>(op, frame);
    case OpKind::sum_over_ranks:
      return run_as<SumOverRanksOp>(op, frame);
    case OpKind::norm_over_ranks:
      return run_as<NormOverRanksOp>(op, frame);
    case OpKind::input_maxima_over_ranks:
      return run_as<InputMaximaOverRanksOp>(op, frame);
    case OpKind::gather_over_ranks:
      return run_as<GatherOverRanksOp>(op, frame);
  }
}

std::size_t scratch_bytes(const ops::Op& op, const ops::RowBounds& bounds) {
  const auto tokens = bounds[static_cast<std::size_t>(ops::RowsOf::tokens)];
  const auto positions = bounds[static_cast<std::size_t>(ops::RowsOf::positions)];
  switch (op.kind) {
    // A number for each row.
    case OpKind::embed:
      return op.as<EmbedOp>().first ? row_numbers_bytes(tokens) : 0;
    case OpKind::norm_over_ranks:
      return row_numbers_bytes(tokens);
    case OpKind::adapt:
    case OpKind::scale_queries:
    case OpKind::adapt_per_head:
      return lora::scratch_bytes;
    case OpKind::expand_latents: {
      const std::int64_t out = op.as<ExpandLatentsOp>().kv_b.out();
      const std::int64_t numbers = std::min(expanded_at_once(out), positions) * out;
      return positions == 0
                 ? 0
                 : static_cast<std::size_t>(numbers) * sizeof(float) + lora::scratch_bytes;
    }
    case OpKind::experts: {
      const auto& experts = op.as<ExpertsOp>();
      return experts.backend.scratch_bytes(experts.problem, tokens) + lora::scratch_bytes;
    }
    default:
      return 0;
  }
}

}  // namespace motley::model
