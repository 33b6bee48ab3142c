#include "ops/list/match.h"

#include <algorithm>

namespace motley::ops {
namespace {

// The number of ops that the elements cover, each as many as possible; 0: no match. kinds_of(i):
// the kinds that op i may have; read_by(i): the value that it reads first; vanishes(i): whether it
// may be absent.
template <class Kinds, class ReadBy, class Vanishes>
std::size_t count_of(const Pattern& pattern, std::size_t size, const Kinds& kinds_of,
                     const ReadBy& read_by, const Vanishes& vanishes) {
  std::size_t at = 0;
  std::size_t covered = 0;
  for (const PatternElement& element : pattern.elements) {
    int found = 0;
    ValueId one = no_value;
    for (; found < element.most && at < size; ++at) {
      const bool fits = found == 0 || !element.of_one || read_by(at) == one;
      if ((kinds_of(at) & element.kinds) != 0 && fits) {
        if (found++ == 0) one = read_by(at);
        covered = at + 1;
      } else if (!vanishes(at)) {
        break;
      }
    }
    if (found < element.least) return 0;
  }
  return covered;
}

// The leading ops of one form.
Form form_of(const Op& op) { return op.form; }
Form form_of(const LiveOp& live) { return live.op->form; }
template <class Each>
std::span<const Each> alike(std::span<const Each> ops) {
  const auto other = std::ranges::find_if(
      ops, [&](const Each& each) { return form_of(each) != form_of(ops.front()); });
  return ops.first(static_cast<std::size_t>(other - ops.begin()));
}

std::size_t count_live(const Pattern& pattern, std::span<const LiveOp> ops) {
  return count_of(
      pattern, ops.size(), [&](std::size_t i) { return bit(ops[i].kind); },
      [&](std::size_t i) { return ops[i].op->reads[0]; }, [](std::size_t) { return false; });
}

// Whether an op after `last` reads the value. Other forms process other rows.
bool is_read_behind(const OpList& list, ValueId value, const Op& last) {
  const std::span<const Op> ops = list.ops();
  const auto other_rows = [&](const Op& op) {
    return op.form != last.form && op.form != all_forms && last.form != all_forms;
  };
  const std::int64_t end = list.last_reader(list.root_of(value));
  for (std::int64_t at = &last - ops.data() + 1; at <= end; ++at) {
    const Op& op = ops[static_cast<std::size_t>(at)];
    if (other_rows(op)) continue;
    if (std::ranges::any_of(op.reads, [&](ValueId read) { return list.overlap(read, value); }))
      return true;
  }
  return false;
}

// Whether every value that later ops read is written by the launch.
bool loses_nothing(const OpList& list, const Pattern& pattern, std::span<const LiveOp> ops) {
  if (pattern.keeps == nullptr) return true;
  for (const LiveOp& each : ops) {
    for (const ValueId written : each.op->writes) {
      if (written == no_value || pattern.keeps(list, ops, written)) continue;
      if (list.value(list.root_of(written)).external >= 0) return false;
      if (is_read_behind(list, written, *ops.back().op)) return false;
    }
  }
  return true;
}

// No pattern covers more ops.
constexpr std::size_t max_pattern_ops = 32;

}  // namespace

std::size_t longest_match(const Pattern& pattern, std::span<const Op> ops) {
  const std::span<const Op> same = alike(ops.first(std::min(max_pattern_ops, ops.size())));
  return count_of(
      pattern, same.size(), [&](std::size_t i) { return same[i].live_kinds; },
      [&](std::size_t i) { return same[i].reads[0]; },
      [&](std::size_t i) { return same[i].may_vanish; });
}

void match(const OpList& list, std::span<const Pattern> patterns, Fits fits, Schedule& schedule) {
  schedule.launches.clear();
  const std::span<const LiveOp> all = schedule.ops;
  for (std::size_t at = 0; at < all.size();) {
    Launch launch{.first = static_cast<std::int32_t>(at)};
    const std::span<const LiveOp> same =
        alike(all.subspan(at, std::min(max_pattern_ops, all.size() - at)));
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      const std::size_t count = count_live(patterns[i], same);
      if (count == 0) continue;
      const std::span<const LiveOp> ops = same.first(count);
      if (!loses_nothing(list, patterns[i], ops) || !fits(static_cast<int>(i), ops)) continue;
      launch.pattern = static_cast<int>(i);
      launch.count = static_cast<std::int32_t>(count);
      break;
    }
    schedule.launches.push_back(launch);
    at += static_cast<std::size_t>(launch.count);
  }
}

}  // namespace motley::ops
