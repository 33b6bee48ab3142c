#include "engine/sampling/penalty_counts.h"

#include <algorithm>

#include "base/check.h"
#include "ops/sample.h"

namespace motley::engine {

Result<PenaltyCounts> PenaltyCounts::create(tensor::Device& device, const Options& options) {
  constexpr std::int64_t number = 4;  // bytes of an i32
  PenaltyCounts counts;
  counts.options_ = options;
  MOTLEY_TRY(counts.tokens_,
             device.allocate(static_cast<std::size_t>(options.sequence_tokens * number)));
  const std::int64_t bytes = options.sequences * options.vocabulary * number;
  MOTLEY_TRY(counts.counts_, device.allocate(static_cast<std::size_t>(bytes)));
  counts.rows_.resize(static_cast<std::size_t>(options.sequences));
  return counts;
}

Result<std::int32_t> PenaltyCounts::row_of(const ops::Context& context, tensor::Stream& stream,
                                           const SamplingState& state, bool draws) {
  const auto tokens = static_cast<std::int64_t>(state.tokens().size());
  auto place = std::ranges::find(rows_, state.id(), &Row::state);
  const bool known = place != rows_.end();
  if (!known) {
    place = std::ranges::min_element(rows_, {}, &Row::used);
    MOTLEY_CHECK(place->used < launches_, "a row of counts for each row of a piece");
  }
  const auto row = static_cast<std::int32_t>(place - rows_.begin());
  if (!known || place->tokens != tokens) {
    MOTLEY_CHECK(tokens <= options_.sequence_tokens, "a sequence of at most sequence_tokens");
    MOTLEY_TRY_VOID(
        stream.copy(tokens_.data(), state.tokens().data(), state.tokens().size_bytes()));
    ops::count_tokens(context, reinterpret_cast<const std::int32_t*>(tokens_.data()),
                      state.prompt_tokens(), tokens - state.prompt_tokens(), view().select(row));
  }
  *place = {.state = state.id(), .tokens = draws ? tokens + 1 : -1, .used = launches_};
  return row;
}

tensor::Tensor PenaltyCounts::view() const {
  return counts_.view(DType::i32, {options_.sequences, options_.vocabulary});
}

}  // namespace motley::engine
