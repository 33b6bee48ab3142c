#include "text/tokenizer/steps/bpe.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/cat.h"
#include "base/utf8.h"
#include "text/chat/marked_text.h"
#include "text/tokenizer/character_at.h"
#include "text/tokenizer/steps/byte_alphabet.h"

namespace motley::text {
namespace {

// Words of up to this many characters are merged by scanning all pairs for each merge, which is
// faster than a queue as long as they fit in a few cache lines.
constexpr std::size_t max_symbols_without_queue = 64;

constexpr std::uint32_t no_symbol = 0xFFFF'FFFF;

// "<0x0A>"
std::string name_of_byte(std::size_t byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return cat("<0x", digits[byte / 16], digits[byte % 16], ">");
}

// Receives the ids of a word's characters.
struct PlainSink {
  std::vector<std::int32_t>& ids;

  bool allows(std::int32_t, Span) const { return true; }
  void add(std::int32_t id, Span) { ids.push_back(id); }
};

}  // namespace

Result<Bpe> Bpe::parse(const json::Value& section, bool words_are_bytes, std::string_view where) {
  MOTLEY_TRY(const json::Object* model, section.as_object(where));
  Bpe bpe;
  bpe.words_are_bytes_ = words_are_bytes;
  MOTLEY_TRY_VOID(bpe.parse_options(*model, where));
  const json::Value* vocabulary = model->find("vocab");
  const json::Value* merges = model->find("merges");
  if (vocabulary == nullptr || merges == nullptr)
    return Error(ErrorCode::bad_file, "lacks vocab or merges", std::string(where),
                 "save the tokenizer again with a current version of its library");
  MOTLEY_TRY(bpe.vocabulary_, Vocabulary::parse(*vocabulary, cat(where, ", vocab")));
  MOTLEY_TRY_VOID(bpe.parse_merges(*merges, cat(where, ", merges")));
  bpe.unknown_id_ = bpe.vocabulary_.find(bpe.unknown_token_).value_or(no_id);
  bpe.index_characters();
  bpe.index_joints();
  return bpe;
}

Result<void> Bpe::parse_options(const json::Object& model, std::string_view where) {
  for (const auto& [field, value] : model.members()) {
    const std::string at = cat(where, ", ", printable(field));
    const auto refused = [&](std::string_view fix) {
      return Error(ErrorCode::unsupported, cat("can't read the value ", quote(json::write(value))),
                   at, std::string(fix));
    };
    if (field == "vocab" || field == "merges") continue;
    if (field == "type") {
      const std::string* type = value.if_string();
      if (type == nullptr || *type != "BPE") return refused("use a tokenizer with a BPE model");
    } else if (field == "dropout") {
      const auto dropout = value.as_number(at);
      if (!value.is_null() && (!dropout.ok() || *dropout != 0))
        return refused("set it to null: dropout is for training");
    } else if (field == "continuing_subword_prefix" || field == "end_of_word_suffix") {
      const std::string* affix = value.if_string();
      if (!value.is_null() && (affix == nullptr || !affix->empty()))
        return refused("use a tokenizer whose tokens carry no prefix or suffix");
    } else if (field == "unk_token") {
      if (value.is_null()) continue;
      MOTLEY_TRY(const std::string* token, value.as_string(at));
      unknown_token_ = *token;
    } else if (field == "fuse_unk" || field == "byte_fallback" || field == "ignore_merges") {
      if (value.is_null()) continue;
      MOTLEY_TRY(const bool on, value.as_boolean(at));
      (field == "fuse_unk"        ? fuse_unknown_
       : field == "byte_fallback" ? byte_fallback_
                                  : ignore_merges_) = on;
    } else {
      return Error(ErrorCode::unsupported, cat("has the unknown field ", quote(field)),
                   std::string(where), "remove it if it means nothing");
    }
  }
  return {};
}

Result<void> Bpe::parse_merges(const json::Value& section, std::string_view where) {
  MOTLEY_TRY(const json::Array* merges, section.as_array(where));
  merges_ = MergeTable(merges->size());
  std::string merged;
  for (std::size_t i = 0; i < merges->size(); ++i) {
    const json::Value& merge = (*merges)[i];
    std::string_view left;
    std::string_view right;
    bool read = false;
    if (const std::string* text = merge.if_string()) {
      if (text->starts_with("#version")) continue;
      const std::size_t space = text->find(' ');
      read = space != std::string::npos && text->find(' ', space + 1) == std::string::npos;
      if (read) {
        left = std::string_view(*text).substr(0, space);
        right = std::string_view(*text).substr(space + 1);
      }
    } else if (const json::Array* pair = merge.if_array(); pair != nullptr && pair->size() == 2) {
      const std::string* first = (*pair)[0].if_string();
      const std::string* second = (*pair)[1].if_string();
      read = first != nullptr && second != nullptr;
      if (read) {
        left = *first;
        right = *second;
      }
    }
    if (!read)
      return Error(ErrorCode::bad_file, cat("merge ", i, " is not a pair of tokens"),
                   std::string(where), "write \"a b\", or [\"a\", \"b\"]");
    merged.assign(left).append(right);
    const auto left_id = vocabulary_.find(left);
    const auto right_id = vocabulary_.find(right);
    const auto merged_id = vocabulary_.find(merged);
    if (!left_id || !right_id || !merged_id)
      return Error(ErrorCode::bad_file,
                   cat("names the token ",
                       quote(!left_id    ? left
                             : !right_id ? right
                                         : merged),
                       ", which the vocabulary lacks"),
                   cat(where, " ", i),
                   "save the tokenizer again, with the vocabulary that its merges need");
    merges_.add({.left = *left_id, .right = *right_id, .merged = *merged_id});
  }
  return {};
}

void Bpe::index_characters() {
  if (words_are_bytes_) {
    ids_of_characters_.assign(256, no_id);
  } else {
    char32_t end = 0;
    for (std::int32_t id = 0; id < vocabulary_.end(); ++id) {
      const std::string_view token = vocabulary_.token(id).value_or("");
      if (token.empty()) continue;
      const utf8::Decoded character = utf8::decode(token);
      if (character.length == token.size())
        end = std::max(end, static_cast<char32_t>(character.code_point + 1));
    }
    ids_of_characters_.assign(end, no_id);
  }
  for (std::size_t i = 0; i < ids_of_characters_.size(); ++i) {
    std::string character;
    utf8::append(character, words_are_bytes_ ? character_of_byte(static_cast<std::uint8_t>(i))
                                             : static_cast<char32_t>(i));
    ids_of_characters_[i] = vocabulary_.find(character).value_or(no_id);
  }
  for (std::size_t byte = 0; byte < 256; ++byte)
    ids_of_bytes_[byte] = vocabulary_.find(name_of_byte(byte)).value_or(no_id);
}

// The pairs of characters that merges join. Words are not split if merges use the tokens of unknown
// characters or bytes, whose texts are not the characters that they denote, or if a part of a word
// might be looked up as a word.
void Bpe::index_joints() {
  if (words_are_bytes_ || ignore_merges_) return;
  std::vector<bool> stands_for_others(static_cast<std::size_t>(vocabulary_.end()), false);
  for (const std::int32_t id : ids_of_bytes_)
    if (id != no_id) stands_for_others[static_cast<std::size_t>(id)] = true;
  if (unknown_id_ != no_id) stands_for_others[static_cast<std::size_t>(unknown_id_)] = true;
  for (const MergeTable::Merge& merge : merges_.merges())
    if (stands_for_others[static_cast<std::size_t>(merge.left)] ||
        stands_for_others[static_cast<std::size_t>(merge.right)])
      return;
  std::vector<std::uint64_t> pairs;
  for (const MergeTable::Merge& merge : merges_.merges()) {
    const std::string_view token = vocabulary_.token(merge.merged).value();
    std::int32_t last = no_id;
    for (std::size_t at = 0; at < token.size();) {
      const utf8::Decoded character = character_at(token, at);
      const std::int32_t id = id_of_character(character.code_point);
      if (last != no_id && id != no_id)
        pairs.push_back(static_cast<std::uint64_t>(last) << 32 | static_cast<std::uint32_t>(id));
      last = id;
      at += character.length;
    }
  }
  std::ranges::sort(pairs);
  pairs.erase(std::ranges::unique(pairs).begin(), pairs.end());
  joints_ = MergeTable(pairs.size());
  for (const std::uint64_t pair : pairs)
    joints_.add({.left = static_cast<std::int32_t>(pair >> 32),
                 .right = static_cast<std::int32_t>(pair),
                 .merged = no_id});
  splits_words_ = true;
}

bool Bpe::knows_all_bytes() const {
  if (!words_are_bytes_) return false;
  for (char32_t byte = 0; byte < 256; ++byte)
    if (id_of_character(byte) == no_id) return false;
  return true;
}

std::size_t Bpe::end_of_part(std::string_view word, std::size_t begin) const {
  std::int32_t last = no_id;
  for (std::size_t at = begin; at < word.size();) {
    const utf8::Decoded character = character_at(word, at);
    const std::int32_t id = id_of_character(character.code_point);
    if (last != no_id && id != no_id && joints_.rank(last, id) == MergeTable::no_rank) return at;
    last = id;
    at += character.length;
  }
  return word.size();
}

std::int32_t Bpe::id_of_whole(std::string_view word, Workspace& workspace) const {
  if (!words_are_bytes_) return vocabulary_.find(word).value_or(no_id);
  workspace.spelled_.clear();
  append_as_characters(workspace.spelled_, word);
  return vocabulary_.find(workspace.spelled_).value_or(no_id);
}

template <class Sink>
bool Bpe::fall_back_to_bytes(char32_t character, Span place, Sink& sink) const {
  std::string bytes;
  utf8::append(bytes, character);
  const auto id_of = [&](char byte) { return ids_of_bytes_[static_cast<std::uint8_t>(byte)]; };
  for (const char byte : bytes)
    if (id_of(byte) == no_id || !sink.allows(id_of(byte), place)) return false;
  for (const char byte : bytes) sink.add(id_of(byte), place);
  return true;
}

// Passes the initial ids of a word to the sink. As in the package, the token for unknown characters
// comes before the next known one, after bytes of byte fallback in between.
template <class Sink>
Result<void> Bpe::start(std::string_view word, Sink& sink) const {
  std::optional<Span> unknown;
  const auto add_unknown = [&] {
    if (unknown) sink.add(unknown_id_, *unknown);
    unknown.reset();
  };
  for (std::size_t at = 0; at < word.size();) {
    char32_t character = static_cast<std::uint8_t>(word[at]);
    std::size_t end = at + 1;
    if (!words_are_bytes_ && character >= 0x80) {
      const utf8::Decoded decoded = utf8::decode(word.substr(at));
      character = decoded.code_point;
      end = at + decoded.length;
    }
    const Span place{.begin = at, .end = end};
    at = end;
    const std::int32_t id = id_of_character(character);
    if (id != no_id && sink.allows(id, place)) {
      add_unknown();
      sink.add(id, place);
      continue;
    }
    if (words_are_bytes_) character = character_of_byte(static_cast<std::uint8_t>(character));
    if (byte_fallback_ && fall_back_to_bytes(character, place, sink)) continue;
    if (unknown_token_.empty()) continue;
    if (unknown_id_ == no_id)
      return Error(ErrorCode::bad_file,
                   cat("the text has a character that the vocabulary lacks, and so does the token ",
                       quote(unknown_token_), " for such characters"),
                   "tokenizer.json, model, unk_token", "name a token of the vocabulary");
    if (!sink.allows(unknown_id_, place)) continue;
    if (unknown && fuse_unknown_) {
      unknown->end = end;
    } else {
      add_unknown();
      unknown = place;
    }
  }
  add_unknown();
  return {};
}

void Bpe::merge_few(std::vector<std::int32_t>& ids) const {
  if (ids.empty()) return;
  std::array<std::uint32_t, max_symbols_without_queue> all_ranks{};
  std::int32_t* const id = ids.data();
  std::uint32_t* const rank = all_ranks.data();  // of each id with the next one
  std::size_t pairs = ids.size() - 1;
  for (std::size_t i = 0; i < pairs; ++i) rank[i] = merges_.rank(id[i], id[i + 1]);
  while (pairs > 0) {
    std::size_t at = 0;
    std::uint32_t best = rank[0];
    for (std::size_t i = 1; i < pairs; ++i) {
      at = rank[i] < best ? i : at;
      best = std::min(best, rank[i]);
    }
    if (best == MergeTable::no_rank) break;
    id[at] = merges_.merged(best);
    std::copy(id + at + 2, id + pairs + 1, id + at + 1);
    std::copy(rank + at + 1, rank + pairs, rank + at);
    --pairs;
    if (at > 0) rank[at - 1] = merges_.rank(id[at - 1], id[at]);
    if (at < pairs) rank[at] = merges_.rank(id[at], id[at + 1]);
  }
  ids.resize(pairs + 1);
}

// The same for words of any length: O(n log n). `neighbours` returns the rank of a pair, and is
// notified of each merge.
template <class Neighbours>
Result<void> Bpe::merge_many(std::vector<std::int32_t>& ids, Workspace& workspace,
                             Neighbours& neighbours) const {
  using Symbol = Workspace::Symbol;
  std::vector<Symbol>& symbols = workspace.symbols_;
  std::vector<std::uint64_t>& first = workspace.first_;
  std::vector<std::uint64_t>& later = workspace.later_;
  const auto count = static_cast<std::uint32_t>(ids.size());
  symbols.clear();
  first.clear();
  later.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    symbols.push_back({.id = ids[i],
                       .previous = i == 0 ? no_symbol : i - 1,
                       .next = i + 1 == count ? no_symbol : i + 1,
                       .rank = MergeTable::no_rank});
  }
  const auto entry_of = [&](std::uint32_t at) {
    Symbol& symbol = symbols[at];
    symbol.rank = symbol.next == no_symbol
                      ? MergeTable::no_rank
                      : neighbours.rank(at, symbol.id, symbol.next, symbols[symbol.next].id);
    return static_cast<std::uint64_t>(symbol.rank) << 32 | at;
  };
  const auto has_rank = [](std::uint64_t entry) { return entry >> 32 != MergeTable::no_rank; };
  for (std::uint32_t i = 0; i < count; ++i)
    if (const std::uint64_t entry = entry_of(i); has_rank(entry)) first.push_back(entry);
  std::ranges::sort(first);
  const auto update = [&](std::uint32_t at) {
    const std::uint64_t entry = entry_of(at);
    if (!has_rank(entry)) return;
    later.push_back(entry);
    std::ranges::push_heap(later, std::greater<>());
  };

