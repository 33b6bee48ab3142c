#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/requests/request.h"
#include "serving/answers/choice_text.h"

namespace motley::server {

// The sampled tokens of a choice as numbers, until they are written: a tenth of the size of their
// JSON.
class KeptTokens {
 public:
  // With at most this many alternatives each.
  void append(const serving::ChoiceText::Piece& piece,
              std::size_t max_top = engine::max_top_logprobs) {
    for (std::size_t i = 0; i < piece.tokens.size(); ++i) {
      const engine::TokenEvent& token = piece.tokens[i];
      ids_.push_back(token.id);
      logprobs_.push_back(token.logprob);
      if (token.rank > 0) ranks_.push_back(token.rank);
      offsets_.push_back(piece.offsets[i]);
      const auto top = std::span(token.top).first(std::min(token.top.size(), max_top));
      top_.insert(top_.end(), top.begin(), top.end());
      const auto ranks =
          std::span(token.top_ranks).first(std::min(token.top_ranks.size(), max_top));
      top_ranks_.insert(top_ranks_.end(), ranks.begin(), ranks.end());
      top_ends_.push_back(top_.size());
    }
  }

  std::size_t size() const { return ids_.size(); }
  std::span<const std::int32_t> ids() const { return ids_; }
  std::int32_t id(std::size_t at) const { return ids_[at]; }
  float logprob(std::size_t at) const { return logprobs_[at]; }
  // Of a request that asks for ranks.
  std::int32_t rank(std::size_t at) const { return ranks_[at]; }
  std::int64_t offset(std::size_t at) const { return offsets_[at]; }
  std::span<const engine::TopLogprob> top(std::size_t at) const {
    return std::span(top_).subspan(first_top(at), top_ends_[at] - first_top(at));
  }
  // Of its alternative i, which stands there by falling probability unless the request names it.
  std::int32_t top_rank(std::size_t at, std::size_t i) const {
    return top_ranks_.empty() ? static_cast<std::int32_t>(i) + 1 : top_ranks_[first_top(at) + i];
  }

  std::size_t bytes() const {
    return ids_.capacity() * sizeof(ids_[0]) + logprobs_.capacity() * sizeof(logprobs_[0]) +
           ranks_.capacity() * sizeof(ranks_[0]) + offsets_.capacity() * sizeof(offsets_[0]) +
           top_.capacity() * sizeof(top_[0]) + top_ranks_.capacity() * sizeof(top_ranks_[0]) +
           top_ends_.capacity() * sizeof(top_ends_[0]);
  }

 private:
  std::size_t first_top(std::size_t at) const { return at == 0 ? 0 : top_ends_[at - 1]; }

  std::vector<std::int32_t> ids_;
  std::vector<float> logprobs_;
  std::vector<std::int32_t> ranks_;  // empty, or by token
  std::vector<std::int64_t> offsets_;
  std::vector<engine::TopLogprob> top_;
  std::vector<std::int32_t> top_ranks_;  // empty, or of each of `top_`
  std::vector<std::size_t> top_ends_;    // by token
};

}  // namespace motley::server
