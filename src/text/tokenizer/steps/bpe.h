#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "text/chat/marked_text.h"
#include "text/encode_bounds.h"
#include "text/tokenizer/steps/merge_table.h"
#include "text/tokenizer/steps/word_cache.h"
#include "text/tokenizer/vocabulary.h"

namespace motley::text {

// The section "model" of a tokenizer.json: byte-pair encoding. A word begins as its characters;
// then the adjacent pair with the lowest rank is merged, the leftmost first, until no pair has a
// rank.
class Bpe {
 public:
  // Per-thread buffers; kept between words.
  class Workspace;

  // `words_are_bytes`: words are bytes to be mapped to the byte alphabet, see PreTokenizer.
  static Result<Bpe> parse(const json::Value& section, bool words_are_bytes,
                           std::string_view where);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // Whether words are bytes that all have tokens, so that every word has a token.
  bool knows_all_bytes() const;

  // Appends the ids of a word.
  Result<void> encode(std::string_view word, Workspace& workspace,
                      std::vector<std::int32_t>& ids) const;

  // The same; ids in `special` are not made of untrusted bytes (one entry per byte of the word).
  Result<void> encode_untrusted(std::string_view word, std::span<const std::uint8_t> untrusted,
                                const std::vector<bool>& special, Workspace& workspace,
                                std::vector<std::int32_t>& ids) const;

 private:
  static constexpr std::int32_t no_id = -1;
  class Guard;

  Result<void> parse_options(const json::Object& model, std::string_view where);
  Result<void> parse_merges(const json::Value& section, std::string_view where);
  void index_characters();
  void index_joints();

  std::int32_t id_of_character(char32_t character) const {
    return character < ids_of_characters_.size() ? ids_of_characters_[character] : no_id;
  }
  // The id of a word that is a token itself.
  std::int32_t id_of_whole(std::string_view word, Workspace& workspace) const;

  // The end of the part of a word that begins at `begin`: no merge crosses it.
  std::size_t end_of_part(std::string_view word, std::size_t begin) const;
  Result<void> encode_part(std::string_view part, Workspace& workspace,
                           std::vector<std::int32_t>& ids) const;

  template <class Sink>
  Result<void> start(std::string_view word, Sink& sink) const;
  template <class Sink>
  bool fall_back_to_bytes(char32_t character, Span place, Sink& sink) const;
  void merge_few(std::vector<std::int32_t>& ids) const;
  template <class Neighbours>
  Result<void> merge_many(std::vector<std::int32_t>& ids, Workspace& workspace,
                          Neighbours& neighbours) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  bool words_are_bytes_ = false;
  bool ignore_merges_ = false;  // a word that is a token becomes that token, whatever the merges
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  std::string unknown_token_;  // empty: characters outside of the vocabulary are dropped
  std::int32_t unknown_id_ = no_id;
  // By code point, for characters of words; with words_are_bytes_ by byte.
  std::vector<std::int32_t> ids_of_characters_;
  std::array<std::int32_t, 256> ids_of_bytes_{};  // of <0x00> and on, for byte_fallback
  // Whether long words are split where no merge can join two characters, and the pairs of
  // characters that are adjacent in any merged token. Without a pre-tokenizer the whole text is one
  // word; this splits it.
  bool splits_words_ = false;
  MergeTable joints_;
};

class Bpe::Workspace {
 public:
  // Checked while words are encoded, unless null.
  void watch(EncodeWatch* watch) { watch_ = watch; }

 private:
  friend class Bpe;

  Result<void> look() { return watch_ == nullptr ? Result<void>() : watch_->step(); }

  EncodeWatch* watch_ = nullptr;

  // A token of a long word, in a linked list.
  struct Symbol {
    std::int32_t id;
    std::uint32_t previous;
    std::uint32_t next;
    std::uint32_t rank;  // of the pair with the next one; no_rank if merged
  };

  WordCache cache_;
  std::string spelled_;
  std::vector<std::int32_t> ids_;
  std::vector<Symbol> symbols_;
  // Ranks and indices of pairs: those of the word's characters in order, and a min-heap of those
  // that merges create.
  std::vector<std::uint64_t> first_;
  std::vector<std::uint64_t> later_;
};

}  // namespace motley::text
