#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

// The section "decoder" of a tokenizer.json: from tokens to text. Each component maps a list of
// tokens to another list; the text is the concatenation of the last list. Here components process
// streams, and pass on what no later token can change.
namespace motley::text {

// A running component. A token consists of any number of write() calls, each with whole characters,
// and end_token(); finish() follows the last token.
class DecoderStage {
 public:
  explicit DecoderStage(DecoderStage* next) : next_(next) {}
  DecoderStage(const DecoderStage&) = delete;
  DecoderStage& operator=(const DecoderStage&) = delete;
  virtual ~DecoderStage() = default;

  virtual void write(std::string_view text) = 0;
  virtual void end_token() = 0;
  virtual void finish() { next_->finish(); }

 protected:
  DecoderStage& next() { return *next_; }

 private:
  DecoderStage* next_;
};

class Decoder {
 public:
  static Result<Decoder> parse(const json::Value* section, std::string_view where);

  // The bytes that a token adds in the middle of a text, also for a token that is part of a
  // character.
  std::string bytes_of(std::string_view token) const;

  // The stages of one stream, in order; the last one writes to `output`, which must not move.
  std::vector<std::unique_ptr<DecoderStage>> start(std::string& output) const;

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Fuse {};
  struct Replace {
    std::string pattern;
    std::string content;
  };
  struct Strip {
    char32_t content;
    std::size_t start;
    std::size_t stop;
  };
  struct Metaspace {
    char32_t replacement;
    bool prefixed;  // the first token begins with a space that was not in the text
  };
  struct JoinWithSpaces {};
  using Step =
      std::variant<ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, JoinWithSpaces>;

  class ByteLevelStage;
  class ByteFallbackStage;
  class FuseStage;
  class ReplaceStage;
  class StripStage;
  class MetaspaceStage;
  class JoinWithSpacesStage;
  class OutputStage;

  static Result<Step> parse_step(const class Component& component);

  std::vector<Step> steps_;
};

}  // namespace motley::text
