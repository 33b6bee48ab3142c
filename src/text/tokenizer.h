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

// Text to token ids and back, as a folder's tokenizer.json says: what the `tokenizers` package
// makes of the same file and text.
namespace motley::text {

struct EncodeOptions {
  // What the post-processor adds around a text: the beginning-of-sequence token of most models.
  bool add_special_tokens = true;
  // Recognises special tokens in untrusted text too, as Hugging Face does, which knows no marks.
  bool special_in_untrusted = false;
  EncodeBounds bounds = {};
};

struct TokenizerParts;

class Tokenizer {
 public:
  // `where` is what messages call the file.
  static Result<Tokenizer> parse(std::string_view json, std::string_view where);

  // From FOLDER/tokenizer.json. What tokenizer_config.json beside it says of added tokens counts
  // more than what stands there, as in transformers.
  static Result<Tokenizer> load(const std::filesystem::path& folder);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Token ids of a text; broken UTF-8 is read as U+FFFD. From many threads at once.
  Result<std::vector<std::int32_t>> encode(std::string_view text,
                                           const EncodeOptions& options = {}) const;

  // The same, and no special token comes out of untrusted bytes: neither one that is written out
  // there, nor one that the model would build of them.
  Result<std::vector<std::int32_t>> encode(const MarkedText& text,
                                           const EncodeOptions& options = {}) const;

  // The text of token ids; ids that the tokenizer lacks are left out. Always valid UTF-8.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  // A token as the file writes it, which is not always the text it stands for.
  std::optional<std::int32_t> id_of(std::string_view token) const;
  std::optional<std::string_view> token_of(std::int32_t id) const;

  // The bytes that a token adds in the middle of a text, which need not be whole characters; empty
  // where the id is not there.
  std::string bytes_of(std::int32_t id) const;

  // An added token; a special one, which decode() can leave out and untrusted text can't write.
  bool is_added(std::int32_t id) const;
  bool is_special(std::int32_t id) const;

  // One more than the largest id. There may be holes below.
  std::int32_t size() const;

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  static Result<Tokenizer> read(const json::Object& file, const json::Value* added_tokens,
                                std::string_view where);

  std::unique_ptr<const TokenizerParts> parts_;
};

}  // namespace motley::text
