#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "grammar/spec.h"

namespace xgrammar {
class CompiledGrammar;
class GrammarMatcher;
class TokenizerInfo;
}  // namespace xgrammar

// The interface to XGrammar: grammars compiled for a vocabulary, and positions in them. The
// library's exceptions are caught here; no other file includes it.
namespace motley::grammar {

// The texts of a model's tokens: bytes[id] is what token id appends to a text; empty for tokens
// that no grammar may use, such as control tokens. `width` is that of the logits; `end_ids` may end
// a text where its grammar may end.
struct Tokens {
  std::vector<std::string> bytes;
  std::int64_t width = 0;
  std::vector<std::int32_t> end_ids;

  std::int64_t mask_words() const { return (width + 31) / 32; }
};

// The same, prepared for compiling all grammars of a model.
class Vocabulary {
 public:
  static Result<Vocabulary> create(const Tokens& tokens);

  std::int64_t width() const { return width_; }
  std::int64_t mask_words() const { return (width_ + 31) / 32; }

 private:
  friend class Grammar;
  Vocabulary(std::shared_ptr<const xgrammar::TokenizerInfo> tokens, std::int64_t width)
      : tokens_(std::move(tokens)), width_(width) {}

  std::shared_ptr<const xgrammar::TokenizerInfo> tokens_;
  std::int64_t width_ = 0;
};

// A compiled grammar; immutable and shared by all its texts.
class Grammar {
 public:
  // Takes from a millisecond to many seconds. The spec must have passed check(). Refuses
  // grammars of which the library would ignore a part.
  static Result<Grammar> compile(const Spec& spec, const Vocabulary& vocabulary);

  std::size_t bytes() const { return bytes_; }

 private:
  friend class Position;
  Grammar(std::shared_ptr<const xgrammar::CompiledGrammar> compiled, std::size_t bytes)
      : compiled_(std::move(compiled)), bytes_(bytes) {}

  std::shared_ptr<const xgrammar::CompiledGrammar> compiled_;
  std::size_t bytes_ = 0;
};

// The position of a text in its grammar. Not thread-safe.
class Position {
 public:
  // `end_ids` may end the text where the grammar may end; empty: those of the vocabulary.
  Position(const Grammar& grammar, const std::vector<std::int32_t>& end_ids);
  Position(Position&&) noexcept;
  Position& operator=(Position&&) noexcept;
  ~Position();

  // Bit i % 32 of word i / 32: token i may come next; words are the vocabulary's mask_words().
  void fill_mask(std::span<std::uint32_t> words);

  // Takes the next token; returns false and changes nothing if it is not allowed.
  bool accept(std::int32_t token);
  // Undoes the last tokens, at most as many as were accepted.
  void rollback(int tokens);

  // After a token that ends texts: no token is allowed any more.
  bool ended() const;
  // The text is complete as it is.
  bool may_end() const;

  Position fork() const;

 private:
  explicit Position(std::unique_ptr<xgrammar::GrammarMatcher> matcher);

  std::unique_ptr<xgrammar::GrammarMatcher> matcher_;
};

}  // namespace motley::grammar
