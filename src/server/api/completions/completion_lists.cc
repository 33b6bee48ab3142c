#include "server/api/completions/completion_lists.h"

#include <algorithm>

#include "base/json/json.h"
#include "base/utf8.h"
#include "server/api/fields/token_lists.h"
#include "server/api/reply_parts.h"
#include "text/stream_decoder.h"

namespace motley::server {
namespace {

// Lists with up to this many entries are kept after they are written: about 2 MB.
constexpr std::size_t max_kept_entries = 50'000;

void append_top(std::string& text, const ScoredToken& token, const text::Tokenizer& tokenizer,
                bool as_ids) {
  std::vector<std::string> names;
  names.reserve(token.top.size() + 1);
  text += '{';
  const auto add = [&](std::int32_t id, float logprob) {
    // Different tokens may have the same text if they are parts of characters.
    std::string name = token_name(tokenizer, id, as_ids);
    if (std::ranges::find(names, name) != names.end()) return;
    if (!names.empty()) text += ',';
    json::append_string(text, name);
    text += ':';
    json::append_number(text, finite_logprob(logprob));
    names.push_back(std::move(name));
  };
  for (const engine::TopLogprob& each : token.top) add(each.token, each.logprob);
  add(token.id, token.logprob);
  text += '}';
}

}  // namespace

std::string_view name(LogprobList list) {
  switch (list) {
    case LogprobList::tokens:
      return "tokens";
    case LogprobList::token_logprobs:
      return "token_logprobs";
    case LogprobList::top_logprobs:
      return "top_logprobs";
    case LogprobList::text_offset:
      break;
  }
  return "text_offset";
}

void append_entry(std::string& text, LogprobList list, const ScoredToken& token,
                  const text::Tokenizer& tokenizer, bool as_ids) {
  const bool about_scores =
      list == LogprobList::token_logprobs || list == LogprobList::top_logprobs;
  if (about_scores && !token.scored) {
    text += "null";
  } else if (list == LogprobList::tokens) {
    json::append_string(text, token_name(tokenizer, token.id, as_ids));
  } else if (list == LogprobList::token_logprobs) {
    json::append_number(text, finite_logprob(token.logprob));
  } else if (list == LogprobList::top_logprobs) {
    append_top(text, token, tokenizer, as_ids);
  } else {
    text += std::to_string(token.offset);
  }
}

PromptTokens::PromptTokens(const CompletionRequest::Prompt& prompt, std::size_t top,
                           const text::Tokenizer& tokenizer, bool as_ids)
    : prompt_(&prompt), top_(top), tokenizer_(&tokenizer), as_ids_(as_ids) {
  // The given text may have special tokens. One that is made of the tokens has none.
  text::StreamDecoder decoder(tokenizer, prompt.decoded);
  std::int64_t offset = 0;
  offsets_.reserve(prompt.tokens.size());
  for (const std::int32_t id : prompt.tokens) {
    offsets_.push_back(offset);
    offset += utf8::count(decoder.push(id));
  }
}

ScoredToken PromptTokens::token(std::size_t at, const engine::PromptEvent& scores) const {
  ScoredToken token{.id = prompt_->tokens[at], .scored = false, .offset = offsets_[at]};
  const auto first = static_cast<std::size_t>(scores.first);
  if (at < first || at - first >= scores.logprobs.size()) return token;
  token.scored = true;
  token.logprob = scores.logprobs[at - first];
  token.top = scores.likeliest(at - first, top_);
  return token;
}

const std::string* PromptTokens::written(LogprobList list, const engine::PromptEvent& scores) {
  if (size() * (top_ + 1) > max_kept_entries) return nullptr;
  std::string& text = written_[static_cast<std::size_t>(list)];
  if (!text.empty()) return &text;
  for (std::size_t i = 0; i < size(); ++i) {
    if (i > 0) text += ',';
    append_entry(text, list, token(i, scores), *tokenizer_, as_ids_);
  }
  return &text;
}

}  // namespace motley::server
