#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace motley::cli {

// A short prompt on which an adapter is tried (engine/adapter_check.h). An error: the tokenizer
// makes fewer than two tokens of it.
Result<std::vector<std::int32_t>> check_prompt(const text::Tokenizer& tokenizer);

}  // namespace motley::cli
