#include "grammar/vocabulary.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/cat.h"

namespace motley::grammar {

Tokens grammar_tokens(const text::Tokenizer& tokenizer, std::int64_t width,
                      const std::vector<std::int32_t>& end_ids) {
  // A byte that occurs in no text, so that a grammar's text never matches a special token.
  constexpr std::string_view outside = "\xFF";
  const auto known = static_cast<std::int32_t>(std::min<std::int64_t>(tokenizer.size(), width));
  std::vector<std::string> bytes;
  bytes.reserve(static_cast<std::size_t>(known));
  for (std::int32_t id = 0; id < known; ++id)
    bytes.push_back(cat(tokenizer.is_special(id) ? outside : "", tokenizer.bytes_of(id)));
  for (const std::int32_t id : end_ids) {
    if (id >= 0 && id < known) bytes[static_cast<std::size_t>(id)].clear();
  }
  return {.bytes = std::move(bytes), .width = width, .end_ids = end_ids};
}

}  // namespace motley::grammar
