#include "server/api/completions/completion_reply.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/utf8.h"
#include "server/api/fields/npy_text.h"
#include "server/api/fields/routed_fields.h"

namespace motley::server {
namespace {

// Tokens of an echoed prompt in one event.
constexpr std::size_t echoed_per_event = 1024;

std::string finish_of(std::optional<engine::FinishReason> end) {
  return end ? cat("\"", name(*end), "\"") : std::string("null");
}

}  // namespace

std::string_view CompletionReply::name(IdList list) {
  switch (list) {
    case IdList::prompt_token_ids:
      return "prompt_token_ids";
    case IdList::token_ids:
      return "token_ids";
    case IdList::prompt_logprobs:
      return "prompt_logprobs";
    case IdList::prompt_token_id_logprobs:
      break;
  }
  return "prompt_token_id_logprobs";
}

CompletionReply::CompletionReply(ReplyHead head, CompletionRequest request,
                                 const text::Tokenizer& tokenizer)
    : head_(std::move(head)),
      request_(std::move(request)),
      tokenizer_(tokenizer),
      choices_(request_.prompts.size() * static_cast<std::size_t>(request_.fields.choices)) {
  for (const auto& prompt : request_.prompts)
    prompt_characters_.push_back(
        echoes_logprobs() ? utf8::count(tokenizer.decode(prompt.tokens, prompt.decoded)) : 0);
  if (request_.fields.tokens.return_ids) id_lists_ = {IdList::prompt_token_ids, IdList::token_ids};
  if (request_.fields.prompt_top) id_lists_.push_back(IdList::prompt_logprobs);
  if (request_.fields.prompt_named.width > 0) id_lists_.push_back(IdList::prompt_token_id_logprobs);
}

PromptTokens& CompletionReply::echoed(std::size_t prompt) {
  if (echoed_prompt_ != prompt) {
    echoed_prompt_ = prompt;
    echoed_.emplace(request_.prompts[prompt],
                    static_cast<std::size_t>(request_.fields.sampling.top_logprobs), tokenizer_,
                    request_.fields.tokens.as_ids);
  }
  return *echoed_;
}

ScoredToken CompletionReply::sampled(std::size_t index, const KeptTokens& tokens,
                                     std::size_t at) const {
  return {.id = tokens.id(at),
          .logprob = tokens.logprob(at),
          .top = tokens.top(at),
          .offset = prompt_characters_[prompt_of(index)] + tokens.offset(at)};
}

std::string CompletionReply::text_of(std::size_t index, std::string_view text) const {
  return json::string_literal(request_.echo ? cat(request_.prompts[prompt_of(index)].text, text)
                                            : text);
}

void CompletionReply::keep(const serving::ChoiceUpdate& update) {
  Choice& choice = choices_[update.index];
  kept_bytes_ -= choice.text.capacity() + choice.tokens.bytes();
  choice.text += update.piece.text;
  if (keeps_tokens()) choice.tokens.append(update.piece, top());
  if (update.end) choice.end = update.end;
  kept_bytes_ += choice.text.capacity() + choice.tokens.bytes();
}

void CompletionReply::open_choice(std::string& piece) {
  const Choice& choice = choices_[place_.choice];
  if (place_.choice > 0) piece += ',';
  piece += cat("{\"index\":", place_.choice, ",\"text\":", text_of(place_.choice, choice.text),
               ",\"logprobs\":", with_logprobs() ? "{" : "null");
  place_.inside = true;
  place_.list = with_logprobs() ? 0 : logprob_lists.size();
}

std::string CompletionReply::versions_of(std::size_t index,
                                         const serving::Transcript& transcript) const {
  return version_members(transcript, index, request_.fields.tokens.return_ids,
                         request_.fields.adapters);
}

void CompletionReply::close_choice(std::string& piece, const serving::Transcript& transcript) {
  Choice& choice = choices_[place_.choice];
  piece += cat(versions_of(place_.choice, transcript), ",\"finish_reason\":", finish_of(choice.end),
               "}");
  choice = {};
  ++place_.choice;
  place_.inside = false;
}

bool CompletionReply::write_logprobs(std::string& piece, const serving::Transcript& transcript) {
  const Choice& choice = choices_[place_.choice];
  const std::size_t number = prompt_of(place_.choice);
  const std::size_t echoed_tokens = request_.echo ? request_.prompts[number].tokens.size() : 0;
  const engine::PromptEvent& scores = transcript.prompt_scores()[number];
  for (; place_.list < logprob_lists.size(); ++place_.list) {
    const LogprobList list = logprob_lists[place_.list];
    if (!place_.entry.open) {
      piece += cat(place_.list > 0 ? "," : "", "\"", server::name(list), "\":");
      const std::string* const written =
          echoed_tokens > 0 ? echoed(number).written(list, scores) : nullptr;
      if (written != nullptr) {
        piece += cat("[", *written);
        place_.entry = {.entry = echoed_tokens, .open = true};
      }
    }
    const auto append = [&](std::string& text, std::size_t at) {
      append_entry(text, list,
                   at < echoed_tokens ? echoed(number).token(at, scores)
                                      : sampled(place_.choice, choice.tokens, at - echoed_tokens),
                   tokenizer_, request_.fields.tokens.as_ids);
    };
    if (!write_list(piece, place_.entry, echoed_tokens + choice.tokens.size(), append))
      return false;
    if (place_.list + 1 == logprob_lists.size()) piece += '}';
  }
  return true;
}

bool CompletionReply::write_ids(std::string& piece, const serving::Transcript& transcript) {
  const std::size_t number = prompt_of(place_.choice);
  const std::span<const std::int32_t> prompt = request_.prompts[number].tokens;
  const KeptTokens& tokens = choices_[place_.choice].tokens;
  const auto prompt_top = static_cast<std::size_t>(request_.fields.prompt_top.value_or(0));
  for (; place_.list - logprob_lists.size() < id_lists_.size(); ++place_.list) {
    const IdList list = id_lists_[place_.list - logprob_lists.size()];
    if (!place_.entry.open) piece += cat(",\"", name(list), "\":");
    if (list == IdList::prompt_token_id_logprobs) {
      if (!write_npy(piece, place_.entry, transcript.prompt_scores()[number].named,
                     static_cast<std::size_t>(request_.fields.prompt_named.width)))
        return false;
      continue;
    }
    const auto append = [&](std::string& text, std::size_t at) {
      if (list == IdList::prompt_logprobs)
        append_prompt_entry(text, prompt, at, transcript.prompt_scores()[number], prompt_top,
                            tokenizer_);
      else
        text += std::to_string(list == IdList::token_ids ? tokens.id(at) : prompt[at]);
    };
    const std::size_t size = list == IdList::token_ids ? tokens.size() : prompt.size();
    if (!write_list(piece, place_.entry, size, append)) return false;
  }
  return true;
}

bool CompletionReply::write_experts(std::string& piece, const serving::Transcript& transcript) {
  const engine::RoutedExpertsSizes& sizes = request_.fields.routed_experts;
  if (!sizes.kept()) return true;
  if (!place_.entry.open) piece += ",\"routed_experts\":";
  return write_routed(piece, place_.entry, transcript, place_.choice, sizes);
}

std::string CompletionReply::next_piece(const serving::Transcript& transcript) {
  std::string piece;
  if (ended_) return piece;
  if (!std::exchange(begun_, true)) piece = head_.open("text_completion");
  while (place_.choice < choices_.size()) {
    if (piece.size() >= piece_bytes) return piece;
    if (!place_.inside) open_choice(piece);
    if (!write_logprobs(piece, transcript) || !write_ids(piece, transcript) ||
        !write_experts(piece, transcript))
      return piece;
    close_choice(piece, transcript);
  }
  ended_ = true;
  return piece += ReplyHead::close(transcript);
}

std::string CompletionReply::event(const News& news, std::size_t first, std::size_t last,
                                   const serving::Transcript& transcript) {
  const std::size_t number = prompt_of(news.index);
  const engine::PromptEvent& scores = transcript.prompt_scores()[number];
  const bool opens = !std::exchange(choices_[news.index].begun, true);
  const bool echoes = opens && request_.echo;
  std::string text;
  json::append_string(text, echoes ? cat(request_.prompts[number].text, news.text) : news.text);
  std::string choice = cat("{\"index\":", news.index, ",\"text\":", text, ",\"logprobs\":");
  for (std::size_t i = 0; with_logprobs() && i < logprob_lists.size(); ++i) {
    choice += cat(i == 0 ? "{" : ",", "\"", server::name(logprob_lists[i]), "\":[");
    const std::size_t begin = choice.size();
    const auto add = [&](const ScoredToken& token) {
      if (choice.size() > begin) choice += ',';
      append_entry(choice, logprob_lists[i], token, tokenizer_, request_.fields.tokens.as_ids);
    };
    for (std::size_t at = first; at < last; ++at) add(echoed(number).token(at, scores));
    for (std::size_t at = 0; at < news.tokens.size(); ++at)
      add(sampled(news.index, news.tokens, at));
    choice += ']';
  }
  choice += with_logprobs() ? "}" : "null";
  if (request_.fields.tokens.return_ids) {
    if (opens) choice += cat(",\"prompt_token_ids\":", id_list(request_.prompts[number].tokens));
    choice += cat(",\"token_ids\":", id_list(news.tokens.ids()));
  }
  if (news.end) choice += versions_of(news.index, transcript);
  choice += cat(",\"finish_reason\":", finish_of(news.end), "}");
  std::string event = head_.event("text_completion", choice,
                                  {.prompt_tokens = std::ssize(request_.prompts[number].tokens),
                                   .completion_tokens = choices_[news.index].drawn});
  if (news.end) add_version(event, transcript);
  return event;
}

std::string CompletionReply::events(const serving::ChoiceUpdate& update,
                                    const serving::Transcript& transcript) {
  News news{.index = update.index, .text = update.piece.text, .end = update.end};
  if (keeps_tokens()) news.tokens.append(update.piece, top());
  choices_[update.index].drawn += static_cast<std::int64_t>(update.piece.tokens.size());
  const bool opens = !choices_[update.index].begun;
  const CompletionRequest::Prompt& prompt = request_.prompts[prompt_of(update.index)];
  const std::size_t echoed_tokens = opens && echoes_logprobs() ? prompt.tokens.size() : 0;
  if (echoed_tokens > echoed_per_event) {
    held_ = std::move(news);
    return {};
  }
  const bool echoes_text = opens && request_.echo && !prompt.text.empty();
  const bool tells_ids = opens && request_.fields.tokens.return_ids;
  const bool says = echoes_text || tells_ids || echoed_tokens > 0 || !news.text.empty() ||
                    news.tokens.size() > 0 || news.end;
  if (says) return event(news, 0, echoed_tokens, transcript);
  choices_[update.index].begun = true;
  return {};
}

std::string CompletionReply::more_events(const serving::Transcript& transcript) {
  if (!held_) return {};
  const std::size_t first = held_->next_echoed;
  const std::size_t size = request_.prompts[prompt_of(held_->index)].tokens.size();
  if (first + echoed_per_event < size) {
    held_->next_echoed = first + echoed_per_event;
    return event({.index = held_->index}, first, held_->next_echoed, transcript);
  }
  const News news = *std::exchange(held_, std::nullopt);
  return event(news, first, size, transcript);
}

std::string CompletionReply::last_events(const serving::Transcript& transcript) {
  return head_.last_events("text_completion", transcript);
}

}  // namespace motley::server
