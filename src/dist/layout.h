#pragma once

#include <cstdint>
#include <vector>

// Which part of a model each rank has. Pure arithmetic: every rank computes the same.
namespace motley::dist {

// [begin, end) of heads, rows, columns; may be empty.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool contains(std::int64_t number) const { return begin <= number && number < end; }
  // Of things that have `each` numbers.
  Range times(std::int64_t each) const { return {begin * each, end * each}; }

  friend bool operator==(const Range&, const Range&) = default;
};

// Several of them, of what a matrix has side by side: the rows of some queries, keys and values.
// Ascending, and none follows another at once; may be none.
class Ranges {
 public:
  Ranges() = default;
  Ranges(const Range& all) { add(all); }  // NOLINT(google-explicit-constructor)
  Ranges(std::int64_t begin, std::int64_t end) { add({begin, end}); }

  void add(const Range& next) {
    if (next.empty()) return;
    if (!parts_.empty() && parts_.back().end == next.begin) {
      parts_.back().end = next.end;
    } else {
      parts_.push_back(next);
    }
  }

  const std::vector<Range>& parts() const { return parts_; }
  std::int64_t size() const {
    std::int64_t size = 0;
    for (const Range& part : parts_) size += part.size();
    return size;
  }
  bool empty() const { return parts_.empty(); }

  friend bool operator==(const Ranges&, const Ranges&) = default;

 private:
  std::vector<Range> parts_;
};

// A rank's part of [0, count): contiguous, in order of ranks. If `ranks` does not divide the count,
// the first ranks have one more; if there are more ranks than things, the last have none.
Range deal(std::int64_t count, int ranks, int rank);

// A rank's heads of grouped-query attention, and the KV heads that they read.
struct HeadShard {
  Range heads;
  Range kv_heads;
  // Of ranks that hold a KV head together, the first: it counts where KV heads are summed over
  // ranks.
  bool first_of_kv = true;

  friend bool operator==(const HeadShard&, const HeadShard&) = default;
};

// KV heads are dealt with all heads that read them. If there are more ranks than KV heads, each KV
// head is held by several ranks, which share its heads. So on a rank every KV head is read by
// equally many heads. `heads` is a multiple of `kv_heads`.
HeadShard deal_heads(std::int64_t heads, std::int64_t kv_heads, int ranks, int rank);

// A rank's experts, where ranks stand in groups of equal size: each expert is on all ranks of one
// group, which cut it.
struct ExpertShard {
  Range experts;  // of the group
  int ranks = 1;  // of the group
  int rank = 0;   // in the group

  friend bool operator==(const ExpertShard&, const ExpertShard&) = default;
};

// Experts are dealt over the groups, in order of ranks; ranks of a group are neighbours. `ranks` is
// a multiple of `groups`. One group: every rank has a part of every expert.
ExpertShard deal_experts(std::int64_t experts, int groups, int ranks, int rank);

}  // namespace motley::dist
