#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "text/encode_bounds.h"
#include "text/tokenizer/steps/metaspace.h"
#include "text/tokenizer/steps/pattern.h"

namespace motley::text {

// A piece of normalized text between added tokens, see Draft.
struct Piece {
  std::string_view text;
  std::span<const std::uint8_t> untrusted;
  bool opens = false;
};

// The words that a piece falls into: spans of a text which is the piece's own, or a rewritten one
// that is held here.
class Words {
 public:
  std::string_view text() const { return piece_.text; }
  std::span<const std::uint8_t> untrusted() const { return piece_.untrusted; }
  const std::vector<Span>& spans() const { return spans_; }

  // Asked while text is split, unless null.
  void watch(EncodeWatch* watch) { watch_ = watch; }

 private:
  friend class PreTokenizer;

  Result<void> look() { return watch_ == nullptr ? Result<void>() : watch_->step(); }
  // So many words are sure to come of the piece.
  Result<void> check_words(std::size_t words) const {
    return watch_ == nullptr ? Result<void>() : watch_->check_words(words);
  }

  EncodeWatch* watch_ = nullptr;

  Piece piece_;
  std::vector<Span> spans_;
  bool rewritten_ = false;
  std::string text_;
  std::vector<std::uint8_t> untrusted_;
  // What the next step reads and the last one wrote.
  std::vector<Span> old_spans_;
  std::string old_text_;
  std::vector<std::uint8_t> old_untrusted_;
  std::vector<Stretch> stretches_;
};

// The section "pre_tokenizer" of a tokenizer.json: splits text into words, within which the model
// merges.
class PreTokenizer {
 public:
  static Result<PreTokenizer> parse(const json::Value* section, std::string_view where);

  // Whether words are left as bytes which the model has to read in the byte alphabet: so it is
  // where that is the last step, and nothing else asks for the characters.
  bool leaves_bytes() const { return leaves_bytes_; }

  // Whether every byte is in some word.
  bool keeps_all() const;

  // The piece must outlive the words.
  Result<void> split(const Piece& piece, Words& words) const;

 private:
  enum class Class : std::uint8_t { digit, punctuation, white_space };
  struct SplitByPattern {
    Pattern pattern;
    SplitBehavior behavior;
    bool invert;
  };
  // Every character of the class is a match.
  struct SplitByClass {
    Class matching;
    SplitBehavior behavior;
  };
  struct SplitByWords {};
  struct PrependSpace {};
  struct MapBytes {};
  struct Metaspace {
    std::string replacement;
    PrependScheme scheme;
  };
  using Step =
      std::variant<SplitByPattern, SplitByClass, SplitByWords, PrependSpace, MapBytes, Metaspace>;

  Result<void> append_steps(const Component& component);
  Result<void> append_byte_level(const Component& component);
  Result<void> append_metaspace(const Component& component);

  static Result<void> run(const SplitByPattern& step, Words& words);
  static Result<void> run(const SplitByClass& step, Words& words);
  static Result<void> run(SplitByWords step, Words& words);
  static Result<void> run(PrependSpace step, Words& words);
  static Result<void> run(MapBytes step, Words& words);
  static Result<void> run(const Metaspace& step, Words& words);

  template <class Classify>
  static Result<void> split_by(Words& words, SplitBehavior behavior, Classify matches);
  template <class Write>
  static void rewrite(Words& words, Write write);

  std::vector<Step> steps_;
  bool leaves_bytes_ = false;
};

}  // namespace motley::text
