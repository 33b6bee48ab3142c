#include "server/api/chat_reply.h"

#include <utility>

#include "base/cat.h"
#include "server/http/message.h"

namespace motley::server {
namespace {

json::Object call_object(const CallPiece& piece) {
  json::Object function;
  if (piece.begins) function.add("name", piece.name);
  function.add("arguments", piece.arguments);
  json::Object object;
  if (piece.begins) {
    object.add("id", cat("call_", new_request_id().substr(0, 24)));
    object.add("type", "function");
  }
  object.add("function", std::move(function));
  return object;
}

}  // namespace

ChatReply::ChatReply(ReplyHead head, const ChatCompletionRequest& request,
                     const text::Tokenizer& tokenizer,
                     std::vector<std::unique_ptr<OutputParser>> parsers)
    : head_(std::move(head)), request_(request), tokenizer_(tokenizer) {
  for (auto& parser : parsers) choices_.push_back({.parser = std::move(parser)});
}

ParsedOutput ChatReply::parse(Choice& choice, const ChoiceUpdate& update) {
  ParsedOutput output = choice.parser->push(update.piece.text);
  if (update.end) output.append(choice.parser->finish());
  return output;
}

json::Value ChatReply::token_object(std::int32_t id, float logprob) const {
  json::Array bytes;
  for (const char byte : tokenizer_.bytes_of(id))
    bytes.emplace_back(static_cast<int>(static_cast<unsigned char>(byte)));
  json::Object object;
  object.add("token", token_text(tokenizer_, id));
  object.add("logprob", finite_logprob(logprob));
  object.add("bytes", std::move(bytes));
  return object;
}

json::Array ChatReply::logprobs_of(const ChoiceUpdate& update) const {
  json::Array list;
  if (!request_.fields.sampling.logprobs) return list;
  for (const SampledToken& token : update.piece.tokens) {
    json::Array top;
    for (const engine::TopLogprob& each : token.top)
      top.push_back(token_object(each.token, each.logprob));
    json::Value object = token_object(token.id, token.logprob);
    json::Object with_top = *object.if_object();
    with_top.add("top_logprobs", std::move(top));
    list.emplace_back(std::move(with_top));
  }
  return list;
}

json::Value ChatReply::finish_reason(const Choice& choice, std::optional<EndOfChoice> end) const {
  if (!end) return nullptr;
  // As OpenAI has it: a call that was asked for by name is no decision of the model's.
  if (*end == EndOfChoice::stop && choice.calls > 0 && request_.tool_use != ToolUse::one_named)
    return "tool_calls";
  return name(*end);
}

void ChatReply::keep(const ChoiceUpdate& update) {
  Choice& choice = choices_[update.index];
  ParsedOutput output = parse(choice, update);
  for (const CallPiece& piece : output.calls) choice.calls += piece.begins ? 1 : 0;
  choice.output.append(std::move(output));
  for (json::Value& each : logprobs_of(update)) choice.logprobs.push_back(std::move(each));
  if (update.end) choice.end = update.end;
}

std::string ChatReply::whole(const Transcript& transcript) {
  json::Array list;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    json::Object message;
    message.add("role", "assistant");
    const bool only_calls = choice.output.content.empty() && !choice.output.calls.empty();
    message.add("content", only_calls ? json::Value() : json::Value(choice.output.content));
    if (!choice.output.reasoning.empty()) message.add("reasoning_content", choice.output.reasoning);
    if (!choice.output.calls.empty()) {
      json::Array calls;
      for (const CallPiece& call : choice.output.calls) calls.emplace_back(call_object(call));
      message.add("tool_calls", std::move(calls));
    }
    json::Object object;
    object.add("index", static_cast<std::int64_t>(i));
    object.add("message", std::move(message));
    if (request_.fields.sampling.logprobs) {
      json::Object logprobs;
      logprobs.add("content", std::move(choice.logprobs));
      object.add("logprobs", std::move(logprobs));
    } else {
      object.add("logprobs", nullptr);
    }
    object.add("finish_reason", finish_reason(choice, choice.end));
    list.emplace_back(std::move(object));
  }
  json::Object reply = head_.begin("chat.completion");
  reply.add("choices", std::move(list));
  reply.add("usage", usage_object(transcript.counts()));
  return json::write(reply);
}

std::string ChatReply::chunk(std::size_t index, json::Object delta, json::Array logprobs,
                             json::Value finish) const {
  json::Object choice;
  choice.add("index", static_cast<std::int64_t>(index));
  choice.add("delta", std::move(delta));
  if (request_.fields.sampling.logprobs && !logprobs.empty()) {
    json::Object object;
    object.add("content", std::move(logprobs));
    choice.add("logprobs", std::move(object));
  } else {
    choice.add("logprobs", nullptr);
  }
  choice.add("finish_reason", std::move(finish));
  json::Object reply = head_.begin("chat.completion.chunk");
  reply.add("choices", json::Array{std::move(choice)});
  if (head_.include_usage) reply.add("usage", nullptr);
  return server_event(reply);
}

std::string ChatReply::events(const ChoiceUpdate& update, const Transcript&) {
  Choice& choice = choices_[update.index];
  std::string events;
  if (!choice.begun) {
    choice.begun = true;
    json::Object delta;
    delta.add("role", "assistant");
    delta.add("content", "");
    events += chunk(update.index, std::move(delta), {}, nullptr);
  }
  const ParsedOutput output = parse(choice, update);
  json::Array logprobs = logprobs_of(update);
  json::Object delta;
  if (!output.reasoning.empty()) delta.add("reasoning_content", output.reasoning);
  if (!output.content.empty()) delta.add("content", output.content);
  if (!output.calls.empty()) {
    json::Array calls;
    for (const CallPiece& piece : output.calls) {
      choice.calls += piece.begins ? 1 : 0;
      json::Object call;
      call.add("index", static_cast<std::int64_t>(choice.calls) - 1);
      const json::Object body = call_object(piece);
      for (const json::Member& member : body.members()) call.add(member.key, member.value);
      calls.emplace_back(std::move(call));
    }
    delta.add("tool_calls", std::move(calls));
  }
  // What ends a choice says nothing itself: its log-probability goes with the reason.
  const bool with_end = delta.empty() && update.end;
  if (!with_end && (!delta.empty() || !logprobs.empty()))
    events += chunk(update.index, std::move(delta), std::exchange(logprobs, {}), nullptr);
  if (update.end)
    events +=
        chunk(update.index, json::Object(), std::move(logprobs), finish_reason(choice, update.end));
  return events;
}

std::string ChatReply::last_events(const Transcript& transcript) {
  std::string events;
  if (head_.include_usage) {
    json::Object chunk = head_.begin("chat.completion.chunk");
    chunk.add("choices", json::Array{});
    chunk.add("usage", usage_object(transcript.counts()));
    events = server_event(chunk);
  }
  return events += last_server_event;
}

}  // namespace motley::server
