#include "engine/grammar/vocabulary.h"

#include <string>

namespace motley::engine {

Result<GrammarVocabulary> grammar_vocabulary(const text::Tokenizer& tokenizer, std::int64_t width,
                                             const std::vector<std::int32_t>& end_ids) {
  std::vector<std::string> bytes;
  bytes.reserve(static_cast<std::size_t>(tokenizer.size()));
  for (std::int32_t id = 0; id < tokenizer.size(); ++id)
    bytes.push_back(tokenizer.is_special(id) ? std::string() : tokenizer.bytes_of(id));
  for (const std::int32_t id : end_ids) {
    if (id >= 0 && id < tokenizer.size()) bytes[static_cast<std::size_t>(id)].clear();
  }
  return GrammarVocabulary::create(bytes, width, end_ids);
}

}  // namespace motley::engine
