#pragma once

#include <cstdint>

#include "model/block.h"

namespace motley::model {

// Causal attention: the widths of a score and of a value, and the window; 0: none.
struct AttentionSize {
  std::int64_t heads = 0;
  std::int64_t key_width = 0;
  std::int64_t value_width = 0;
  std::int64_t window = 0;
};
Mixer::Cost attention_cost(const AttentionSize& size, const EqualSequences& step);

}  // namespace motley::model
