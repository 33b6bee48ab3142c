#include "plan/plan.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace motley::plan {
namespace {

std::span<const std::int32_t> first(const std::vector<std::int32_t>& numbers, std::int64_t count) {
  return std::span(numbers).first(static_cast<std::size_t>(count));
}

}  // namespace

Plan::Plan(std::int64_t max_tokens, int experts_per_token, int experts)
    : max_tokens_(max_tokens), experts_per_token_(experts_per_token), experts_(experts) {
  MOTLEY_CHECK(max_tokens >= 0 && experts_per_token > 0 && experts > 0, "sizes of a layer");
  MOTLEY_CHECK(max_tokens <= std::numeric_limits<std::int32_t>::max() / experts_per_token,
               "pair numbers fit 32 bits");
  const auto tokens = static_cast<std::size_t>(max_tokens);
  const auto max_pairs = tokens * static_cast<std::size_t>(experts_per_token);
  tokens_by_label_.resize(tokens);
  order_.resize(max_pairs);
  order_tokens_.resize(max_pairs);
  places_.resize(max_pairs);
  expert_begin_.resize(static_cast<std::size_t>(experts) + 3);
  segments_.resize(max_pairs);
  segment_begin_.resize(static_cast<std::size_t>(experts) + 1);
}

void Plan::build(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels) {
  const auto count = static_cast<std::int64_t>(labels.size());
  MOTLEY_CHECK(count <= max_tokens_, "no more tokens than the plan was made for");
  MOTLEY_CHECK(ids.size() == labels.size() * static_cast<std::size_t>(experts_per_token_),
               "experts_per_token ids for each token");
  tokens_ = count;

  const auto by_label = std::span(tokens_by_label_).first(labels.size());
  std::iota(by_label.begin(), by_label.end(), 0);
  if (!std::is_sorted(labels.begin(), labels.end())) {
    // Equal labels are ordered by token. This is stable and, unlike std::stable_sort, allocates
    // nothing.
    std::sort(by_label.begin(), by_label.end(), [&](std::int32_t a, std::int32_t b) {
      const auto label_a = labels[static_cast<std::size_t>(a)];
      const auto label_b = labels[static_cast<std::size_t>(b)];
      return label_a != label_b ? label_a < label_b : a < b;
    });
  }
  MOTLEY_CHECK(by_label.empty() || labels[static_cast<std::size_t>(by_label[0])] >= no_label,
               "labels are no_label, or 0 and up");

  const auto bucket_of = [&](std::int32_t id) {
    return static_cast<std::size_t>(id < 0 || id >= experts_ ? experts_ : id);
  };
  std::fill(expert_begin_.begin(), expert_begin_.end(), 0);
  for (const std::int32_t id : ids) ++expert_begin_[bucket_of(id) + 2];
  std::partial_sum(expert_begin_.begin(), expert_begin_.end(), expert_begin_.begin());

  // Tokens come in the order of labels, so each expert's pairs do, too.
  for (const std::int32_t token : by_label) {
    const std::int32_t first_pair = token * experts_per_token_;
    for (std::int32_t pair = first_pair; pair < first_pair + experts_per_token_; ++pair) {
      const std::size_t bucket = bucket_of(ids[static_cast<std::size_t>(pair)]);
      const std::int32_t place = expert_begin_[bucket + 1]++;
      order_[static_cast<std::size_t>(place)] = pair;
      order_tokens_[static_cast<std::size_t>(place)] = token;
      places_[static_cast<std::size_t>(pair)] = place;
    }
  }

  segment_count_ = 0;
  for (std::int32_t expert = 0; expert < experts_; ++expert) {
    segment_begin_[static_cast<std::size_t>(expert)] = static_cast<std::int32_t>(segment_count_);
    const std::int32_t end = expert_begin_[static_cast<std::size_t>(expert) + 1];
    std::int32_t place = expert_begin_[static_cast<std::size_t>(expert)];
    while (place < end) {
      const auto label_at = [&](std::int32_t at) {
        return labels[static_cast<std::size_t>(order_tokens_[static_cast<std::size_t>(at)])];
      };
      Segment segment{.expert = expert, .label = label_at(place), .begin = place, .end = place};
      while (segment.end < end && label_at(segment.end) == segment.label) ++segment.end;
      segments_[static_cast<std::size_t>(segment_count_++)] = segment;
      place = segment.end;
    }
  }
  segment_begin_[static_cast<std::size_t>(experts_)] = static_cast<std::int32_t>(segment_count_);
}

std::span<const std::int32_t> Plan::order() const { return first(order_, pairs()); }

std::span<const std::int32_t> Plan::tokens_in_order() const {
  return first(order_tokens_, pairs());
}

std::span<const std::int32_t> Plan::places() const { return first(places_, pairs()); }

std::span<const std::int32_t> Plan::expert_begin() const {
  return first(expert_begin_, experts_ + 1);
}

std::span<const Segment> Plan::segments() const {
  return std::span(segments_).first(static_cast<std::size_t>(segment_count_));
}

std::span<const std::int32_t> Plan::segment_begin() const {
  return first(segment_begin_, experts_ + 1);
}

}  // namespace motley::plan
