#include "server/api/tokens/generate_reply.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "server/api/fields/npy_text.h"
#include "server/api/fields/routed_fields.h"

namespace motley::server {
namespace {

// The members of a token without the braces; vLLM's form since 0.33, and `token` as before.
void append_number(std::string& text, std::int32_t id, float logprob, std::int32_t rank) {
  text += cat("\"token\":\"token_id:", id, "\",\"token_id\":", id, ",\"logprob\":");
  json::append_number(text, finite_logprob(logprob));
  text += cat(",\"rank\":", rank);
}

}  // namespace

GenerateReply::GenerateReply(ReplyHead head, GenerateRequest request,
                             const text::Tokenizer& tokenizer)
    : head_(std::move(head)),
      request_(std::move(request)),
      tokenizer_(tokenizer),
      choices_(static_cast<std::size_t>(request_.fields.choices)) {}

// A stop string, or one of the request's tokens; the model's end is null, as in vLLM.
std::string GenerateReply::stop_reason(const serving::ChoiceUpdate& update) const {
  const GenerationFields& fields = request_.fields;
  if (update.stop)
    return *update.stop < fields.stop.size() ? json::string_literal(fields.stop[*update.stop])
                                             : std::string("null");
  if (update.stop_token &&
      std::ranges::find(fields.stop_ids, *update.stop_token) != fields.stop_ids.end())
    return std::to_string(*update.stop_token);
  return "null";
}

void GenerateReply::keep(const serving::ChoiceUpdate& update) {
  Choice& choice = choices_[update.index];
  kept_bytes_ -= choice.text.capacity() + choice.tokens.bytes();
  if (request_.with_text) choice.text += update.piece.text;
  choice.tokens.append(update.piece, top());
  choice.drawn += std::ssize(update.piece.tokens);
  if (update.end) {
    choice.end = update.end;
    choice.stop_reason = stop_reason(update);
  }
  kept_bytes_ += choice.text.capacity() + choice.tokens.bytes();
}

std::string GenerateReply::opening(std::size_t index, const Choice& choice) const {
  std::string text = cat("{\"index\":", index, ",\"finish_reason\":",
                         choice.end ? json::string_literal(name(*choice.end)) : std::string("null"),
                         ",\"stop_reason\":", choice.stop_reason);
  if (request_.with_text) {
    text += ",\"text\":";
    json::append_string(text, choice.text);
  }
  return text += ",\"token_ids\":";
}

std::string GenerateReply::closing(std::size_t index, const Choice& choice,
                                   const serving::Transcript& transcript) {
  return cat(",\"weight_versions\":",
             choice.end ? weight_versions(transcript.versions_of(index), choice.drawn)
                        : std::string("null"),
             "}");
}

bool GenerateReply::write_experts(std::string& piece, ListPlace& place, std::size_t index,
                                  bool ended, const serving::Transcript& transcript) const {
  const engine::RoutedExpertsSizes& sizes = request_.fields.routed_experts;
  if (!place.open) piece += ",\"routed_experts\":";
  if (sizes.kept() && ended) return write_routed(piece, place, transcript, index, sizes);
  piece += "null";
  return true;
}

// The drawn token stands first among the alternatives.
void GenerateReply::append_score(std::string& text, const KeptTokens& tokens,
                                 std::size_t at) const {
  const std::int32_t id = tokens.id(at);
  const auto tops = tokens.top(at);
  if (request_.with_text) {
    text += json::write(
        scored_token(tokenizer_, id, tokens.logprob(at), tops, listing_of(request_.fields)));
    return;
  }
  const std::int32_t rank = tokens.rank(at);
  text += '{';
  append_number(text, id, tokens.logprob(at), rank);
  text += ",\"top_logprobs\":[{";
  append_number(text, id, tokens.logprob(at), rank);
  text += '}';
  for (std::size_t i = 0; i < tops.size(); ++i) {
    if (tops[i].token == id) continue;
    text += ",{";
    append_number(text, tops[i].token, tops[i].logprob, tokens.top_rank(at, i));
    text += '}';
  }
  text += "]}";
}

GenerateReply::Part GenerateReply::next_part() {
  if (part_ == Part::choice_end && ++choice_ < choices_.size()) return Part::choice;
  return static_cast<Part>(static_cast<int>(part_) + 1);
}

bool GenerateReply::write_part(std::string& piece, const serving::Transcript& transcript) {
  if (part_ > Part::choice_end) return write_prompt_part(piece, transcript);
  Choice& choice = choices_[choice_];
  const KeptTokens& tokens = choice.tokens;
  switch (part_) {
    case Part::choice:
      piece += cat(choice_ > 0 ? "," : "", opening(choice_, choice));
      return true;
    case Part::token_ids:
      return write_list(piece, entry_, tokens.size(), [&](std::string& text, std::size_t at) {
        text += std::to_string(tokens.id(at));
      });
    case Part::scores:
      if (!entry_.open) piece += with_logprobs() ? ",\"logprobs\":{\"content\":" : ",\"logprobs\":";
      if (!with_logprobs()) {
        piece += "null";
        return true;
      }
      if (!write_list(piece, entry_, tokens.size(),
                      [&](std::string& text, std::size_t at) { append_score(text, tokens, at); }))
        return false;
      piece += '}';
      return true;
    case Part::routed:
      return write_experts(piece, entry_, choice_, true, transcript);
    default:
      piece += closing(choice_, choice, transcript);
      choice = {};
      return true;
  }
}

bool GenerateReply::write_prompt_part(std::string& piece, const serving::Transcript& transcript) {
  const GenerationFields& fields = request_.fields;
  const std::span<const std::int32_t> prompt = request_.tokens;
  const engine::PromptEvent& scores = transcript.prompt_scores()[0];
  // A list or null.
  const auto open = [&](std::string_view name, bool wanted) {
    if (!entry_.open) piece += cat(",\"", name, "\":", wanted ? "" : "null");
    return wanted;
  };
  if (part_ == Part::prompt_scores) {
    if (!entry_.open) piece += ']';
    if (!open("prompt_logprobs", fields.prompt_top.has_value())) return true;
    return write_list(piece, entry_, prompt.size(), [&](std::string& text, std::size_t at) {
      append_prompt_entry(text, prompt, at, scores, static_cast<std::size_t>(*fields.prompt_top),
                          tokenizer_);
    });
  }
  if (part_ == Part::named_scores) {
    const auto width = static_cast<std::size_t>(fields.prompt_named.width);
    return !open("prompt_token_id_logprobs", width > 0) ||
           write_npy(piece, entry_, scores.named, width);
  }
  return !open("prompt_token_ids", fields.tokens.return_ids) ||
         write_list(piece, entry_, prompt.size(),
                    [&](std::string& text, std::size_t at) { text += std::to_string(prompt[at]); });
}

std::string GenerateReply::next_piece(const serving::Transcript& transcript) {
  std::string piece;
  if (part_ == Part::end) return piece;
  if (!std::exchange(begun_, true))
    piece = cat("{\"request_id\":", json::string_literal(head_.id), ",\"created\":", head_.created,
                ",\"model\":", json::string_literal(head_.model), ",\"output_mode\":\"",
                request_.with_text ? "text" : "tokens", "\",\"choices\":[");
  while (part_ != Part::end) {
    if (piece.size() >= piece_bytes || !write_part(piece, transcript)) return piece;
    part_ = next_part();
  }
  return piece += ends_of_body(transcript);
}

std::string GenerateReply::events(const serving::ChoiceUpdate& update,
                                  const serving::Transcript& transcript) {
  choices_[update.index].drawn += std::ssize(update.piece.tokens);
  const bool has_text = request_.with_text && !update.piece.text.empty();
  if (update.piece.tokens.empty() && !has_text && !update.end) return {};
  Choice news{.text = update.piece.text, .drawn = choices_[update.index].drawn, .end = update.end};
  news.tokens.append(update.piece, top());
  if (update.end) news.stop_reason = stop_reason(update);
  std::string event =
      cat("data: {\"request_id\":", json::string_literal(head_.id), ",\"output_mode\":\"",
          request_.with_text ? "text" : "tokens", "\",\"choices\":[", opening(update.index, news),
          id_list(news.tokens.ids()));
  event += with_logprobs() ? ",\"logprobs\":{\"content\":[" : ",\"logprobs\":null";
  for (std::size_t i = 0; with_logprobs() && i < news.tokens.size(); ++i) {
    if (i > 0) event += ',';
    append_score(event, news.tokens, i);
  }
  if (with_logprobs()) event += "]}";
  ListPlace place;
  for (bool whole = false; !whole;) {
    std::string piece;
    whole = write_experts(piece, place, update.index, update.end.has_value(), transcript);
    event += piece;
  }
  event += cat(closing(update.index, news, transcript), "]");
  if (request_.fields.tokens.return_ids && !std::exchange(sent_prompt_, true))
    event += cat(",\"prompt_token_ids\":", id_list(request_.tokens));
  const engine::Usage usage{.prompt_tokens = std::ssize(request_.tokens),
                            .completion_tokens = news.drawn};
  if (head_.continuous_usage) event += cat(",\"usage\":", json::write(usage_object(usage)));
  event += "}\n\n";
  if (update.end) add_version(event, transcript);
  return event;
}

std::string GenerateReply::last_events(const serving::Transcript& transcript) {
  if (!head_.include_usage) return std::string(last_server_event);
  return cat("data: {\"request_id\":", json::string_literal(head_.id), ",\"output_mode\":\"",
             request_.with_text ? "text" : "tokens", "\",\"choices\":[]", ends_of_body(transcript),
             "\n\n", last_server_event);
}

}  // namespace motley::server
