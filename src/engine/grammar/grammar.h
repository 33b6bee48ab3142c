#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/sampling/sampling_params.h"

namespace xgrammar {
class CompiledGrammar;
class GrammarMatcher;
class TokenizerInfo;
}  // namespace xgrammar

// The edge to XGrammar: grammars compiled for a vocabulary, and where a text stands in one. What
// the library throws ends here; no other file sees it.
namespace motley::engine {

// What the tokens of a model say: bytes[id] is what token id adds to a text; empty for what no
// grammar may use, such as tokens of control. `width` is that of the logits; `end_ids` may end a
// text where its grammar may end.
struct GrammarTokens {
  std::vector<std::string> bytes;
  std::int64_t width = 0;
  std::vector<std::int32_t> end_ids;

  std::int64_t mask_words() const { return (width + 31) / 32; }
};

// The same, ready for compiling all grammars of a model.
class GrammarVocabulary {
 public:
  static Result<GrammarVocabulary> create(const GrammarTokens& tokens);

  std::int64_t width() const { return width_; }
  std::int64_t mask_words() const { return (width_ + 31) / 32; }

 private:
  friend class Grammar;
  GrammarVocabulary(std::shared_ptr<const xgrammar::TokenizerInfo> tokens, std::int64_t width)
      : tokens_(std::move(tokens)), width_(width) {}

  std::shared_ptr<const xgrammar::TokenizerInfo> tokens_;
  std::int64_t width_ = 0;
};

// A compiled grammar: never changes, shared by all that follow it.
class Grammar {
 public:
  // Takes from a millisecond to many seconds. The spec has passed check_grammar(). What the library
  // would leave out of a grammar is refused: an answer follows all of it or is not begun.
  static Result<Grammar> compile(const GrammarSpec& spec, const GrammarVocabulary& vocabulary);

  std::size_t bytes() const { return bytes_; }

 private:
  friend class GrammarState;
  Grammar(std::shared_ptr<const xgrammar::CompiledGrammar> compiled, std::size_t bytes)
      : compiled_(std::move(compiled)), bytes_(bytes) {}

  std::shared_ptr<const xgrammar::CompiledGrammar> compiled_;
  std::size_t bytes_ = 0;
};

// Where a text stands in its grammar. One thread at a time.
class GrammarState {
 public:
  // `end_ids` may end the text where the grammar may; none: those of the vocabulary.
  GrammarState(const Grammar& grammar, const std::vector<std::int32_t>& end_ids);
  GrammarState(GrammarState&&) noexcept;
  GrammarState& operator=(GrammarState&&) noexcept;
  ~GrammarState();

  // Bit i % 32 of word i / 32: token i may come next; words are the vocabulary's mask_words().
  void fill_mask(std::span<std::uint32_t> words);

  // Takes the next token; false, and nothing is changed, where it may not come.
  bool accept(std::int32_t token);
  // Takes back the last tokens, at most as many as were accepted.
  void rollback(int tokens);

  // Behind a token that ends texts: nothing may come any more.
  bool ended() const;
  // The text is whole as it stands.
  bool may_end() const;

  GrammarState fork() const;

 private:
  explicit GrammarState(std::unique_ptr<xgrammar::GrammarMatcher> matcher);

  std::unique_ptr<xgrammar::GrammarMatcher> matcher_;
};

}  // namespace motley::engine
