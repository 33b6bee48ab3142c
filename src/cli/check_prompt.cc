#include "cli/check_prompt.h"

#include <string_view>

namespace motley::cli {
namespace {

constexpr std::string_view prompt =
    "Question: which river flows through Paris, and how long is it? Answer: the Seine, 777 km.";
constexpr std::size_t max_tokens = 24;

}  // namespace

Result<std::vector<std::int32_t>> check_prompt(const text::Tokenizer& tokenizer) {
  MOTLEY_TRY(std::vector<std::int32_t> tokens,
             tokenizer.encode(prompt, {.add_special_tokens = true}));
  if (tokens.size() > max_tokens) tokens.resize(max_tokens);
  if (tokens.size() < 2)
    return Error(ErrorCode::unsupported, "a tokenizer that makes no tokens of plain text");
  return tokens;
}

}  // namespace motley::cli