  MOTLEY_TRY_VOID(workspace.look());
  for (std::size_t done = 0; done < first.size() || !later.empty();) {
    MOTLEY_TRY_VOID(workspace.look());
    std::uint64_t entry = 0;
    if (done < first.size() && (later.empty() || first[done] < later.front())) {
      entry = first[done++];
    } else {
      std::ranges::pop_heap(later, std::greater<>());
      entry = later.back();
      later.pop_back();
    }
    const auto rank = static_cast<std::uint32_t>(entry >> 32);
    const auto at = static_cast<std::uint32_t>(entry);
    Symbol& left = symbols[at];
    if (left.rank != rank) continue;  // the pair has been merged
    Symbol& right = symbols[left.next];
    neighbours.merge(at, left.next);
    left.id = merges_.merged(rank);
    left.next = right.next;
    right.rank = MergeTable::no_rank;
    if (left.next != no_symbol) symbols[left.next].previous = at;
    update(at);
    if (left.previous != no_symbol) update(left.previous);
  }

  ids.clear();
  for (std::uint32_t at = 0; at != no_symbol && count > 0; at = symbols[at].next)
    ids.push_back(symbols[at].id);
  return {};
}

Result<void> Bpe::encode(std::string_view word, Workspace& workspace,
                         std::vector<std::int32_t>& ids) const {
  if (!splits_words_ || WordCache::can_hold(word)) return encode_part(word, workspace, ids);
  for (std::size_t at = 0; at < word.size();) {
    MOTLEY_TRY_VOID(workspace.look());
    const std::size_t end = end_of_part(word, at);
    MOTLEY_TRY_VOID(encode_part(word.substr(at, end - at), workspace, ids));
    at = end;
  }
  return {};
}

