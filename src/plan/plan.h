#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace motley::plan {

// The label of a row without a label. Other labels are 0 and up; their meaning is not known here.
inline constexpr std::int32_t no_label = -1;

// Pairs [begin, end) in plan order, which share one expert and one label.
struct Segment {
  std::int32_t expert;
  std::int32_t label;
  std::int32_t begin;
  std::int32_t end;

  friend bool operator==(const Segment&, const Segment&) = default;
};

// The (token, expert) pairs of one layer, sorted once by expert, then label, then pair number: base
// products and deltas process them in this order. The pair number is token * k + slot, where `slot`
// numbers the token's choices.
//
// Expert ids that are negative or not below `experts` name no expert: their pairs come last, are in
// no segment, and use no weights.
class Plan {
 public:
  // All memory is allocated here; build() allocates nothing.
  Plan(std::int64_t max_tokens, int experts_per_token, int experts);

  // ids is [tokens, experts_per_token], labels is [tokens]. Takes time proportional to pairs +
  // experts, plus that of sorting the tokens if labels differ.
  void build(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels);

  int experts() const { return experts_; }
  int experts_per_token() const { return experts_per_token_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t pairs() const { return tokens_ * experts_per_token_; }
  // The number of pairs that have an expert: they have places [0, routed_pairs()).
  std::int64_t routed_pairs() const { return expert_begin()[static_cast<std::size_t>(experts_)]; }

  // By place in plan order: the pair number, and the token.
  std::span<const std::int32_t> order() const;
  std::span<const std::int32_t> tokens_in_order() const;
  // By pair number: the place in plan order.
  std::span<const std::int32_t> places() const;
  // Pairs of expert e have places [expert_begin()[e], expert_begin()[e + 1]); [experts + 1]
  // numbers.
  std::span<const std::int32_t> expert_begin() const;
  std::span<const Segment> segments() const;
  // Segments of expert e: [segment_begin()[e], segment_begin()[e + 1]).
  std::span<const std::int32_t> segment_begin() const;

 private:
  std::int64_t max_tokens_;
  int experts_per_token_;
  int experts_;
  std::int64_t tokens_ = 0;
  std::vector<std::int32_t> tokens_by_label_;
  std::vector<std::int32_t> order_;
  std::vector<std::int32_t> order_tokens_;
  std::vector<std::int32_t> places_;
  // [experts + 3]: during build(), number e + 1 is the next place of expert e.
  std::vector<std::int32_t> expert_begin_;
  std::vector<Segment> segments_;
  std::vector<std::int32_t> segment_begin_;
  std::int64_t segment_count_ = 0;
};

}  // namespace motley::plan
