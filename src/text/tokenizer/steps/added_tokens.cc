#include "text/tokenizer/steps/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/utf8.h"
#include "text/tokenizer/component.h"
#include "text/tokenizer/steps/white_space.h"
#include "text/unicode/unicode.h"

namespace motley::text {
namespace {

// Whether the match begins and ends at word boundaries.
bool is_single_word(std::string_view text, Span match) {
  const std::string_view before = text.substr(0, match.begin);
  const std::string_view after = text.substr(match.end);
  return (before.empty() || !unicode::is_word(last_character(before).code_point)) &&
         (after.empty() || !unicode::is_word(utf8::decode(after).code_point));
}

// Finds the ends of runs of white space, and scans each run once.
class WhiteSpaceRuns {
 public:
  explicit WhiteSpaceRuns(std::string_view text) : text_(text) {}

  // The end of the run that begins, or continues, at `at`.
  std::size_t end_of_run(std::size_t at) {
    if (at < run_.begin || at > run_.end)
      run_ = {.begin = at, .end = at + leading_white_space(text_.substr(at))};
    return run_.end;
  }

 private:
  std::string_view text_;
  Span run_{.begin = 1, .end = 0};
};

}  // namespace

Result<AddedTokens> AddedTokens::parse(const json::Value* section, const Vocabulary& model,
                                       const Normalizer& normalizer, std::string_view where) {
  AddedTokens added;
  if (section == nullptr || section->is_null()) return added;
  MOTLEY_TRY(const json::Array* array, section->as_array(where));
  for (std::size_t i = 0; i < array->size(); ++i) {
    const std::string place = cat(where, " ", i);
    MOTLEY_TRY(AddedToken token, parse_token((*array)[i], place));
    if (!token.content.empty())
      MOTLEY_TRY_VOID(added.add(std::move(token), model, normalizer, place));
  }
  return added;
}

Result<AddedToken> AddedTokens::parse_token(const json::Value& value, std::string_view where) {
  MOTLEY_TRY(const Component fields, Component::untyped(value, where));
  MOTLEY_TRY_VOID(fields.has_only(
      {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
  MOTLEY_TRY(const std::int64_t id, fields.count("id"));
  if (id >= max_token_ids)
    return fields.refused_value("id", cat(id), cat("ids are 0 to ", max_token_ids - 1));
  AddedToken token{.id = static_cast<std::int32_t>(id)};
  MOTLEY_TRY(token.content, fields.string("content"));
  MOTLEY_TRY(token.single_word, fields.boolean("single_word"));
  MOTLEY_TRY(token.lstrip, fields.boolean("lstrip"));
  MOTLEY_TRY(token.rstrip, fields.boolean("rstrip"));
  MOTLEY_TRY(token.normalized, fields.boolean("normalized"));
  MOTLEY_TRY(token.special, fields.boolean("special"));
  return token;
}

Result<void> AddedTokens::add(AddedToken token, const Vocabulary& model,
                              const Normalizer& normalizer, std::string_view where) {
  const auto refused = [&](std::string_view what, std::string_view fix) {
    return Error(ErrorCode::bad_file, cat("the added token ", quote(token.content), " ", what),
                 std::string(where), std::string(fix));
  };
  if (find(token.content) != nullptr) return refused("is listed twice", "list it once");
  // The package uses the model's id, or else the next free one, whatever the file says.
  if (const auto known = model.find(token.content)) {
    if (*known != token.id)
      return refused(cat("has the id ", token.id, ", and ", *known, " in the vocabulary"),
                     "give it the vocabulary's id");
  } else {
    const std::int32_t next = std::max(next_id_, static_cast<std::int32_t>(model.count()));
    if (token.id != next)
      return refused(cat("has the id ", token.id, " where ", next, " is next"),
                     "list added tokens by ascending id, without holes");
    if (model.token(token.id))
      return refused(cat("has the id ", token.id, ", which the vocabulary gives to ",
                         quote(*model.token(token.id))),
                     "give each token an id of its own");
    next_id_ = token.id + 1;
  }
  const auto place = static_cast<std::int32_t>(tokens_.size());
  token.normalized_content = token.content;
  if (token.normalized) {
    Draft draft{.text = token.content};
    MOTLEY_TRY_VOID(normalizer.apply(draft));
    token.normalized_content = std::move(draft.text);
    if (token.normalized_content.empty())
      return refused("is nothing once it is normalized", "set its field normalized to false");
  }
  const std::int32_t twin =
      (token.normalized ? normalized_ : raw_).add(token.normalized_content, place);
  if (twin >= 0)
    return refused(cat("is the same as ", quote(tokens_[static_cast<std::size_t>(twin)].content),
                       " once they are normalized"),
                   "set the field normalized of one of them to false");
  by_content_.emplace(token.content, tokens_.size());
  tokens_.push_back(std::move(token));
  return {};
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

void AddedTokens::split(const Trie& trie, std::string_view text, Excludes excludes,
                        std::vector<Stretch>& stretches) const {
  const auto accepts = [&](const Trie::Match& match) {
    return !excludes(tokens_[static_cast<std::size_t>(match.value)],
                     {.begin = match.begin, .end = match.end});
  };
  WhiteSpaceRuns runs(text);
  std::size_t covered = 0;
  for (std::size_t from = 0; !trie.empty();) {
    const Trie::Match match = trie.find(text, from, accepts);
    if (match.value < 0) break;
    from = match.end;
    const AddedToken& token = tokens_[static_cast<std::size_t>(match.value)];
    Span span{.begin = match.begin, .end = match.end};
    // A match inside a word is skipped as a whole: shorter tokens in it are not searched.
    if (token.single_word && !is_single_word(text, span)) continue;
    if (token.lstrip) {
      span.begin =
          covered < span.begin
              ? span.begin - trailing_white_space(text.substr(covered, span.begin - covered))
              : covered;
    }
    if (token.rstrip) span.end = runs.end_of_run(span.end);
    // A token that strips the white space before it is lost if another one has taken it all.
    if (span.begin >= span.end) continue;
    if (covered < span.begin) stretches.push_back({.span = {.begin = covered, .end = span.begin}});
    stretches.push_back({.span = span, .id = token.id});
    // White space that a token strips may contain further ones, and is stripped up to the last
    // one's end.
    covered = span.end;
  }
  if (covered < text.size()) stretches.push_back({.span = {.begin = covered, .end = text.size()}});
}

}  // namespace motley::text
