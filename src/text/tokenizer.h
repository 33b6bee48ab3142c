#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "text/chat/marked_text.h"
#include "text/encode_bounds.h"

// Converts text to token ids and back, as defined by tokenizer.json: results equal those of the
// `tokenizers` package.
namespace motley::text {

struct EncodeOptions {
  // Adds the post-processor's tokens: for most models the beginning-of-sequence token.
  bool add_special_tokens = true;
  // Recognises special tokens in untrusted text, too, as Hugging Face does.
  bool special_in_untrusted = false;
  EncodeBounds bounds = {};
};

struct TokenizerParts;

class Tokenizer {
 public:
  // `where` names the file in messages.
  static Result<Tokenizer> parse(std::string_view json, std::string_view where);

  // Loads FOLDER/tokenizer.json. Added tokens of tokenizer_config.json override those there, as in
  // transformers.
  static Result<Tokenizer> load(const std::filesystem::path& folder);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Token ids of a text; invalid UTF-8 is read as U+FFFD. Thread-safe.
  Result<std::vector<std::int32_t>> encode(std::string_view text,
                                           const EncodeOptions& options = {}) const;

  // The same for text with untrusted bytes, which never become special tokens: neither if they
  // spell one, nor if the model would merge them to one.
  Result<std::vector<std::int32_t>> encode(const MarkedText& text,
                                           const EncodeOptions& options = {}) const;

  // The text of token ids; unknown ids are skipped. Always valid UTF-8.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  // The id of a token as spelled in the file, which is not always its text.
  std::optional<std::int32_t> id_of(std::string_view token) const;
  std::optional<std::string_view> token_of(std::int32_t id) const;

  // The bytes that a token adds in the middle of a text, which need not be whole characters; empty
  // for unknown ids.
  std::string bytes_of(std::int32_t id) const;

  // Whether it is an added token; and a special one, which decode() can skip and untrusted text
  // cannot produce.
  bool is_added(std::int32_t id) const;
  bool is_special(std::int32_t id) const;

  // The largest id plus one. There may be unused ids.
  std::int32_t size() const;

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  static Result<Tokenizer> read(const json::Object& file, const json::Value* added_tokens,
                                std::string_view where);

  std::unique_ptr<const TokenizerParts> parts_;
};

}  // namespace motley::text
