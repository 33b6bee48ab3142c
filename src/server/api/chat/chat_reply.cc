#include "server/api/chat/chat_reply.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/system/random_id.h"
#include "server/api/fields/npy_text.h"
#include "server/api/fields/routed_fields.h"
#include "server/http/messages/message.h"

namespace motley::server {
namespace {

json::Object function_object(const serving::CallPiece& piece) {
  json::Object function;
  if (piece.begins) function.add("name", piece.name);
  function.add("arguments", piece.arguments);
  return function;
}

json::Object call_object(const serving::CallPiece& piece) {
  json::Object function = function_object(piece);
  json::Object object;
  if (piece.begins) {
    object.add("id", piece.id.empty() ? cat("call_", random_id().substr(0, 24)) : piece.id);
    object.add("type", "function");
  }
  object.add("function", std::move(function));
  return object;
}

}  // namespace

ChatReply::ChatReply(ReplyHead head, ChatCompletionRequest request,
                     const text::Tokenizer& tokenizer,
                     std::vector<std::unique_ptr<serving::OutputParser>> parsers)
    : head_(std::move(head)), request_(std::move(request)), tokenizer_(tokenizer) {
  for (auto& parser : parsers) choices_.push_back({.parser = std::move(parser)});
}

serving::ParsedOutput ChatReply::parse(Choice& choice, const serving::ChoiceUpdate& update) const {
  serving::ParsedOutput output = choice.parser->push(update.piece.text);
  if (update.end) output.append(choice.parser->finish());
  if (!request_.include_reasoning) output.drop_reasoning();
  return output;
}

json::Array ChatReply::logprobs_of(const serving::ChoiceUpdate& update) const {
  json::Array list;
  if (!with_logprobs()) return list;
  for (const engine::TokenEvent& token : update.piece.tokens)
    list.emplace_back(scored_token(tokenizer_, token.id, token.logprob,
                                   std::span(token.top).first(std::min(token.top.size(), top())),
                                   listing_of(request_.fields)));
  return list;
}

json::Value ChatReply::finish_reason(const Choice& choice,
                                     std::optional<engine::FinishReason> end) const {
  if (!end) return nullptr;
  // As in OpenAI's API: a call that was requested by name is not the model's decision.
  if (*end == engine::FinishReason::stop && choice.calls > 0 &&
      request_.tool_use != serving::ToolUse::one_named)
    return request_.old_functions ? "function_call" : "tool_calls";
  return name(*end);
}

void ChatReply::keep(const serving::ChoiceUpdate& update) {
  Choice& choice = choices_[update.index];
  kept_bytes_ -= choice.tokens.bytes();
  serving::ParsedOutput output = parse(choice, update);
  kept_bytes_ += output.content.size() + output.reasoning.size() +
                 output.order.size() * sizeof(serving::ParsedOutput::Run);
  for (const serving::CallPiece& piece : output.calls) {
    choice.calls += piece.begins ? 1 : 0;
    kept_bytes_ += sizeof(serving::CallPiece) + piece.name.size() + piece.arguments.size();
  }
  choice.output.append(output);
  if (with_logprobs() || with_ids()) choice.tokens.append(update.piece, top());
  if (update.end) choice.end = update.end;
  kept_bytes_ += choice.tokens.bytes();
}

json::Object ChatReply::message_of(const Choice& choice) const {
  json::Object message{{"role", "assistant"}};
  std::string content = cat(request_.echoed, choice.output.content);
  const bool only_calls = content.empty() && !choice.output.calls.empty();
  message.add("content", only_calls ? json::Value() : json::Value(std::move(content)));
  if (!choice.output.reasoning.empty()) message.add("reasoning_content", choice.output.reasoning);
  if (choice.output.calls.empty()) return message;
  if (request_.old_functions) {
    message.add("function_call", function_object(choice.output.calls.front()));
    return message;
  }
  json::Array calls;
  for (const serving::CallPiece& call : choice.output.calls) calls.emplace_back(call_object(call));
  message.add("tool_calls", std::move(calls));
  return message;
}

void ChatReply::open_choice(std::string& piece) {
  piece += cat(choice_ > 0 ? "," : "", "{\"index\":", choice_,
               ",\"message\":", json::write(message_of(choices_[choice_])),
               ",\"logprobs\":", with_logprobs() ? "{\"content\":" : "null");
  inside_ = true;
  list_ = with_logprobs() ? 0 : 1;
}

bool ChatReply::write_choice_lists(std::string& piece, const serving::Transcript& transcript) {
  const KeptTokens& tokens = choices_[choice_].tokens;
  if (list_ == 0) {
    const auto append = [&](std::string& text, std::size_t at) {
      text += json::write(scored_token(tokenizer_, tokens.id(at), tokens.logprob(at),
                                       tokens.top(at), listing_of(request_.fields)));
    };
    if (!write_list(piece, entry_, tokens.size(), append)) return false;
    piece += '}';
    ++list_;
  }
  if (list_ == 1 && with_ids()) {
    if (!entry_.open) piece += ",\"token_ids\":";
    const auto append = [&](std::string& text, std::size_t at) {
      text += std::to_string(tokens.id(at));
    };
    if (!write_list(piece, entry_, tokens.size(), append)) return false;
  }
  list_ = 2;
  const engine::RoutedExpertsSizes& experts = request_.fields.routed_experts;
  if (!experts.kept()) return true;
  if (!entry_.open) piece += ",\"routed_experts\":";
  return write_routed(piece, entry_, transcript, choice_, experts);
}

void ChatReply::close_choice(std::string& piece, const serving::Transcript& transcript) {
  Choice& choice = choices_[choice_];
  piece += cat(versions_of(choice_, transcript),
               ",\"finish_reason\":", json::write(finish_reason(choice, choice.end)), "}");
  choice = {};
  inside_ = false;
  ++choice_;
  list_ = 0;
}

bool ChatReply::write_prompt_lists(std::string& piece, const serving::Transcript& transcript) {
  const auto& prompt = request_.prompt_tokens;
  const GenerationFields& fields = request_.fields;
  if (list_ == 0 && with_ids()) {
    if (!entry_.open) piece += ",\"prompt_token_ids\":";
    if (!write_list(piece, entry_, prompt.size(),
                    [&](std::string& text, std::size_t at) { text += std::to_string(prompt[at]); }))
      return false;
  }
  list_ = std::max<std::size_t>(list_, 1);
  const engine::PromptEvent& scores = transcript.prompt_scores()[0];
  if (list_ == 1 && fields.prompt_top) {
    if (!entry_.open) piece += ",\"prompt_logprobs\":";
    const auto append = [&](std::string& text, std::size_t at) {
      append_prompt_entry(text, prompt, at, scores, static_cast<std::size_t>(*fields.prompt_top),
                          tokenizer_);
    };
    if (!write_list(piece, entry_, prompt.size(), append)) return false;
  }
  list_ = 2;
  if (fields.prompt_named.width == 0) return true;
  if (!entry_.open) piece += ",\"prompt_token_id_logprobs\":";
  return write_npy(piece, entry_, scores.named,
                   static_cast<std::size_t>(fields.prompt_named.width));
}

std::string ChatReply::next_piece(const serving::Transcript& transcript) {
  std::string piece;
  if (ended_) return piece;
  if (!std::exchange(begun_, true)) piece = head_.open("chat.completion");
  while (choice_ < choices_.size()) {
    if (piece.size() >= piece_bytes) return piece;
    if (!inside_) open_choice(piece);
    if (!write_choice_lists(piece, transcript)) return piece;
    close_choice(piece, transcript);
    if (choice_ == choices_.size()) piece += ']';
  }
  if (!write_prompt_lists(piece, transcript)) return piece;
  ended_ = true;
  return piece += ends_of_body(transcript);
}

std::string ChatReply::chunk(std::size_t index, json::Object delta, json::Array logprobs,
                             json::Value finish, std::optional<json::Array> ids,
                             std::string_view more) const {
  json::Object choice{{"index", static_cast<std::int64_t>(index)}, {"delta", std::move(delta)}};
  if (with_logprobs() && !logprobs.empty()) {
    json::Object object{{"content", std::move(logprobs)}};
    choice.add("logprobs", std::move(object));
  } else {
    choice.add("logprobs", nullptr);
  }
  choice.add("finish_reason", std::move(finish));
  if (with_ids() && ids) choice.add("token_ids", *std::move(ids));
  std::string text = json::write(choice);
  text.insert(text.size() - 1, more);
  return head_.event(
      "chat.completion.chunk", text,
      {.prompt_tokens = head_.prompt_tokens, .completion_tokens = choices_[index].drawn});
}

std::string ChatReply::events(const serving::ChoiceUpdate& update,
                              const serving::Transcript& transcript) {
  Choice& choice = choices_[update.index];
  std::string events;
  if (!choice.begun) {
    choice.begun = true;
    json::Object delta{{"role", "assistant"}, {"content", ""}};
    events += chunk(update.index, std::move(delta), {}, nullptr, std::nullopt);
    if (with_ids()) add_to_event(events, "prompt_token_ids", id_list(request_.prompt_tokens));
    if (!request_.echoed.empty()) {
      json::Object echo{{"content", request_.echoed}};
      events += chunk(update.index, std::move(echo), {}, nullptr, std::nullopt);
    }
  }
  choice.drawn += static_cast<std::int64_t>(update.piece.tokens.size());
  const serving::ParsedOutput output = parse(choice, update);
  json::Array logprobs = logprobs_of(update);
  json::Array ids;
  if (with_ids()) {
    for (const engine::TokenEvent& token : update.piece.tokens) ids.emplace_back(token.id);
  }
  json::Object delta;
  if (!output.reasoning.empty()) delta.add("reasoning_content", output.reasoning);
  if (!output.content.empty()) delta.add("content", output.content);
  if (!output.calls.empty()) {
    json::Array calls;
    for (const serving::CallPiece& piece : output.calls) {
      choice.calls += piece.begins ? 1 : 0;
      if (request_.old_functions) {
        if (choice.calls == 1) delta.add("function_call", function_object(piece));
        break;
      }
      json::Object call{{"index", static_cast<std::int64_t>(choice.calls) - 1}};
      const json::Object body = call_object(piece);
      for (const json::Member& member : body.members()) call.add(member.key, member.value);
      calls.emplace_back(std::move(call));
    }
    if (!calls.empty()) delta.add("tool_calls", std::move(calls));
  }
  // The token that ends a choice has no text: its log-probability is sent with the reason.
  const bool with_end = delta.empty() && update.end;
  if (!with_end && (!delta.empty() || !logprobs.empty() || !ids.empty()))
    events += chunk(update.index, std::move(delta), std::exchange(logprobs, {}), nullptr,
                    std::exchange(ids, {}));
  if (update.end) {
    events +=
        chunk(update.index, json::Object(), std::move(logprobs), finish_reason(choice, update.end),
              std::move(ids), versions_of(update.index, transcript));
    add_version(events, transcript);
  }
  return events;
}

std::string ChatReply::last_events(const serving::Transcript& transcript) {
  return head_.last_events("chat.completion.chunk", transcript);
}

}  // namespace motley::server
