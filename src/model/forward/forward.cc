#include "model/forward/forward.h"

#include <algorithm>
#include <optional>

#include "lora/apply/batch.h"
#include "model/forward/fusions.h"
#include "model/forward/op_params.h"
#include "model/forward/run_op.h"
#include "tensor/arena.h"

namespace motley::model {

using ops::Launch;
using ops::LiveOp;

namespace {

// The number of cached schedules: sizes of decoding steps, with and without adapters.
constexpr std::size_t max_known = 64;

// The kind of an op in a step; nothing if no adapter of the step applies to it.
std::optional<OpKind> live_kind(const ops::Op& op, const Frame& frame) {
  const lora::RowMixes& mixes = frame.batch.mixes;
  switch (op.kind) {
    case OpKind::adapt: {
      const Linear& map = op.as<AdaptOp>().linear;
      if (lora::touches(mixes, map.site)) return OpKind::adapt;
      if (map.bias.data() != nullptr) return OpKind::bias;
      return std::nullopt;
    }
    case OpKind::adapt_embedding:
      if (!lora::touches(mixes, {-1, lora::Projection::embed})) return std::nullopt;
      break;
    case OpKind::scale_queries:
      if (!lora::scales(mixes, op.as<ScaleQueriesOp>().kv_b.site)) return std::nullopt;
      break;
    case OpKind::adapt_per_head:
      if (!lora::touches(mixes, op.as<AdaptPerHeadOp>().kv_b.site)) return std::nullopt;
      break;
    default:
      break;
  }
  return op.kind;
}

// The weights of the next product, if attention runs before it: they are prefetched meanwhile.
const ops::Op* read_ahead(std::span<const LiveOp> later) {
  const auto attends = [](OpKind kind) { return kind == OpKind::attend; };
  const auto next = std::ranges::find_if(
      later, [&](const LiveOp& live) { return attends(live.kind) || live.kind == OpKind::linear; });
  if (next == later.end() || !attends(next->kind)) return nullptr;
  const auto product = std::ranges::find(next, later.end(), OpKind::linear, &LiveOp::kind);
  return product == later.end() ? nullptr : product->op;
}

kernels::Ahead reading(const ops::Op* op) {
  if (op == nullptr) return {};
  const quant::Weight& weight = op->as<LinearOp>().linear.weight;
  return {.data = weight.view().data, .bytes = static_cast<std::int64_t>(weight.data_bytes())};
}

}  // namespace

Forward::Forward(const ops::OpList& list, const Options& options)
    : list_(list), fuses_(options.fuses) {
  for (const ops::Op& op : list.ops())
    scratch_bytes_.push_back(model::scratch_bytes(op, options.bounds));
  plan_ = ops::plan_memory(list, fuses_ ? fusion_patterns() : std::span<const ops::Pattern>(),
                           options.bounds, scratch_bytes_);
  known_.reserve(max_known);
  std::int32_t layers = 0;
  for (const ops::Op& op : list.ops()) {
    if (op.kind == OpKind::adapt) layers = std::max(layers, op.as<AdaptOp>().linear.site.layer + 1);
  }
  // A new kind of step replaces the least recently used one.
  signature_.sites.reserve(layers);
  for (std::size_t i = 0; i < max_known; ++i) {
    Known& known = known_.emplace_back();
    known.signature.sites.reserve(layers);
    known.schedule.ops.reserve(list.ops().size());
    known.schedule.launches.reserve(list.ops().size());
  }
}

void Forward::sign(const Frame& frame) {
  const lora::RowMixes& mixes = frame.batch.mixes;
  signature_.rows = frame.batch.count;
  signature_.adapted = mixes.batch != nullptr;
  signature_.scope = {};
  signature_.sites.clear();
  if (!signature_.adapted) return;
  if (mixes.table != nullptr) {
    signature_.scope = mixes.table->scope();
    signature_.sites.include(mixes.table->sites());
  } else {
    mixes.batch->add_sites(signature_.sites);
  }
}

const ops::Schedule& Forward::schedule_for(const Frame& frame) {
  sign(frame);
  const auto found = std::ranges::find(known_, signature_, &Known::signature);
  if (found != known_.end()) return found->schedule;
  std::ranges::rotate(known_, known_.begin() + 1);
  Known& known = known_.back();
  known.signature = signature_;
  fill(frame, known.schedule);
  return known.schedule;
}

void Forward::fill(const Frame& frame, ops::Schedule& schedule) const {
  schedule.ops.clear();
  for (const ops::Op& op : list_.ops())
    if (const std::optional<OpKind> kind = live_kind(op, frame))
      schedule.ops.push_back({&op, *kind});
  ops::match(
      list_, fuses_ ? fusion_patterns() : std::span<const ops::Pattern>(),
      [&](int pattern, std::span<const LiveOp> live) { return fusion_fits(pattern, live, frame); },
      schedule);
  const std::span<const LiveOp> all = schedule.ops;
  for (Launch& launch : schedule.launches) {
    const auto end =
        static_cast<std::size_t>(launch.first) + static_cast<std::size_t>(launch.count);
    if (all[end - 1].kind == OpKind::linear) launch.ahead = read_ahead(all.subspan(end));
  }
}

void Forward::run_launch(const ops::Schedule& schedule, const Launch& launch, Frame& frame) const {
  const std::span<const LiveOp> live = schedule.ops_of(launch);
  // Of ops that run together, at most one needs much scratch.
  const auto number = [&](const LiveOp& each) {
    return static_cast<std::size_t>(each.op - list_.ops().data());
  };
  const std::size_t widest = number(*std::ranges::max_element(
      live, {}, [&](const LiveOp& each) { return scratch_bytes_[number(each)]; }));
  tensor::Arena scratch(frame.memory + plan_.scratch_at[widest], scratch_bytes_[widest],
                        frame.device);
  frame.context.scratch = &scratch;
  if (launch.pattern < 0) return run_op(live.front(), frame);
  run_fusion(launch.pattern, live, frame, reading(launch.ahead));
}

void Forward::trace_launch(const ops::Schedule& schedule, const Launch& launch, Frame& frame,
                           std::vector<TracedLaunch>& trace) const {
  TracedLaunch traced;
  if (launch.pattern >= 0)
    traced.pattern = fusion_patterns()[static_cast<std::size_t>(launch.pattern)].name;
  for (const LiveOp& live : schedule.ops_of(launch)) traced.ops.push_back(name(live.kind));
  kernels::log_cuda_launches(*frame.context.kernels, &traced.kernels);
  run_launch(schedule, launch, frame);
  kernels::log_cuda_launches(*frame.context.kernels, nullptr);
  trace.push_back(std::move(traced));
}

Frame Forward::frame_of(const Call& call) const {
  return {.list = list_,
          .plan = plan_,
          .memory = call.memory.data(),
          .device = call.memory.device(),
          .externals = call.externals,
          .context = call.context,
          .batch = call.batch,
          .experts = call.experts,
          .attention_scratch = call.attention_scratch,
          .part = call.batch.whole(),
          .mixes = call.batch.mixes};
}

std::vector<std::string> Forward::describe(const Call& call) {
  const ops::Schedule& schedule = schedule_for(frame_of(call));
  std::vector<std::string> names;
  for (const Launch& launch : schedule.launches) {
    names.emplace_back(launch.pattern < 0
                           ? name(schedule.ops_of(launch).front().kind)
                           : fusion_patterns()[static_cast<std::size_t>(launch.pattern)].name);
  }
  return names;
}

void Forward::run(const Call& call) {
  Frame frame = frame_of(call);
  const ops::Schedule& schedule = schedule_for(frame);
  const auto form = [&](const Launch& launch) { return schedule.ops_of(launch).front().op->form; };
  const auto run_one = [&](const Launch& launch) {
    if (call.trace != nullptr) return trace_launch(schedule, launch, frame, *call.trace);
    run_launch(schedule, launch, frame);
  };
  const StepPart whole = call.batch.whole();
  const std::span<const StepPart> parts =
      call.batch.parts.empty() ? std::span(&whole, 1) : call.batch.parts;
  const std::vector<Launch>& launches = schedule.launches;
  for (auto at = launches.begin(); at != launches.end();) {
    if (form(*at) == ops::all_forms) {
      run_one(*at++);
      continue;
    }
    const auto end = std::find_if(
        at, launches.end(), [&](const Launch& launch) { return form(launch) == ops::all_forms; });
    for (const StepPart& part : parts) {
      frame.part = part;
      frame.mixes = call.batch.mixes;
      if (frame.mixes.labels != nullptr) frame.mixes.labels += part.first_row;
      for (auto launch = at; launch != end; ++launch)
        if (form(*launch) == part.form) run_one(*launch);
    }
    frame.part = whole;
    frame.mixes = call.batch.mixes;
    at = end;
  }
}

}  // namespace motley::model
