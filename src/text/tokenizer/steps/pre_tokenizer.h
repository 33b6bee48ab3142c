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

// A part of normalized text between added tokens; see Draft.
struct Piece {
  std::string_view text;
  std::span<const std::uint8_t> untrusted;
  bool opens = false;
};

// The words of a piece: spans of the piece's text, or of a rewritten text that is held here.
class Words {
 public:
  std::string_view text() const { return piece_.text; }
  std::span<const std::uint8_t> untrusted() const { return piece_.untrusted; }
  const std::vector<Span>& spans() const { return spans_; }

  // Checked while text is split, unless null.
  void watch(EncodeWatch* watch) { watch_ = watch; }

 private:
  friend class PreTokenizer;

  Result<void> look() { return watch_ == nullptr ? Result<void>() : watch_->step(); }
  // The piece will have at least this many words.
  Result<void> check_words(std::size_t words) const {
    return watch_ == nullptr ? Result<void>() : watch_->check_words(words);
  }

  EncodeWatch* watch_ = nullptr;

  Piece piece_;
  std::vector<Span> spans_;
  bool rewritten_ = false;
  std::string text_;
  std::vector<std::uint8_t> untrusted_;
  // Written by the previous component, and read by the next.
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

  // Whether words stay bytes that the model maps to the byte alphabet: if that is the last
  // component and nothing else needs the characters.
  bool leaves_bytes() const { return leaves_bytes_; }

  // Whether every byte is part of a word.
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
