#include "ops/list/op_list.h"

#include <algorithm>

namespace motley::ops {

std::string_view name(OpKind kind) {
  constexpr std::array<std::string_view, op_kind_count> names{"embed",
                                                              "adapt_embedding",
                                                              "rope_table",
                                                              "add",
                                                              "norm",
                                                              "arrange_inputs",
                                                              "linear",
                                                              "bias",
                                                              "adapt",
                                                              "clip",
                                                              "rotate",
                                                              "store",
                                                              "round",
                                                              "attend",
                                                              "product_per_head",
                                                              "scale_queries",
                                                              "adapt_per_head",
                                                              "gather",
                                                              "expand_latents",
                                                              "attend_expanded",
                                                              "recur",
                                                              "convolve",
                                                              "delta_gates",
                                                              "route",
                                                              "local_experts",
                                                              "experts",
                                                              "activate",
                                                              "add_scaled",
                                                              "sum_over_ranks",
                                                              "norm_over_ranks",
                                                              "input_maxima_over_ranks",
                                                              "gather_over_ranks"};
  static_assert(!names.back().empty(), "a name for each kind");
  return names[static_cast<std::size_t>(kind)];
}

ValueId OpList::add(const Value& value) {
  values_.push_back(value);
  last_readers_.push_back(-1);
  return static_cast<ValueId>(values_.size()) - 1;
}

ValueId OpList::add_value(const Value& value) {
  MOTLEY_CHECK(value.root == no_value && value.heads == 0 && value.width > 0, "a whole value");
  return add(value);
}

ValueId OpList::columns(ValueId of, std::int64_t first, std::int64_t width) {
  Value view = value(of);
  MOTLEY_CHECK(view.heads == 0 && first >= 0 && width > 0 && first + width <= view.width,
               "columns that the value has");
  view.root = root_of(of);
  view.first += first;
  view.width = width;
  return add(view);
}

ValueId OpList::split_heads(ValueId of, std::int64_t heads) {
  Value view = value(of);
  MOTLEY_CHECK(view.heads == 0 && heads > 0 && view.width % heads == 0, "heads of one width");
  view.root = root_of(of);
  view.heads = heads;
  view.width /= heads;
  view.head_stride = view.width;
  return add(view);
}

ValueId OpList::head_columns(ValueId of, std::int64_t first, std::int64_t width) {
  Value view = value(of);
  MOTLEY_CHECK(view.heads > 0 && first >= 0 && width > 0 && first + width <= view.width,
               "columns that every head has");
  view.in_head += first;
  view.width = width;
  return add(view);
}

void OpList::append(OpKind kind, const OpUse& use, const void* params) {
  Op op{.kind = kind,
        .live_kinds = use.live_kinds | bit(kind),
        .may_vanish = use.may_vanish,
        .form = form_,
        .params = params};
  MOTLEY_CHECK(use.reads.size() <= Op::max_values && use.writes.size() <= Op::max_values,
               "as many values as an op names");
  std::ranges::copy(use.reads, op.reads.begin());
  std::ranges::copy(use.writes, op.writes.begin());
  for (const ValueId read : use.reads)
    if (read != no_value) last_readers_[at(root_of(read))] = static_cast<std::int32_t>(ops_.size());
  ops_.push_back(op);
}

bool OpList::overlap(ValueId a, ValueId b) const {
  if (a == no_value || b == no_value || root_of(a) != root_of(b)) return false;
  const Value& x = value(a);
  const Value& y = value(b);
  const auto begin = [](const Value& v) { return v.first + v.in_head; };
  const auto end = [&](const Value& v) {
    return begin(v) + v.width + (v.heads == 0 ? 0 : (v.heads - 1) * v.head_stride);
  };
  if (end(x) <= begin(y) || end(y) <= begin(x)) return false;
  const bool same_heads =
      x.heads > 0 && x.heads == y.heads && x.first == y.first && x.head_stride == y.head_stride;
  return !same_heads || (x.in_head < y.in_head + y.width && y.in_head < x.in_head + x.width);
}

}  // namespace motley::ops
