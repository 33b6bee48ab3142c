#include "model/forward/fusions.h"

#include <algorithm>
#include <array>

#include "kernels/adapters.h"
#include "model/forward/fused_activation.h"
#include "model/forward/fused_heads.h"
#include "model/forward/fused_ops.h"
#include "model/forward/fused_products.h"
#include "model/forward/fused_recurrence.h"
#include "model/forward/op_params.h"
#include "model/forward/run_op.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/over_ranks.h"

// The patterns of fused ops, longest first:
//
// - (sum | bias)? add norm linear bias? route: a router with everything before it; of several
// ranks, their sum
// - (adapt | bias)+ norm* rotate+ store+ round?: deltas and biases of q, k and v, and their heads
// - norm rotate store rotate round: preparation of latent attention's rows
// - norm* rotate+ store+ round?: preparation of heads without deltas and biases
// - experts (add|add_scaled)? add norm arrange_inputs linear+, bias? add norm arrange_inputs
// linear+, norm arrange_inputs linear+: a norm that also rounds its result for maps
// - experts add|add_scaled add norm: experts, shared expert and the next sum
// - (sum | bias)? add norm linear: a router whose logits an adapter changes
// - sum add norm: of several ranks, where one launch can
// - experts add norm, adapt add norm: the op before a sum, with that sum
// - bias? add norm
// - arrange_inputs linear+: maps whose inputs are rounded, which may be multiplied as codes
// - adapt adapt+, linear linear+: maps of one x
// - convolve norm norm delta_gates: what a delta net's recurrence reads
// - norm? activate arrange_inputs linear+, norm activate: heads that are normed and gated, and what
// their products read
// - (add|add_scaled) add norm, and before arrange_inputs linear+: a shared expert and the next sum
// - product_per_head round, adapt_per_head round
//
// A launch has the bits of its ops one after the other, except for the order of sums in a product.
namespace motley::model {

using ops::bit;
using ops::LiveOp;
using ops::one;
using ops::OpList;
using ops::optional;
using ops::some;
using ops::some_of_one;
using tensor::Tensor;

namespace {

bool keeps_none_but_rounded(const OpList& /*list*/, Ops ops, ValueId value) {
  return value == params<RoundOp>(ops.back()).out;
}

// A sum with its norm: [bias?, add, norm, ...], where the bias is that of the second addend.

Ops behind_bias(Ops ops) { return ops[0].kind == OpKind::bias ? ops.subspan(1) : ops; }

kernels::AddAndNorm sum_call(Ops ops, const Frame& frame) {
  const Ops sum = behind_bias(ops);
  const auto& add = params<AddOp>(sum[0]);
  const auto& norm = params<NormOp>(sum[1]);
  const bool has_bias = sum.size() < ops.size();
  return ops::add_and_norm_call(
      frame.context,
      {.a = frame.at(add.a),
       .b = frame.at(add.b),
       .sum = frame.at(add.sum),
       .b_bias = has_bias ? params<AdaptOp>(ops[0]).linear.bias.data() : nullptr},
      norm.norm.weight.view(), norm.norm.options(), frame.at(norm.out));
}

ValueId result_of_norm(Ops ops) { return params<NormOp>(ops.back()).out; }

bool is_normed_sum(Ops ops) {
  const Ops sum = behind_bias(ops);
  const auto& add = params<AddOp>(sum[0]);
  if (params<NormOp>(sum[1]).x != add.sum) return false;
  return sum.size() == ops.size() || (params<AdaptOp>(ops[0]).y == add.b && add.a != add.b);
}

bool keeps_all_but_biased(const OpList& list, Ops ops, ValueId value) {
  return ops[0].kind != OpKind::bias || !list.overlap(value, ops[0].op->writes[0]);
}

bool fits_add_norm(Ops ops, const Frame&) { return is_normed_sum(ops); }

void run_add_norm(Ops ops, const Frame& frame, const kernels::Ahead&) {
  frame.context.kernels->add_and_norm(sum_call(ops, frame), frame.context.stream);
}

// A router: a sum with its norm, then [linear], and [bias?, route] unless an adapter changes its
// logits. The product is the same in both cases.

const LinearOp& router_of(Ops ops) { return params<LinearOp>(behind_bias(ops)[2]); }

bool is_router_of_sum(Ops ops) {
  const LinearOp& linear = router_of(ops);
  return is_normed_sum(ops) && linear.router != nullptr &&
         linear.x == params<NormOp>(behind_bias(ops)[1]).out;
}

bool fits_add_norm_router(Ops ops, const Frame&) {
  return is_router_of_sum(ops) && params<RouteOp>(ops.back()).logits == router_of(ops).y;
}

template <class Body>
void with_router_input(Ops ops, const Frame& frame, const Body& body) {
  const LinearOp& linear = router_of(ops);
  const kernels::AddAndNorm rows = sum_call(ops, frame);
  body(moe::RouterInput{.rows = rows,
                        .x = frame.at(linear.x),
                        .weight = linear.linear.weight,
                        .bias = linear.linear.bias.data(),
                        .logits = frame.at(linear.y)});
}

void run_add_norm_route(Ops ops, const Frame& frame, const kernels::Ahead&) {
  with_router_input(ops, frame, [&](const moe::RouterInput& input) {
    moe::norm_and_route(input, routing(params<RouteOp>(ops.back()), frame), frame.context);
  });
}

bool keeps_all_but_logits(const OpList& list, Ops ops, ValueId value) {
  return keeps_all_but_biased(list, ops, value) && !list.overlap(value, router_of(ops).y);
}

bool fits_add_norm_logits(Ops ops, const Frame&) { return is_router_of_sum(ops); }

void run_add_norm_logits(Ops ops, const Frame& frame, const kernels::Ahead&) {
  with_router_input(ops, frame, [&](const moe::RouterInput& input) {
    moe::norm_and_logits(input, *router_of(ops).router, frame.context);
  });
}

// Behind the sum over ranks of its second addend.

Ops behind_sum(Ops ops) { return ops.subspan(1); }

bool fits_sum_add_norm(Ops ops, const Frame& frame) {
  const auto& sum = params<SumOverRanksOp>(ops[0]);
  const auto& add = params<AddOp>(ops[1]);
  return is_normed_sum(behind_sum(ops)) && add.b == sum.x && !sum.sum.exact &&
         ops::fits_sum_and_norm(frame.context, sum_call(behind_sum(ops), frame));
}

void run_sum_add_norm(Ops ops, const Frame& frame, const kernels::Ahead&) {
  ops::sum_and_norm_over_ranks(frame.context, sum_call(behind_sum(ops), frame),
                               params<SumOverRanksOp>(ops[0]).sum.part);
}

// Few rows are normed with their router, and the sum is a launch of its own; many with the sum. Of
// a router: [sum, add, norm, linear, ...].
bool norm_joins_sum(Ops ops, const Frame& frame) {
  if (!fits_sum_add_norm(ops.first(3), frame)) return false;
  bool joins = false;
  with_router_input(behind_sum(ops), frame, [&](const moe::RouterInput& input) {
    joins = !moe::routes_in_one_launch(input, *router_of(behind_sum(ops)).router, frame.context);
  });
  return joins;
}

bool fits_sum_add_norm_router(Ops ops, const Frame& frame) {
  return fits_add_norm_router(behind_sum(ops), frame) && !norm_joins_sum(ops, frame);
}

bool fits_sum_add_norm_logits(Ops ops, const Frame& frame) {
  return fits_add_norm_logits(behind_sum(ops), frame) && !norm_joins_sum(ops, frame);
}

bool sum_keeps_all_but_logits(const OpList& list, Ops ops, ValueId value) {
  return keeps_all_but_logits(list, behind_sum(ops), value);
}

void run_sum_add_norm_route(Ops ops, const Frame& frame, const kernels::Ahead& ahead) {
  run_op(ops[0], frame);
  run_add_norm_route(behind_sum(ops), frame, ahead);
}

void run_sum_add_norm_logits(Ops ops, const Frame& frame, const kernels::Ahead& ahead) {
  run_op(ops[0], frame);
  run_add_norm_logits(behind_sum(ops), frame, ahead);
}

// Experts whose result is the second addend of a sum.

bool keeps_all_but_first(const OpList& list, Ops ops, ValueId value) {
  return !list.overlap(value, ops.front().op->writes[0]);
}

// [(add | add_scaled), add, norm]: rows of a shared expert.
kernels::AfterExperts after_shared(Ops ops, const Frame& frame) {
  kernels::AfterExperts after{.rows = sum_call(ops.last(2), frame)};
  if (ops[0].kind == OpKind::add_scaled) {
    after.shared = add_scaled_call(params<AddScaledOp>(ops[0]), frame);
  } else {
    const Tensor shared = frame.at(params<AddOp>(ops[0]).b);
    after.shared = {.rows = shared.dim(0),
                    .width = shared.dim(1),
                    .x = shared.bytes(),
                    .x_type = shared.dtype(),
                    .x_stride = shared.stride(0)};
  }
  return after;
}

// [experts, (add | add_scaled)?, add, norm]
kernels::AfterExperts after_experts(Ops ops, const Frame& frame) {
  if (ops.size() > 3) return after_shared(ops.subspan(1), frame);
  return {.rows = sum_call(ops.last(2), frame)};
}

// Whether the op between the experts and the sum adds to the experts' rows.
bool adds_to(const LiveOp& live, ValueId out) {
  if (live.kind == OpKind::add_scaled) return params<AddScaledOp>(live).y == out;
  const auto& add = params<AddOp>(live);
  return add.a == out && add.sum == out;
}

bool fits_experts_add_norm(Ops ops, const Frame& frame) {
  const auto& experts = params<ExpertsOp>(ops[0]);
  const Ops sum = ops.last(2);
  if (!is_normed_sum(sum) || params<AddOp>(sum[0]).b != experts.out) return false;
  if (ops.size() > 3 && !adds_to(ops[1], experts.out)) return false;
  const kernels::AfterExperts next = after_experts(ops, frame);
  const lora::ExpertDeltas deltas = deltas_of(experts, frame);
  return moe::sums_into(experts.backend, expert_call(experts, &next, deltas, frame));
}

void run_experts_and(const kernels::AfterExperts& next, const ExpertsOp& experts,
                     const Frame& frame) {
  const lora::ExpertDeltas deltas = deltas_of(experts, frame);
  moe::run_experts(experts.backend, expert_call(experts, &next, deltas, frame));
}

void run_experts_add_norm(Ops ops, const Frame& frame, const kernels::Ahead&) {
  run_experts_and(after_experts(ops, frame), params<ExpertsOp>(ops[0]), frame);
}

// Experts that have a sum of their own: [(add | add_scaled), add, norm].

bool fits_shared_add_norm(Ops ops, const Frame& frame) {
  const kernels::ElementaryTable& kernels = *frame.context.kernels;
  const Ops sum = ops.last(2);
  return kernels.takes_shared != nullptr && is_normed_sum(sum) &&
         adds_to(ops[0], params<AddOp>(sum[0]).b) && kernels.takes_shared(after_shared(ops, frame));
}

void run_shared_add_norm(Ops ops, const Frame& frame, const kernels::Ahead&) {
  frame.context.kernels->add_shared_and_norm(after_shared(ops, frame), frame.context.stream);
}

// Deltas of a map whose result is the second addend of a sum.

bool fits_adapt_add_norm(Ops ops, const Frame& frame) {
  const auto& adapt = params<AdaptOp>(ops[0]);
  const auto& add = params<AddOp>(ops[1]);
  return is_normed_sum(ops.last(2)) && add.b == adapt.y &&
         lora::takes_norm(frame.mixes, frame.at(adapt.x), adapted(adapt, frame),
                          sum_call(ops.last(2), frame), frame.context);
}

void run_adapt_add_norm(Ops ops, const Frame& frame, const kernels::Ahead&) {
  const auto& adapt = params<AdaptOp>(ops[0]);
  lora::finish_linear_and_norm(frame.mixes, frame.at(adapt.x), adapted(adapt, frame),
                               sum_call(ops.last(2), frame), frame.context);
}

// Deltas of maps that share x; some may only have a bias.

bool fits_adapts(Ops ops, const Frame&) { return share_x(ops); }

void run_adapts(Ops ops, const Frame& frame, const kernels::Ahead&) {
  AdaptedMaps maps;
  for (const LiveOp& each : ops) maps.add(each, frame);
  lora::finish_linears(frame.mixes, frame.at(params<AdaptOp>(ops[0]).x), maps.span(),
                       frame.context);
}

// The same behind the norm that makes what is rounded: [..., norm, arrange_inputs, linear...].

bool keeps_all_but_rounded(const OpList& list, Ops ops, ValueId value) {
  return keeps_results(list, RoundedProducts(ops).products, value);
}
bool keeps_all_but_first_and_rounded(const OpList& list, Ops ops, ValueId value) {
  return keeps_all_but_first(list, ops, value) && keeps_all_but_rounded(list, ops, value);
}

bool keeps_all_but_biased_and_rounded(const OpList& list, Ops ops, ValueId value) {
  return keeps_all_but_biased(list, ops, value) && keeps_all_but_rounded(list, ops, value);
}

kernels::AddAndNorm norm_call(const LiveOp& live, const Frame& frame) {
  const auto& op = params<NormOp>(live);
  return {.norm = ops::rms_norm_call(frame.context, frame.at(op.x), op.norm.weight.view(),
                                     op.norm.options(), frame.at(op.out))};
}

bool fits_norm_linears(Ops ops, const Frame& frame) {
  return RoundedProducts(ops).fit(norm_call(ops[0], frame), params<NormOp>(ops[0]).out, frame);
}

void run_norm_linears(Ops ops, const Frame& frame, const kernels::Ahead& ahead) {
  const RoundedProducts products(ops);
  kernels::AddAndNorm call = norm_call(ops[0], frame);
  call.norm.rounded = products.rows_of(call, frame);
  frame.context.kernels->rms_norm(call.norm, frame.context.stream);
  products.multiply(call.norm.rounded, frame, ahead);
}

bool fits_add_norm_linears(Ops ops, const Frame& frame) {
  const RoundedProducts products(ops);
  return fits_add_norm(products.made, frame) &&
         products.fit(sum_call(products.made, frame), result_of_norm(products.made), frame);
}

void run_add_norm_linears(Ops ops, const Frame& frame, const kernels::Ahead& ahead) {
  const RoundedProducts products(ops);
  kernels::AddAndNorm call = sum_call(products.made, frame);
  call.norm.rounded = products.rows_of(call, frame);
  frame.context.kernels->add_and_norm(call, frame.context.stream);
  products.multiply(call.norm.rounded, frame, ahead);
}

bool fits_experts_add_norm_linears(Ops ops, const Frame& frame) {
  const RoundedProducts products(ops);
  return fits_experts_add_norm(products.made, frame) &&
         products.fit(after_experts(products.made, frame).rows, result_of_norm(products.made),
                      frame);
}

void run_experts_add_norm_linears(Ops ops, const Frame& frame, const kernels::Ahead& ahead) {
  const RoundedProducts products(ops);
  kernels::AfterExperts next = after_experts(products.made, frame);
  next.rows.norm.rounded = products.rows_of(next.rows, frame);
  run_experts_and(next, params<ExpertsOp>(ops[0]), frame);
  products.multiply(next.rows.norm.rounded, frame, ahead);
}

bool fits_shared_add_norm_linears(Ops ops, const Frame& frame) {
  const RoundedProducts products(ops);
  return fits_shared_add_norm(products.made, frame) &&
         products.fit(after_shared(products.made, frame).rows, result_of_norm(products.made),
                      frame);
}

void run_shared_add_norm_linears(Ops ops, const Frame& frame, const kernels::Ahead& ahead) {
  const RoundedProducts products(ops);
  kernels::AfterExperts next = after_shared(products.made, frame);
  next.rows.norm.rounded = products.rows_of(next.rows, frame);
  frame.context.kernels->add_shared_and_norm(next, frame.context.stream);
  products.multiply(next.rows.norm.rounded, frame, ahead);
}

// Per-head products with rounded results.

bool fits_per_head_round(Ops ops, const Frame& frame) {
  const auto& round = params<RoundOp>(ops[1]);
  return round.x == params<PerHeadOp>(ops[0]).y && frame.list.value(round.out).type == DType::bf16;
}

void run_per_head_round(Ops ops, const Frame& frame, const kernels::Ahead&) {
  const auto& op = params<PerHeadOp>(ops[0]);
  const auto product = op.transposed ? ops::linear_per_head_transposed : ops::linear_per_head;
  product(frame.context, frame.at(op.x), op.weight, op.rows, frame.at(op.y),
          {.narrow = op.narrow, .rounded = frame.at(params<RoundOp>(ops[1]).out)});
}

bool fits_adapt_per_head_round(Ops ops, const Frame& frame) {
  const auto& round = params<RoundOp>(ops[1]);
  return frame.mixes.table != nullptr && round.x == params<AdaptPerHeadOp>(ops[0]).y &&
         frame.list.value(round.out).type == DType::bf16;
}

void run_adapt_per_head_round(Ops ops, const Frame& frame, const kernels::Ahead&) {
  const auto& op = params<AdaptPerHeadOp>(ops[0]);
  const auto adapt = op.keys ? lora::kv_b_key_delta : lora::kv_b_value_delta;
  adapt(frame.mixes, {op.kv_b.site.layer, op.rows_per_head}, frame.at(op.x), frame.at(op.y),
        frame.context, frame.at(params<RoundOp>(ops[1]).out));
}

struct Fusion {
  ops::Pattern pattern;
  bool (*fits)(Ops ops, const Frame& frame) = nullptr;
  void (*run)(Ops ops, const Frame& frame, const kernels::Ahead& ahead) = nullptr;
};

constexpr ops::OpKinds adapt_or_bias = bit(OpKind::adapt) | bit(OpKind::bias);
constexpr int max_maps = static_cast<int>(ops::max_products);
constexpr ops::PatternElement maps = some_of_one(bit(OpKind::linear), 1, max_maps);
constexpr ops::PatternElement shared = some(bit(OpKind::add) | bit(OpKind::add_scaled), 1, 1);

constexpr std::array fusions{
    Fusion{{"sum_add_norm_route",
            {one(OpKind::sum_over_ranks), one(OpKind::add), one(OpKind::norm), one(OpKind::linear),
             optional(OpKind::bias), one(OpKind::route)},
            sum_keeps_all_but_logits},
           fits_sum_add_norm_router,
           run_sum_add_norm_route},
    Fusion{{"add_norm_route",
            {optional(OpKind::bias), one(OpKind::add), one(OpKind::norm), one(OpKind::linear),
             optional(OpKind::bias), one(OpKind::route)},
            keeps_all_but_logits},
           fits_add_norm_router,
           run_add_norm_route},
    Fusion{
        {"adapt_heads",
         {some(adapt_or_bias, 1, max_maps), some(bit(OpKind::norm), 0, 3),
          some(bit(OpKind::rotate), 1, 2), some(bit(OpKind::store), 1, 2), optional(OpKind::round)},
         keeps_queries},
        fits_adapted_heads,
        run_adapted_heads},
    Fusion{{"latent_rows",
            {one(OpKind::norm), one(OpKind::rotate), one(OpKind::store), one(OpKind::rotate),
             one(OpKind::round)},
            keeps_none_but_rounded},
           fits_latent_rows,
           run_latent_rows},
    Fusion{{"heads",
            {some(bit(OpKind::norm), 0, 3), some(bit(OpKind::rotate), 1, 2),
             some(bit(OpKind::store), 1, 2), optional(OpKind::round)},
            keeps_queries},
           fits_heads,
           run_heads},
    Fusion{{"experts_shared_add_norm_linears",
            {one(OpKind::experts), shared, one(OpKind::add), one(OpKind::norm),
             one(OpKind::arrange_inputs), maps},
            keeps_all_but_first_and_rounded},
           fits_experts_add_norm_linears,
           run_experts_add_norm_linears},
    Fusion{{"experts_add_norm_linears",
            {one(OpKind::experts), one(OpKind::add), one(OpKind::norm), one(OpKind::arrange_inputs),
             maps},
            keeps_all_but_first_and_rounded},
           fits_experts_add_norm_linears,
           run_experts_add_norm_linears},
    Fusion{{"shared_add_norm_linears",
            {shared, one(OpKind::add), one(OpKind::norm), one(OpKind::arrange_inputs), maps},
            keeps_all_but_first_and_rounded},
           fits_shared_add_norm_linears,
           run_shared_add_norm_linears},
    Fusion{{"delta_inputs",
            {one(OpKind::convolve), one(OpKind::norm), one(OpKind::norm), one(OpKind::delta_gates)},
            nullptr},
           fits_delta_inputs,
           run_delta_inputs},
    Fusion{{"add_norm_linears",
            {optional(OpKind::bias), one(OpKind::add), one(OpKind::norm),
             one(OpKind::arrange_inputs), maps},
            keeps_all_but_biased_and_rounded},
           fits_add_norm_linears,
           run_add_norm_linears},
    Fusion{{"norm_activate_linears",
            {optional(OpKind::norm), one(OpKind::activate), one(OpKind::arrange_inputs), maps},
            keeps_all_but_normed_and_rounded},
           fits_activate_linears,
           run_activate_linears},
    Fusion{{"norm_linears",
            {one(OpKind::norm), one(OpKind::arrange_inputs), maps},
            keeps_all_but_rounded},
           fits_norm_linears,
           run_norm_linears},
    Fusion{{"rounded_linears", {one(OpKind::arrange_inputs), maps}, keeps_results},
           fits_rounded_linears,
           run_rounded_linears},
    Fusion{{"add_norm_logits",
            {optional(OpKind::bias), one(OpKind::add), one(OpKind::norm), one(OpKind::linear)},
            keeps_all_but_biased},
           fits_add_norm_logits,
           run_add_norm_logits},
    Fusion{{"sum_add_norm_logits",
            {one(OpKind::sum_over_ranks), one(OpKind::add), one(OpKind::norm), one(OpKind::linear)},
            nullptr},
           fits_sum_add_norm_logits,
           run_sum_add_norm_logits},
    Fusion{{"experts_shared_add_norm",
            {one(OpKind::experts), shared, one(OpKind::add), one(OpKind::norm)},
            keeps_all_but_first},
           fits_experts_add_norm,
           run_experts_add_norm},
    Fusion{{"experts_add_norm",
            {one(OpKind::experts), one(OpKind::add), one(OpKind::norm)},
            keeps_all_but_first},
           fits_experts_add_norm,
           run_experts_add_norm},
    Fusion{{"shared_add_norm", {shared, one(OpKind::add), one(OpKind::norm)}, keeps_all_but_first},
           fits_shared_add_norm,
           run_shared_add_norm},
    Fusion{{"adapt_add_norm",
            {one(OpKind::adapt), one(OpKind::add), one(OpKind::norm)},
            keeps_all_but_first},
           fits_adapt_add_norm,
           run_adapt_add_norm},
    Fusion{{"sum_add_norm",
            {one(OpKind::sum_over_ranks), one(OpKind::add), one(OpKind::norm)},
            keeps_all_but_first},
           fits_sum_add_norm,
           run_sum_add_norm},
    Fusion{{"norm_activate", {one(OpKind::norm), one(OpKind::activate)}, keeps_all_but_normed},
           fits_norm_activate,
           run_norm_activate},
    Fusion{{"add_norm",
            {optional(OpKind::bias), one(OpKind::add), one(OpKind::norm)},
            keeps_all_but_biased},
           fits_add_norm,
           run_add_norm},
    Fusion{{"adapts", {some(adapt_or_bias, 2, max_maps)}, nullptr}, fits_adapts, run_adapts},
    Fusion{{"linears", {some_of_one(bit(OpKind::linear), 2, max_maps)}, nullptr},
           fits_linears,
           run_linears},
    Fusion{{"per_head_round",
            {one(OpKind::product_per_head), one(OpKind::round)},
            keeps_none_but_rounded},
           fits_per_head_round,
           run_per_head_round},
    Fusion{{"adapt_per_head_round",
            {one(OpKind::adapt_per_head), one(OpKind::round)},
            keeps_none_but_rounded},
           fits_adapt_per_head_round,
           run_adapt_per_head_round},
};

constexpr auto patterns = [] {
  std::array<ops::Pattern, fusions.size()> all;
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = fusions[i].pattern;
  return all;
}();

const Fusion& fusion(int pattern) { return fusions[static_cast<std::size_t>(pattern)]; }

}  // namespace

std::span<const ops::Pattern> fusion_patterns() { return patterns; }

bool fusion_fits(int pattern, Ops ops, const Frame& frame) {
  return fusion(pattern).fits(ops, frame);
}

void run_fusion(int pattern, Ops ops, const Frame& frame, const kernels::Ahead& ahead) {
  fusion(pattern).run(ops, frame, ahead);
}

}  // namespace motley::model
