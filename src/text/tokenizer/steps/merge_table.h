#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/tokenizer/hash.h"

namespace motley::text {

// The pairs of adjacent tokens that are merged, with their ranks: the lowest rank is merged first.
class MergeTable {
 public:
  static constexpr std::uint32_t no_rank = 0xFFFF'FFFF;

  struct Merge {
    std::int32_t left;
    std::int32_t right;
    std::int32_t merged;
  };

  MergeTable() : MergeTable(0) {}
  explicit MergeTable(std::size_t max_merges)
      : slots_(std::bit_ceil(2 * max_merges + 2)),
        shift_(64 - static_cast<int>(std::bit_width(slots_.size() - 1))) {}

  // Ranks count from 0 in the order of calls. A repeated pair gets the later rank.
  void add(const Merge& merge) {
    const std::uint64_t pair = key(merge.left, merge.right);
    slots_[slot_of(pair)] = {.pair = pair, .rank = static_cast<std::uint32_t>(merges_.size())};
    merges_.push_back(merge);
  }

  // no_rank if the pair is not merged.
  std::uint32_t rank(std::int32_t left, std::int32_t right) const {
    return slots_[slot_of(key(left, right))].rank;
  }

  std::int32_t merged(std::uint32_t rank) const { return merges_[rank].merged; }

  const std::vector<Merge>& merges() const { return merges_; }

 private:
  struct alignas(16) Slot {
    std::uint64_t pair = ~std::uint64_t{0};  // no pair has this key
    std::uint32_t rank = no_rank;
  };

  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }

  // The pair's slot, or the empty slot for it.
  std::size_t slot_of(std::uint64_t pair) const {
    std::size_t slot = hash_word(pair ^ pair >> 32) >> shift_;
    while (slots_[slot].pair != pair && slots_[slot].rank != no_rank)
      slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
  int shift_;
  std::vector<Merge> merges_;  // by rank
};

}  // namespace motley::text
