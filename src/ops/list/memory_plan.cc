#include "ops/list/memory_plan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/dtype.h"

namespace motley::ops {
namespace {

constexpr std::size_t alignment = 256;  // as tensor::Allocator's

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// Ops [first, last] by number.
struct Span {
  std::int32_t first = std::numeric_limits<std::int32_t>::max();
  std::int32_t last = -1;

  void include(const Span& other) {
    first = std::min(first, other.first);
    last = std::max(last, other.last);
  }
};

// A block of memory that is in use during a span.
struct Piece {
  std::size_t* at = nullptr;
  std::size_t bytes = 0;
  Span span;
  std::size_t number = 0;
};

// For each op, all ops that one launch may cover together with it.
std::vector<Span> moments_of(std::span<const Op> ops, std::span<const Pattern> patterns) {
  std::vector<Span> moments(ops.size());
  for (std::size_t begin = 0; begin < ops.size(); ++begin) {
    std::size_t count = 1;
    for (const Pattern& pattern : patterns)
      count = std::max(count, longest_match(pattern, ops.subspan(begin)));
    const Span span{static_cast<std::int32_t>(begin), static_cast<std::int32_t>(begin + count) - 1};
    for (std::size_t i = begin; i < begin + count; ++i) moments[i].include(span);
  }
  return moments;
}

// For each op, the ops of all forms that alternate with it; only itself if there are none.
std::vector<Span> turns_of(std::span<const Op> ops) {
  std::vector<Span> turns;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const auto at = static_cast<std::int32_t>(i);
    const bool in_turn = ops[i].form != all_forms;
    const bool goes_on = in_turn && i > 0 && ops[i - 1].form != all_forms;
    turns.push_back({goes_on ? turns.back().first : at, at});
  }
  for (std::size_t i = ops.size(); i-- > 1;) {
    if (turns[i - 1].first == turns[i].first) turns[i - 1].last = turns[i].last;
  }
  return turns;
}

class Lifetimes {
 public:
  Lifetimes(const OpList& list, std::span<const Pattern> patterns)
      : list_(list), moments_(moments_of(list.ops(), patterns)), spans_(list.values().size()) {
    const std::span<const Op> ops = list.ops();
    const std::vector<Span> turns = turns_of(ops);
    std::vector<std::uint32_t> forms(list.values().size());
    for_uses([&](std::size_t op, std::size_t root) {
      spans_[root].include(moments_[op]);
      forms[root] |= std::uint32_t{1} << ops[op].form;
    });
    // Parts run one after the other, so a value that several forms use lives through all of them.
    for_uses([&](std::size_t op, std::size_t root) {
      if (std::popcount(forms[root]) > 1) spans_[root].include(turns[op]);
    });
  }

  const Span& of_value(std::size_t root) const { return spans_[root]; }
  const Span& of_op(std::size_t op) const { return moments_[op]; }

 private:
  template <class Body>
  void for_uses(const Body& body) {
    const std::span<const Op> ops = list_.ops();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (const auto& values : {ops[i].reads, ops[i].writes}) {
        for (const ValueId id : values)
          if (id != no_value) body(i, static_cast<std::size_t>(list_.root_of(id)));
      }
    }
  }

  const OpList& list_;
  std::vector<Span> moments_;
  std::vector<Span> spans_;
};

// Gives each piece the lowest offset that is free during its span; returns the total size.
std::size_t place(std::vector<Piece>& pieces) {
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i].number = i;
  std::ranges::sort(pieces, {},
                    [](const Piece& piece) { return std::pair(piece.span.first, piece.number); });
  std::vector<const Piece*> live;  // by place
  std::size_t end = 0;
  for (Piece& piece : pieces) {
    std::erase_if(live, [&](const Piece* other) { return other->span.last < piece.span.first; });
    std::size_t at = 0;
    auto before = live.begin();
    for (; before != live.end() && *(*before)->at < at + piece.bytes; ++before)
      at = std::max(at, *(*before)->at + (*before)->bytes);
    *piece.at = at;
    end = std::max(end, at + piece.bytes);
    live.insert(before, &piece);
  }
  return end;
}

}  // namespace

std::size_t value_bytes(const Value& value, const RowBounds& bounds) {
  const std::int64_t rows = bounds[static_cast<std::size_t>(value.rows)];
  return aligned(static_cast<std::size_t>(rows * value.width * bits(value.type) / 8));
}

MemoryPlan plan_memory(const OpList& list, std::span<const Pattern> patterns,
                       const RowBounds& bounds, std::span<const std::size_t> scratch_bytes) {
  const Lifetimes lifetimes(list, patterns);
  MemoryPlan plan;
  plan.value_at.resize(list.values().size());
  plan.scratch_at.resize(list.ops().size());
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < plan.value_at.size(); ++i) {
    const Value& value = list.values()[i];
    const Span& span = lifetimes.of_value(i);
    if (value.root == no_value && value.external < 0 && span.last >= 0)
      pieces.push_back({&plan.value_at[i], value_bytes(value, bounds), span});
  }
  for (std::size_t i = 0; i < plan.scratch_at.size(); ++i) {
    if (scratch_bytes[i] > 0)
      pieces.push_back({&plan.scratch_at[i], aligned(scratch_bytes[i]), lifetimes.of_op(i)});
  }
  plan.bytes = place(pieces);
  return plan;
}

}  // namespace motley::ops
