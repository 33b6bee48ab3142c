#include "server/api/fields/ban_fields.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/cat.h"
#include "server/api/fields/field_limits.h"
#include "text/tokenizer.h"

namespace motley::server {
namespace {

// Bans a word's tokens at the begin of a text and after a blank; the latter only if they are
// different tokens of the same number, as in vLLM.
Result<void> ban(const text::Tokenizer& tokenizer, std::string_view word,
                 std::vector<std::vector<std::int32_t>>& banned) {
  const text::EncodeOptions plain{.add_special_tokens = false};
  MOTLEY_TRY(auto first, tokenizer.encode(word, plain));
  MOTLEY_TRY(auto inside, tokenizer.encode(cat(" ", word), plain));
  if (first.empty()) return {};
  const bool both = inside.size() == first.size() && inside.front() != first.front();
  banned.push_back(std::move(first));
  if (both) banned.push_back(std::move(inside));
  return {};
}

Result<void> read_bad_words(Fields& fields, const ApiContext& context,
                            engine::SamplingParams& into) {
  MOTLEY_TRY(const auto words, fields.strings("bad_words", field_limits::bad_words.most));
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string place = cat("bad_words[", i, "]");
    const std::size_t begin = words[i].find_first_not_of(" \t\r\n");
    if (begin == std::string::npos) return wrong("an empty word", place, "leave it out");
    if (words[i].size() > field_limits::bad_word_bytes.most)
      return wrong(cat("a word of ", words[i].size(), " bytes"), place,
                   cat("give at most ", field_limits::bad_word_bytes.most));
    if (context.tokenizer == nullptr)
      return Error(ErrorCode::unsupported, "words without a tokenizer", place, "leave them out");
    const std::size_t before = into.banned.size();
    MOTLEY_TRY_VOID(ban(*context.tokenizer, std::string_view(words[i]).substr(begin), into.banned));
    for (const auto& sequence : std::span(into.banned).subspan(before)) tokens += sequence.size();
    if (tokens > field_limits::bad_word_tokens.most)
      return wrong(cat("the words have more than ", field_limits::bad_word_tokens.most,
                       " tokens, each word counted with and without a blank before it"),
                   "bad_words", "give fewer words, or shorter ones");
  }
  return {};
}

}  // namespace

Result<void> read_bans(Fields& fields, const ApiContext& context, engine::SamplingParams& into) {
  MOTLEY_TRY(into.allowed_tokens, fields.token_ids("allowed_token_ids", context.vocabulary));
  if (fields.take("allowed_token_ids") != nullptr && into.allowed_tokens.empty())
    return wrong("no token is allowed", "allowed_token_ids", "give ids, or leave it out");
  std::ranges::sort(into.allowed_tokens);
  const auto repeated = std::ranges::unique(into.allowed_tokens);
  into.allowed_tokens.erase(repeated.begin(), repeated.end());
  return read_bad_words(fields, context, into);
}

}  // namespace motley::server