Result<void> Bpe::encode_part(std::string_view word, Workspace& workspace,
                              std::vector<std::int32_t>& ids) const {
  const bool cacheable = WordCache::can_hold(word);
  std::size_t slot = 0;
  if (cacheable) {
    slot = workspace.cache_.slot_of(word);
    if (const auto found = workspace.cache_.find(slot, word); !found.empty()) {
      ids.insert(ids.end(), found.begin(), found.end());
      return {};
    }
  }
  std::vector<std::int32_t>& own = workspace.ids_;
  own.clear();
  const std::int32_t whole = ignore_merges_ ? id_of_whole(word, workspace) : no_id;
  if (whole != no_id) {
    own.push_back(whole);
  } else {
    PlainSink sink{own};
    MOTLEY_TRY_VOID(start(word, sink));
    if (own.size() <= max_symbols_without_queue) {
      merge_few(own);
    } else {
      struct {
        const MergeTable& merges;
        std::uint32_t rank(std::uint32_t, std::int32_t left, std::uint32_t, std::int32_t right) {
          return merges.rank(left, right);
        }
        void merge(std::uint32_t, std::uint32_t) {}
      } neighbours{merges_};
      MOTLEY_TRY_VOID(merge_many(own, workspace, neighbours));
    }
  }
  if (cacheable) workspace.cache_.put(slot, word, own);
  ids.insert(ids.end(), own.begin(), own.end());
  return {};
}

