#include "model/attention_cost.h"

#include <algorithm>

namespace motley::model {

Mixer::Cost attention_cost(const AttentionSize& size, const EqualSequences& step) {
  const std::int64_t all = step.length + step.tokens;
  std::int64_t read = all;
  if (size.window > 0) read = std::min(read, size.window + step.tokens - 1);
  double seen = 0;  // positions attended to, summed over a sequence's rows
  for (std::int64_t position = step.length; position < all; ++position)
    seen +=
        static_cast<double>(size.window > 0 ? std::min(position + 1, size.window) : position + 1);
  const auto sequences = static_cast<double>(step.sequences);
  return {.operations = 2 * sequences * seen *
                        static_cast<double>(size.heads * (size.key_width + size.value_width)),
          .tokens_read = sequences * static_cast<double>(read)};
}

}  // namespace motley::model
