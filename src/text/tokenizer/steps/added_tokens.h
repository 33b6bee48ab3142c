#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "base/json/json.h"
#include "base/result.h"
#include "text/chat/marked_text.h"
#include "text/tokenizer/steps/normalizer.h"
#include "text/tokenizer/steps/trie.h"
#include "text/tokenizer/vocabulary.h"

namespace motley::text {

// A token that is searched for in the text before the model sees it.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  std::string normalized_content;  // what is searched for, if `normalized`
  bool single_word = false;        // only at word boundaries
  bool lstrip = false;             // strips the white space before it,
  bool rstrip = false;             // and after it
  bool normalized = false;         // searched for in normalized text
  bool special = false;
};

// The section "added_tokens" of a tokenizer.json.
class AddedTokens {
 public:
  // A part of a text: an added token with its id, or text between tokens with id -1.
  struct Stretch {
    Span span;
    std::int32_t id = -1;
  };
  // Whether the token must not be recognised at these bytes.
  using Excludes = FunctionRef<bool(const AddedToken&, Span)>;

  static Result<AddedTokens> parse(const json::Value* section, const Vocabulary& model,
                                   const Normalizer& normalizer, std::string_view where);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const AddedToken* find(std::string_view content) const;

  // Splits raw text at tokens that are not normalized, or normalized text at those that are.
  // Stretches between tokens are not empty.
  void split_raw(std::string_view text, Excludes excludes, std::vector<Stretch>& stretches) const {
    split(raw_, text, excludes, stretches);
  }
  void split_normalized(std::string_view text, Excludes excludes,
                        std::vector<Stretch>& stretches) const {
    split(normalized_, text, excludes, stretches);
  }

 private:
  static Result<AddedToken> parse_token(const json::Value& value, std::string_view where);
  Result<void> add(AddedToken token, const Vocabulary& model, const Normalizer& normalizer,
                   std::string_view where);
  void split(const Trie& trie, std::string_view text, Excludes excludes,
             std::vector<Stretch>& stretches) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, std::size_t> by_content_;  // indices into tokens_
  Trie raw_;                                                 // values are places in tokens_
  Trie normalized_;
  std::int32_t next_id_ = 0;
};

}  // namespace motley::text
