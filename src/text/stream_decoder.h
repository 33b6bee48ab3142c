#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace motley::text {

class DecoderStage;

// Decodes token ids as they arrive: the results of push() and finish(), joined, equal
// Tokenizer::decode() of all ids. Each piece is valid UTF-8, and final.
class StreamDecoder {
 public:
  // The tokenizer must outlive the stream.
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special);

  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;
  ~StreamDecoder();

  // The text that has become certain: often that of the token, empty in the middle of a character.
  std::string push(std::int32_t id);

  // The rest. push() must not be called after it.
  std::string finish();

 private:
  friend class Tokenizer;

  // Lets the stages write what is certain to the output.
  void take(std::int32_t id);

  const TokenizerParts* parts_;
  bool skip_special_;
  std::unique_ptr<std::string> output_;  // written by the last stage
  std::vector<std::unique_ptr<DecoderStage>> stages_;
};

}  // namespace motley::text
