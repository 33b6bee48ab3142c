// Selects the kernels that compute a delta behind linear maps.

#include <algorithm>

#include "base/cat.h"
#include "base/check.h"
#include "kernels/cuda/adapters/adapters.h"
#include "kernels/cuda/elementary/elementary.h"
#include "kernels/cuda/primitives/device.h"
#include "kernels/cuda/thresholds.h"

namespace motley::kernels::cuda {
namespace {

bool begins_at(const void* data, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

// Reasons are constants: every step asks, and discards the text.
Support takes_factor_type(const AdaptLinears& call) {
  if (call.adapters.factor_type == DType::f32)
    return Support::no("it reads factors in bf16 or FP8");
  return Support::yes();
}

Support takes_rows(const AdaptLinears& call) {
  if (call.x_type != DType::bf16) return Support::no("it reads rows of bf16");
  if (call.in <= 0 || call.in % 8 != 0)
    return Support::no("it reads rows of a width that 8 divides");
  if (call.x_stride % 8 != 0 || !begins_at(call.x, 16))
    return Support::no("it reads rows that begin on 16 bytes");
  return takes_factor_type(call);
}

Support takes_few(const AdaptLinears& call) {
  if (call.adapters.rows > few_adapted_rows)
    return Support::no("it takes at most {} rows", few_adapted_rows);
  return takes_rows(call);
}

bool within(const DeltaThreshold& bounds, const DeltaProblem& problem) {
  const AdaptLinears& call = problem.linears;
  return bounds.delta.expand().epilogue == problem.epilogue &&
         call.adapters.rows >= bounds.min_rows && call.adapters.rows <= bounds.max_rows &&
         (call.many_labels || !bounds.many_labels);
}

// Whether ranks compute rows in rank space for each other. Decided alike on all of them: they have
// the same rows and mixes, and inputs of the same width and type.
bool shares_rank_rows(const Delta& delta, const AdaptLinears& call) {
  if (call.shared.ranks == 1 || call.max_ranks == 0 || delta.expand().reads != RankLayout::panels ||
      rank_chunks(RankLayout::panels, call.max_ranks) > 1)
    return false;
  std::int64_t from = call.shared.from_rows;
  if (from < 0) {
    const auto* const row = std::ranges::find_if(shared_delta_thresholds, [&](const auto& each) {
      return std::int64_t{call.count} * call.max_ranks <= each.max_columns;
    });
    from = row->min_rows;
  }
  return call.adapters.rows >= from;
}

// Shrinks this rank's rows and gathers the others', one behind the other without a gap.
void run_shared(const Delta& delta, const DeltaProblem& problem, StreamHandle stream) {
  AdaptLinears call = problem.linears;
  call.rank_pitch = call.max_ranks;
  const std::int64_t part = (call.adapters.rows + call.shared.ranks - 1) / call.shared.ranks;
  MOTLEY_CHECK(part * call.shared.ranks * call.count * call.rank_pitch <=
                   rank_row_numbers(call.adapters.rows),
               "room for parts of equal size");
  call.shrink_begin = call.shared.rank * part;
  call.shrink_end = call.shrink_begin + part;
  delta.shrink()->run(call, 0, stream);
  const std::int64_t row_bytes =
      std::int64_t{call.count} * call.rank_pitch * std::int64_t{sizeof(float)};
  (*call.shared.gather)(call.rank_rows, part* row_bytes);
  const DeltaProblem gathered{
      .linears = call, .epilogue = problem.epilogue, .heads = problem.heads, .norm = problem.norm};
  delta.expand().run(gathered, {.number = 0, .last = true}, stream);
}

// Launches an adapter's whole weights before the delta.
bool try_delta(const DeltaProblem& problem, StreamHandle stream) {
  const Delta* const delta = select_delta(problem);
  if (delta == nullptr) return false;
  if (problem.linears.replaced) multiply_own_weights(problem.linears, stream);
  shares_rank_rows(*delta, problem.linears) ? run_shared(*delta, problem, stream)
                                            : delta->run(problem, stream);
  return true;
}

}  // namespace

ResultLayout layout_of(const AdaptLinears& call) {
  ResultLayout layout;
  const auto vec4s = [](const void* data, std::int64_t stride, std::size_t bytes) {
    return stride % 4 == 0 && begins_at(data, 4 * bytes);
  };
  for (int i = 0; i < call.count; ++i) {
    const AdaptedLinear& linear = call.linears[i];
    layout.whole = layout.whole && linear.out % 4 == 0 &&
                   vec4s(linear.acc, linear.acc_stride, sizeof(float)) &&
                   vec4s(linear.bias, 0, sizeof(float)) &&
                   vec4s(linear.result, linear.result_stride,
                         linear.result_type == DType::bf16 ? 2 : sizeof(float));
    layout.with_base = layout.with_base || linear.bias != nullptr || linear.result != linear.acc;
  }
  return layout;
}

int rank_chunks(RankLayout layout, std::int32_t max_ranks) {
  switch (layout) {
    case RankLayout::terms:
      return std::max(1, (max_ranks + rank_chunk - 1) / rank_chunk);
    case RankLayout::panels: {
      // The unused tail of a chunk is shorter than a panel.
      constexpr int least_filled = rank_chunk - panel_ranks;
      return std::max(1, (max_ranks + least_filled - 1) / least_filled);
    }
    case RankLayout::none:
    case RankLayout::slices:
      return 1;
  }
  return 1;
}

Support supports_any(const AdaptLinears&) { return Support::yes(); }
Support supports_stored(const DeltaProblem&) { return Support::yes(); }
Support supports_few_rows(const DeltaProblem& problem) { return takes_few(problem.linears); }
Support supports_bf16_rows(const AdaptLinears& call) { return takes_rows(call); }
Support supports_factor_type(const DeltaProblem& problem) {
  return takes_factor_type(problem.linears);
}

Support supports_slices(const AdaptLinears& call) {
  // Rounding up each term can double a row's ranks, and all must have places.
  if (call.max_ranks > rank_chunk / 2)
    return Support::no("it takes at most {} ranks of a row", rank_chunk / 2);
  if (call.adapters.groups.counts == nullptr)
    return Support::no("it takes rows whose groups are listed");
  return takes_few(call);
}

Support supports_listed_groups(const DeltaProblem& problem) {
  if (problem.linears.adapters.groups.counts == nullptr)
    return Support::no("it takes rows whose groups are listed");
  return takes_factor_type(problem.linears);
}

Support Delta::supports(const DeltaProblem& problem) const {
  if (problem.epilogue != expand_->epilogue) return Support::no("its results go elsewhere");
  if (shrink_ != nullptr)
    if (Support support = shrink_->supports(problem.linears); !support) return support;
  return expand_->supports(problem);
}

void Delta::run(const DeltaProblem& problem, StreamHandle stream) const {
  const AdaptLinears& call = problem.linears;
  const int chunks = rank_chunks(expand_->reads, call.max_ranks);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (shrink_ != nullptr && call.max_ranks > 0) shrink_->run(call, chunk, stream);
    expand_->run(problem, {.number = chunk, .last = chunk + 1 == chunks}, stream);
  }
}

const Delta* select_delta(const DeltaProblem& problem) {
  for (const DeltaThreshold& row : delta_thresholds)
    if (within(row, problem) && row.delta.supports(problem)) return &row.delta;
  return nullptr;
}

std::string refusals(const DeltaProblem& problem) {
  std::string all;
  for (const DeltaThreshold& row : delta_thresholds) {
    const Delta& delta = row.delta;
    if (delta.expand().epilogue != problem.epilogue) continue;
    const Support support = delta.supports(problem);
    all += cat(all.empty() ? "" : "; ", delta.shrink() != nullptr ? delta.shrink()->info.name : "",
               delta.shrink() != nullptr ? " and " : "", delta.expand().info.name, ": ",
               support ? std::string("not for so many rows") : support.reason());
  }
  return all;
}

void adapt_linears(const AdaptLinears& params, StreamHandle stream) {
  if (params.adapters.rows == 0 || params.count == 0) return;
  const DeltaProblem problem{.linears = params};
  if (try_delta(problem, stream)) return;
  device_of(stream).keep(Error(ErrorCode::unsupported,
                               cat("no kernel for this delta: ", refusals(problem)), "cuda",
                               "report it: adapters that load have one"));
}

void adapt_heads(const AdaptHeads& params, StreamHandle stream) {
  const DeltaProblem problem{
      .linears = params.linears, .epilogue = Epilogue::heads, .heads = &params.heads};
  if (params.linears.count > 0 && try_delta(problem, stream)) return;
  adapt_linears(params.linears, stream);
  prepare_heads(params.heads, stream);
}

bool adapt_takes_norm(const AdaptAndNorm& params) {
  return select_delta(
             {.linears = params.linear, .epilogue = Epilogue::norm, .norm = &params.rows}) !=
         nullptr;
}

void adapt_linear_and_norm(const AdaptAndNorm& params, StreamHandle stream) {
  const AdaptLinears& linear = params.linear;
  const Add& add = params.rows.add;
  MOTLEY_CHECK(linear.count == 1 && linear.linears[0].result == linear.linears[0].acc &&
                   linear.linears[0].acc == add.b && linear.linears[0].acc_stride == add.b_stride &&
                   linear.linears[0].out == add.width && linear.adapters.rows == add.rows,
               "the norm of a sum of which the map's result is the second part");
  const DeltaProblem problem{.linears = linear, .epilogue = Epilogue::norm, .norm = &params.rows};
  MOTLEY_CHECK(try_delta(problem, stream), refusals(problem));
}

Result<void> prepare_adapters() {
  MOTLEY_TRY_VOID(prepare_delta_in_cluster());
  MOTLEY_TRY_VOID(prepare_panels());
  MOTLEY_TRY_VOID(prepare_expand_heads());
  return prepare_expand_norm();
}

}  // namespace motley::kernels::cuda