// Tracks the bytes of each id, and prevents special ids from being made of untrusted bytes.
class Bpe::Guard {
 public:
  Guard(const MergeTable& merges, std::span<const std::uint8_t> untrusted,
        const std::vector<bool>& special, std::vector<std::int32_t>& ids)
      : merges_(merges), special_(special), ids_(ids) {
    untrusted_before_.push_back(0);
    for (const std::uint8_t byte : untrusted)
      untrusted_before_.push_back(untrusted_before_.back() + byte);
  }

  bool allows(std::int32_t id, Span place) const {
    return !special_[static_cast<std::size_t>(id)] ||
           untrusted_before_[place.begin] == untrusted_before_[place.end];
  }

  void add(std::int32_t id, Span place) {
    ids_.push_back(id);
    places_.push_back(place);
  }

  std::uint32_t rank(std::uint32_t left, std::int32_t left_id, std::uint32_t right,
                     std::int32_t right_id) const {
    const std::uint32_t rank = merges_.rank(left_id, right_id);
    if (rank == MergeTable::no_rank || allows(merges_.merged(rank), both(left, right))) return rank;
    return MergeTable::no_rank;
  }

  void merge(std::uint32_t left, std::uint32_t right) { places_[left] = both(left, right); }

 private:
  Span both(std::uint32_t left, std::uint32_t right) const {
    return {.begin = std::min(places_[left].begin, places_[right].begin),
            .end = std::max(places_[left].end, places_[right].end)};
  }

