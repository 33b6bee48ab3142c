#include "server/api/completion_reply.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "text/stream_decoder.h"

namespace motley::server {
namespace {

std::int64_t count_characters(std::string_view utf8) {
  return std::ranges::count_if(
      utf8, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

}  // namespace

CompletionReply::CompletionReply(ReplyHead head, const CompletionRequest& request,
                                 const text::Tokenizer& tokenizer)
    : head_(std::move(head)),
      request_(request),
      tokenizer_(tokenizer),
      choices_(request.prompts.size() * static_cast<std::size_t>(request.fields.choices)) {
  const bool counted = request.echo && request.fields.sampling.logprobs;
  for (const auto& prompt : request.prompts)
    prompt_characters_.push_back(counted ? count_characters(tokenizer.decode(prompt.tokens, false))
                                         : 0);
}

const CompletionRequest::Prompt& CompletionReply::prompt_of(std::size_t index) const {
  return request_.prompts[index / static_cast<std::size_t>(request_.fields.choices)];
}

json::Value CompletionReply::top_object(std::span<const engine::TopLogprob> top, std::int32_t token,
                                        float logprob) const {
  json::Object object;
  const auto add = [&](std::int32_t id, float value) {
    // Different tokens may read the same where they are parts of characters.
    std::string text = token_text(tokenizer_, id);
    if (!object.contains(text)) object.add(std::move(text), finite_logprob(value));
  };
  for (const engine::TopLogprob& each : top) add(each.token, each.logprob);
  add(token, logprob);
  return object;
}

void CompletionReply::add_tokens(const ChoiceUpdate& update, Logprobs& into) const {
  if (!request_.fields.sampling.logprobs) return;
  const std::size_t prompt = update.index / static_cast<std::size_t>(request_.fields.choices);
  const std::int64_t before = prompt_characters_[prompt];
  for (std::size_t i = 0; i < update.piece.tokens.size(); ++i) {
    const SampledToken& token = update.piece.tokens[i];
    into.tokens.emplace_back(token_text(tokenizer_, token.id));
    into.logprobs.emplace_back(finite_logprob(token.logprob));
    into.top.push_back(top_object(token.top, token.id, token.logprob));
    into.offsets.emplace_back(before + update.piece.offsets[i]);
  }
}

void CompletionReply::add_prompt(std::size_t index, const Transcript& transcript, std::string& text,
                                 Logprobs& into) const {
  const CompletionRequest::Prompt& prompt = prompt_of(index);
  text += prompt.text;
  if (!request_.fields.sampling.logprobs) return;
  const std::size_t number = index / static_cast<std::size_t>(request_.fields.choices);
  const PromptScores& scores = transcript.prompt_scores()[number];
  const auto width = static_cast<std::size_t>(request_.fields.sampling.top_logprobs);
  // Special tokens count as they are written in the list of tokens, echoed or not.
  text::StreamDecoder decoder(tokenizer_, false);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < prompt.tokens.size(); ++i) {
    const std::int32_t id = prompt.tokens[i];
    into.tokens.emplace_back(token_text(tokenizer_, id));
    into.offsets.emplace_back(offset);
    offset += count_characters(decoder.push(id));
    // The first token has nothing before it that could foretell it.
    const std::size_t at = i - static_cast<std::size_t>(scores.first);
    if (i < static_cast<std::size_t>(scores.first) || at >= scores.logprobs.size()) {
      into.logprobs.emplace_back();
      into.top.emplace_back();
      continue;
    }
    into.logprobs.emplace_back(finite_logprob(scores.logprobs[at]));
    const auto top = std::span(scores.top).subspan(at * width, width);
    into.top.push_back(top_object(top, id, scores.logprobs[at]));
  }
}

json::Object CompletionReply::choice_object(std::size_t index, std::string text, Logprobs logprobs,
                                            std::optional<EndOfChoice> end) const {
  json::Object choice;
  choice.add("index", static_cast<std::int64_t>(index));
  choice.add("text", std::move(text));
  if (request_.fields.sampling.logprobs) {
    json::Object lists;
    lists.add("tokens", std::move(logprobs.tokens));
    lists.add("token_logprobs", std::move(logprobs.logprobs));
    lists.add("top_logprobs", std::move(logprobs.top));
    lists.add("text_offset", std::move(logprobs.offsets));
    choice.add("logprobs", std::move(lists));
  } else {
    choice.add("logprobs", nullptr);
  }
  choice.add("finish_reason", end ? json::Value(name(*end)) : json::Value());
  return choice;
}

void CompletionReply::keep(const ChoiceUpdate& update) {
  Choice& choice = choices_[update.index];
  choice.text += update.piece.text;
  add_tokens(update, choice.logprobs);
  if (update.end) choice.end = update.end;
}

std::string CompletionReply::whole(const Transcript& transcript) {
  json::Array list;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    std::string text;
    Logprobs logprobs;
    if (request_.echo) add_prompt(i, transcript, text, logprobs);
    text += choices_[i].text;
    const auto append_list = [](json::Array& to, json::Array& from) {
      to.insert(to.end(), std::make_move_iterator(from.begin()),
                std::make_move_iterator(from.end()));
    };
    append_list(logprobs.tokens, choices_[i].logprobs.tokens);
    append_list(logprobs.logprobs, choices_[i].logprobs.logprobs);
    append_list(logprobs.top, choices_[i].logprobs.top);
    append_list(logprobs.offsets, choices_[i].logprobs.offsets);
    list.emplace_back(choice_object(i, std::move(text), std::move(logprobs), choices_[i].end));
  }
  json::Object reply = head_.begin("text_completion");
  reply.add("choices", std::move(list));
  reply.add("usage", usage_object(transcript.counts()));
  return json::write(reply);
}

std::string CompletionReply::events(const ChoiceUpdate& update, const Transcript& transcript) {
  Choice& choice = choices_[update.index];
  std::string text;
  Logprobs logprobs;
  if (request_.echo && !choice.begun) add_prompt(update.index, transcript, text, logprobs);
  choice.begun = true;
  text += update.piece.text;
  add_tokens(update, logprobs);
  if (text.empty() && logprobs.tokens.empty() && !update.end) return {};
  json::Object chunk = head_.begin("text_completion");
  chunk.add("choices", json::Array{choice_object(update.index, std::move(text), std::move(logprobs),
                                                 update.end)});
  if (head_.include_usage) chunk.add("usage", nullptr);
  return server_event(chunk);
}

std::string CompletionReply::last_events(const Transcript& transcript) {
  std::string events;
  if (head_.include_usage) {
    json::Object chunk = head_.begin("text_completion");
    chunk.add("choices", json::Array{});
    chunk.add("usage", usage_object(transcript.counts()));
    events = server_event(chunk);
  }
  return events += last_server_event;
}

}  // namespace motley::server
