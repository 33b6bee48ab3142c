#pragma once

#include <cstdint>
#include <vector>

#include "grammar/grammar.h"
#include "text/tokenizer.h"

namespace motley::grammar {

// The texts of a model's tokens, as grammars see them. A grammar writes a special token only where
// it names its id (a structural tag's format "token"), or where text between tags is free. `width`
// is that of the model's logits; `end_ids` are the tokens that end its answers.
Tokens grammar_tokens(const text::Tokenizer& tokenizer, std::int64_t width,
                      const std::vector<std::int32_t>& end_ids);

}  // namespace motley::grammar
