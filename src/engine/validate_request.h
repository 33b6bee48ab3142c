#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/requests/request.h"

namespace motley::engine {

struct RequestBounds {
  std::int64_t vocabulary = 0;
  std::int64_t sequence_tokens = 0;  // of the longest sequence that can run
  std::int64_t prompt_top = max_top_logprobs;
  bool routed_experts = false;  // the executor keeps them
};

// An error names the first field that is out of range.
Result<void> validate(const Request& request, const RequestBounds& bounds);

}  // namespace motley::engine