  const MergeTable& merges_;
  const std::vector<bool>& special_;
  std::vector<std::int32_t>& ids_;
  std::vector<Span> places_;                   // by symbol
  std::vector<std::size_t> untrusted_before_;  // number of untrusted bytes before each position
};

Result<void> Bpe::encode_untrusted(std::string_view word, std::span<const std::uint8_t> untrusted,
                                   const std::vector<bool>& special, Workspace& workspace,
                                   std::vector<std::int32_t>& ids) const {
  const std::size_t first = ids.size();
  MOTLEY_TRY_VOID(encode(word, workspace, ids));
  const auto is_special = [&](std::int32_t id) { return special[static_cast<std::size_t>(id)]; };
  const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(first);
  if (std::ranges::find(untrusted, 1) == untrusted.end() ||
      std::none_of(begin, ids.end(), is_special))
    return {};
  // Encodes again, without the special tokens in the vocabulary where bytes are untrusted.
  ids.resize(first);
  std::vector<std::int32_t>& own = workspace.ids_;
  own.clear();
  Guard guard(merges_, untrusted, special, own);
  const std::int32_t whole = ignore_merges_ ? id_of_whole(word, workspace) : no_id;
  if (whole != no_id && guard.allows(whole, {.begin = 0, .end = word.size()})) {
    own.push_back(whole);
  } else {
    MOTLEY_TRY_VOID(start(word, guard));
    MOTLEY_TRY_VOID(merge_many(own, workspace, guard));
  }
  ids.insert(ids.end(), own.begin(), own.end());
  return {};
}

}  // namespace motley::text
