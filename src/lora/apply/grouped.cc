#include "lora/apply/grouped.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "lora/apply/kernels.h"
#include "ops/over_ranks.h"
#include "plan/plan.h"

namespace motley::lora {

namespace {

// Rows of a group: many enough to share reads of a factor, few enough that there are groups for all
// threads.
constexpr std::int64_t rows_a_group = 32;
constexpr std::int64_t outputs_a_task = 256;
constexpr std::int64_t max_groups = 4096;
// Of so many rows the products with A take longer than a meeting of the ranks' threads, some tens
// of us.
constexpr std::int64_t min_shared_rows = 256;

template <class T>
std::span<T> take(tensor::Arena& arena, std::int64_t count) {
  const auto bytes = count * static_cast<std::int64_t>(sizeof(T));
  const tensor::Tensor memory = arena.allocate(DType::u8, tensor::Shape{bytes}).value();
  return {reinterpret_cast<T*>(memory.bytes()), static_cast<std::size_t>(count)};
}

std::int64_t blocks_of(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

}  // namespace

Shrinks shrinks_of(bool may_share, std::int64_t rows, const ops::Context& context) {
  return may_share && rows >= context.shared_shrinks.from_rows.value_or(min_shared_rows)
             ? Shrinks::shared
             : Shrinks::own;
}

std::span<const std::int32_t> rows_by_label(std::span<const std::int32_t> labels,
                                            std::int64_t begin, std::int64_t end,
                                            tensor::Arena& arena) {
  const auto label_of = [&](std::int32_t row) { return labels[static_cast<std::size_t>(row)]; };
  const std::span<std::int32_t> rows = take<std::int32_t>(arena, end - begin);
  std::size_t count = 0;
  for (std::int64_t row = begin; row < end; ++row) {
    if (labels[static_cast<std::size_t>(row)] != plan::no_label)
      rows[count++] = static_cast<std::int32_t>(row);
  }
  const std::span<std::int32_t> order = rows.first(count);
  // Prompts are sorted already.
  if (!std::ranges::is_sorted(order, {}, label_of)) {
    std::ranges::sort(order, {}, [&](std::int32_t row) { return std::pair(label_of(row), row); });
  }
  return order;
}

void for_labels(std::span<const std::int32_t> order, std::span<const std::int32_t> labels,
                FunctionRef<void(std::int32_t label, std::span<const std::int32_t> rows)> body) {
  const auto label_of = [&](std::int32_t row) { return labels[static_cast<std::size_t>(row)]; };
  for (std::size_t begin = 0; begin < order.size();) {
    const std::int32_t label = label_of(order[begin]);
    std::size_t end = begin + 1;
    while (end < order.size() && label_of(order[end]) == label) ++end;
    body(label, order.subspan(begin, end - begin));
    begin = end;
  }
}

struct GroupedDelta::Group {
  std::int32_t label = 0;
  std::int32_t expert = 0;
  DeltaRows rows;
  std::int64_t ranks = 0;  // of a row
  std::int64_t at = 0;     // of its first row in rank space
};

// A term's factors for one output, and the place of its ranks in a row in rank space.
struct GroupedDelta::Part {
  std::size_t output = 0;
  const SiteView* view = nullptr;
  kernels::FactorEntry factor;
  float scale = 0;
  std::int64_t first = 0;
  // false: an earlier output has the same ranks, as where fused gate_up has one A
  bool fresh = true;
};

// Calls body(part) for each term that has factors at a site; returns the sum of the ranks.
template <class Body>
std::int64_t GroupedDelta::for_parts(std::int32_t label, std::int32_t expert,
                                     const Body& body) const {
  std::int64_t next = 0;
  for (const Batch::Term& term : batch_.terms(label)) {
    Part before;
    for (std::size_t output = 0; output < outputs_.size(); ++output) {
      const SiteView* const view = term.adapter->find(outputs_[output].site);
      if (view == nullptr) continue;
      Part part{.output = output,
                .view = view,
                .factor = view->factors[static_cast<std::size_t>(expert)],
                .first = next};
      const kernels::FactorEntry& factor = part.factor;
      part.scale = factor.scale[0] * term.scale;
      part.fresh = factor.rank == 0 || factor.a != before.factor.a ||
                   factor.rank != before.factor.rank || factor.scale[0] != before.factor.scale[0];
      if (!part.fresh) {
        part.first = before.first;
      } else if (factor.rank > 0) {
        next += factor.split;
      }
      body(part);
      before = part;
    }
  }
  return next;
}

GroupedDelta::GroupedDelta(const Batch& batch, const tensor::ConstTensor& x,
                           std::span<const DeltaOutput> outputs, std::int64_t rows,
                           const ops::Context& context, Shrinks shrinks)
    : batch_(batch), x_(x), outputs_(outputs), context_(context), shrinks_(shrinks) {
  MOTLEY_CHECK(context.scratch != nullptr, "scratch for rows in rank space");
  tensor::Arena& arena = *context.scratch;
  mark_ = arena.mark();
  // The maximum over all labels and experts.
  std::int64_t widest = 0;
  for (std::int32_t label = 0; label < batch.label_count(); ++label) {
    std::int64_t ranks = 0;
    for (const Batch::Term& term : batch.terms(label))
      ranks += padded_rank(term.adapter->largest_rank(), batch.dtype());
    widest = std::max(widest, ranks * static_cast<std::int64_t>(outputs.size()));
  }
  const std::int64_t numbers = std::min(rows * widest, rank_space_numbers);
  // Parts that ranks share are of equal size.
  const std::int64_t beyond = shrinks_ == Shrinks::shared ? context.ranks->ranks() - 1 : 0;
  ranks_ = take<float>(arena, numbers + beyond).first(static_cast<std::size_t>(numbers));
  groups_ = take<Group>(arena, std::min(rows, max_groups));
}

GroupedDelta::~GroupedDelta() {
  finish();
  context_.scratch->rewind(mark_);
}

void GroupedDelta::add(std::int32_t label, std::int32_t expert, const DeltaRows& rows) {
  bool any = false;
  const std::int64_t ranks = for_parts(label, expert, [&](const Part& part) {
    MOTLEY_CHECK(part.view->in == x_.dim(1) && part.view->out == outputs_[part.output].acc.dim(1),
                 "a call of the site's own widths");
    any = any || part.factor.rank > 0 || part.view->lora_bias != nullptr;
  });
  if (!any) return;
  const auto room = static_cast<std::int64_t>(ranks_.size());
  for (std::int64_t first = 0; first < rows.count;) {
    std::int64_t count = std::min(rows_a_group, rows.count - first);
    if (ranks > 0) count = std::min(count, room / ranks);
    MOTLEY_CHECK(count > 0, "factors of at most their adapter's largest rank");
    if (group_count_ == groups_.size() || ranks_used_ + count * ranks > room) finish();
    groups_[group_count_++] = {
        .label = label,
        .expert = expert,
        .rows = {.begin = rows.begin + first,
                 .count = count,
                 .x_rows = rows.x_rows == nullptr ? nullptr : rows.x_rows + first,
                 .y_rows = rows.y_rows == nullptr ? nullptr : rows.y_rows + first},
        .ranks = ranks,
        .at = ranks_used_};
    ranks_used_ += count * ranks;
    widest_ = std::max(widest_, ranks);
    first += count;
  }
}

void GroupedDelta::finish() {
  if (group_count_ == 0) return;
  shrink_groups();
  const auto groups = static_cast<std::int64_t>(group_count_);
  std::int64_t blocks = 0;
  for (const DeltaOutput& output : outputs_) blocks += blocks_of(output.acc.dim(1), outputs_a_task);
  for_tasks(context_, groups * blocks, [&](std::int64_t task) {
    std::int64_t begin = task % blocks * outputs_a_task;
    std::size_t output = 0;
    for (;; ++output) {
      const std::int64_t span = blocks_of(outputs_[output].acc.dim(1), outputs_a_task);
      if (begin < span * outputs_a_task) break;
      begin -= span * outputs_a_task;
    }
    const std::int64_t end = std::min(begin + outputs_a_task, outputs_[output].acc.dim(1));
    expand_group(groups_[static_cast<std::size_t>(task / blocks)], output, begin, end);
  });
  group_count_ = 0;
  ranks_used_ = 0;
  widest_ = 0;
}

// Computes the rows of all groups in rank space.
void GroupedDelta::shrink_groups() {
  if (ranks_used_ == 0) return;
  dist::Range own{0, ranks_used_};
  std::int64_t part = ranks_used_;
  if (shrinks_ == Shrinks::shared) {
    part = blocks_of(ranks_used_, context_.ranks->ranks());
    const std::int64_t begin = std::min(context_.ranks->rank() * part, ranks_used_);
    own = {begin, std::min(begin + part, ranks_used_)};
  }
  // The group's rows of which some numbers are this rank's.
  const auto own_rows = [&](const Group& group) -> dist::Range {
    if (group.ranks == 0 || own.end <= group.at) return {};
    const std::int64_t end = blocks_of(own.end - group.at, group.ranks);
    return {std::max<std::int64_t>(own.begin - group.at, 0) / group.ranks,
            std::min(end, group.rows.count)};
  };
  const auto groups = static_cast<std::int64_t>(group_count_);
  // Every task copies its rows of x, so ranks are only divided if there are too few tasks.
  const std::int64_t ranks_a_task =
      groups * blocks_of(widest_, 16) < std::int64_t{2} * threads(context_) ? 4 : 16;
  const std::int64_t cuts = blocks_of(widest_, ranks_a_task);
  for_tasks(context_, groups * cuts, [&](std::int64_t task) {
    const Group& group = groups_[static_cast<std::size_t>(task / cuts)];
    const std::int64_t begin = task % cuts * ranks_a_task;
    shrink_group(group, own_rows(group), {begin, begin + ranks_a_task});
  });
  if (shrinks_ == Shrinks::shared)
    ops::gather_parts_over_ranks(context_, reinterpret_cast<std::byte*>(ranks_.data()),
                                 part * static_cast<std::int64_t>(sizeof(float)));
}

// Computes some ranks of some of a group's rows in rank space.
void GroupedDelta::shrink_group(const Group& group, dist::Range own, dist::Range ranks) {
  if (own.begin >= own.end || ranks.begin >= group.ranks) return;
  const std::int32_t* const x_rows = group.rows.x_rows;
  const std::int64_t x_begin = x_rows == nullptr ? group.rows.begin + own.begin : 0;
  const InputRows rows{.data = x_.bytes() + x_begin * x_.stride(0) * bits(x_.dtype()) / 8,
                       .dtype = x_.dtype(),
                       .stride = x_.stride(0),
                       .rows = x_rows == nullptr ? nullptr : x_rows + own.begin,
                       .count = own.size()};
  float* const first = ranks_.data() + group.at + own.begin * group.ranks;
  for_parts(group.label, group.expert, [&](const Part& part) {
    if (!part.fresh || part.factor.rank == 0) return;
    const std::int64_t from = std::max<std::int64_t>(ranks.begin - part.first, 0);
    const std::int64_t to = std::min<std::int64_t>(ranks.end - part.first, part.factor.split);
    if (from >= to) return;
    shrink({part.factor, batch_.dtype(), part.scale, x_.dim(1)}, rows, from, to, first + part.first,
           group.ranks);
  });
}

void GroupedDelta::expand_group(const Group& group, std::size_t output, std::int64_t begin,
                                std::int64_t end) {
  const tensor::Tensor& acc = outputs_[output].acc;
  const std::int32_t* const y_rows = group.rows.y_rows;
  float* const y = row_of<float>(acc, y_rows == nullptr ? group.rows.begin : 0) + begin;
  for_parts(group.label, group.expert, [&](const Part& part) {
    if (part.output != output) return;
    if (part.factor.rank > 0) {
      kernels::cpu::expand_tile(
          {.t = ranks_.data() + group.at + part.first,
           .t_stride = group.ranks,
           .rows = group.rows.count,
           .b = part.factor.b,
           .b_type = batch_.dtype(),
           .b_scales = row_scales(batch_.dtype(), part.factor.b, part.view->out, part.factor.split),
           .padded = part.factor.split,
           .out_begin = begin,
           .out_end = end,
           .y = y,
           .y_stride = acc.stride(0),
           .y_rows = y_rows});
    }
    const float* const bias = part.view->lora_bias;
    if (bias == nullptr) return;
    for (std::int64_t m = 0; m < group.rows.count; ++m) {
      float* const row = y + (y_rows == nullptr ? m : y_rows[m]) * acc.stride(0);
      for (std::int64_t o = begin; o < end; ++o) row[o - begin] += part.scale * bias[o];
    }
  });
}

}  // namespace motley::lora
