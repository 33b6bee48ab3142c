#include "server/api/messages/reply.h"

#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/system/random_id.h"
#include "server/api/messages/error.h"
#include "server/api/reply_parts.h"
#include "server/http/messages/message.h"
#include "serving/forms/tag_search.h"

namespace motley::server {
namespace {

// `input_tokens` does not include input that was read from the cache; the three add up to the
// prompt.
json::Object usage_of(const engine::Usage& usage, std::int64_t output_tokens) {
  return json::Object{{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
                      {"cache_creation_input_tokens", 0},
                      {"cache_read_input_tokens", usage.cached_tokens},
                      {"output_tokens", output_tokens}};
}

std::string_view type_of(serving::OutputKind kind) {
  switch (kind) {
    case serving::OutputKind::reasoning:
      return "thinking";
    case serving::OutputKind::content:
      return "text";
    case serving::OutputKind::call:
      return "tool_use";
  }
  MOTLEY_CHECK(false, "a kind of output without a block");
}

// A whole block; the text of a call is JSON.
std::string block_json(serving::OutputKind kind, const serving::CallPiece& call,
                       std::string_view text) {
  const std::string head = cat("{\"type\":\"", type_of(kind), "\",");
  switch (kind) {
    case serving::OutputKind::reasoning:
      return cat(head, "\"thinking\":", json::string_literal(text), ",\"signature\":\"\"}");
    case serving::OutputKind::content:
      return cat(head, "\"text\":", json::string_literal(text), "}");
    case serving::OutputKind::call:
      return cat(head, "\"id\":",
                 json::string_literal(call.id.empty() ? cat("toolu_", random_id().substr(0, 24))
                                                      : call.id),
                 ",\"name\":", json::string_literal(call.name), ",\"input\":", text, "}");
  }
  MOTLEY_CHECK(false, "a kind of output without a block");
}

// Everything before the content.
std::string message_head(std::string_view id, const MessagesRequest& request) {
  return cat("{\"id\":\"", id, "\",\"type\":\"message\",\"role\":\"assistant\",\"model\":",
             json::string_literal(request.chat.fields.model), ",");
}

// `fields` are the members of the event's object, without braces.
std::string event(std::string_view type, std::string_view fields) {
  return cat("event: ", type, "\ndata: {\"type\":\"", type, "\"", fields.empty() ? "" : ",", fields,
             "}\n\n");
}

}  // namespace

// Collects blocks for the body.
class MessagesReply::Keeper final : public BlockSink {
 public:
  explicit Keeper(MessagesReply& reply) : reply_(reply) {}

  void begin(serving::OutputKind kind, const serving::CallPiece& call) override {
    reply_.blocks_.push_back({.kind = kind, .call = {.name = call.name, .id = call.id}});
    reply_.kept_bytes_ += sizeof(Block) + call.name.size() + call.id.size();
  }
  void add(serving::OutputKind /*kind*/, std::string_view text) override {
    reply_.blocks_.back().text += text;
    reply_.kept_bytes_ += text.size();
  }
  void end(serving::OutputKind kind) override {
    std::string& text = reply_.blocks_.back().text;
    if (kind == serving::OutputKind::call) text = reply_.input_.whole(std::move(text));
  }

 private:
  MessagesReply& reply_;
};

// Writes the events of a stream.
class MessagesReply::EventWriter final : public BlockSink {
 public:
  EventWriter(std::size_t& index, std::string& events) : index_(index), events_(events) {}

  void begin(serving::OutputKind kind, const serving::CallPiece& call) override {
    const std::string block = block_json(kind, call, kind == serving::OutputKind::call ? "{}" : "");
    events_ +=
        event("content_block_start", cat("\"index\":", index_, ",\"content_block\":", block));
  }
  void add(serving::OutputKind kind, std::string_view text) override {
    switch (kind) {
      case serving::OutputKind::reasoning:
        return add_delta("thinking_delta", "thinking", text);
      case serving::OutputKind::content:
        return add_delta("text_delta", "text", text);
      case serving::OutputKind::call:
        return add_delta("input_json_delta", "partial_json", text);
    }
  }
  void end(serving::OutputKind kind) override {
    // The signature is empty, but clients expect it.
    if (kind == serving::OutputKind::reasoning) add_delta("signature_delta", "signature", "");
    events_ += event("content_block_stop", cat("\"index\":", index_));
    ++index_;
  }

 private:
  void add_delta(std::string_view type, std::string_view field, std::string_view text) {
    events_ +=
        event("content_block_delta", cat("\"index\":", index_, ",\"delta\":{\"type\":\"", type,
                                         "\",\"", field, "\":", json::string_literal(text), "}"));
  }

  std::size_t& index_;
  std::string& events_;
};

MessagesReply::MessagesReply(std::string id, MessagesRequest request,
                             std::unique_ptr<serving::OutputParser> parser)
    : id_(std::move(id)), request_(std::move(request)), parser_(std::move(parser)) {}

void MessagesReply::begin_block(serving::OutputKind kind, const serving::CallPiece& call,
                                BlockSink& sink) {
  end_block(sink);
  open_ = kind;
  input_ = {};
  sink.begin(kind, call);
}

void MessagesReply::end_block(BlockSink& sink) {
  if (open_) sink.end(*open_);
  open_.reset();
}

void MessagesReply::take_text(serving::OutputKind kind, std::string_view text, BlockSink& sink) {
  if (open_ != kind) {
    // White space after a call would join words within one string; between blocks it has no
    // meaning.
    if (called_) text.remove_prefix(serving::leading_space(text));
    if (text.empty()) return;
    begin_block(kind, {}, sink);
  }
  if (kind == serving::OutputKind::content || request_.show_thinking) sink.add(kind, text);
}

void MessagesReply::take_call(const serving::CallPiece& piece, BlockSink& sink) {
  if (piece.begins) begin_block(serving::OutputKind::call, piece, sink);
  called_ = true;
  const std::string text = input_.take(piece.arguments);
  if (!text.empty()) sink.add(serving::OutputKind::call, text);
}

void MessagesReply::take(const serving::ChoiceUpdate& update, BlockSink& sink) {
  serving::ParsedOutput output = parser_->push(update.piece.text);
  if (update.end) output.append(parser_->finish());
  output.for_each(
      [&](serving::OutputKind kind, std::string_view text) { take_text(kind, text, sink); },
      [&](const serving::CallPiece& piece) { take_call(piece, sink); });
  if (!update.end) return;
  end_block(sink);
  end_ = update.end;
  stop_ = update.stop;
}

std::string MessagesReply::ending() const {
  const std::vector<std::string>& stops = request_.chat.fields.stop;
  // The request's stop strings come first, then our own.
  if (stop_ && *stop_ < stops.size())
    return cat("\"stop_reason\":\"stop_sequence\",\"stop_sequence\":",
               json::string_literal(stops[*stop_]));
  // This protocol has no word for an answer that was aborted: it is one that is not whole.
  const bool whole = end_ != engine::FinishReason::length && end_ != engine::FinishReason::aborted;
  const std::string_view reason = !whole ? "max_tokens" : called_ ? "tool_use" : "end_turn";
  return cat("\"stop_reason\":\"", reason, "\",\"stop_sequence\":null");
}

void MessagesReply::keep(const serving::ChoiceUpdate& update) {
  Keeper keeper(*this);
  take(update, keeper);
}

std::string MessagesReply::next_piece(const serving::Transcript& transcript) {
  std::string piece;
  if (ended_) return piece;
  if (!std::exchange(begun_, true)) piece = cat(message_head(id_, request_), "\"content\":[");
  for (; written_ < blocks_.size(); ++written_) {
    if (piece.size() >= piece_bytes) return piece;
    const Block block = std::move(blocks_[written_]);
    piece += cat(written_ > 0 ? "," : "", block_json(block.kind, block.call, block.text));
  }
  ended_ = true;
  const engine::Usage& usage = transcript.usage();
  return piece +=
         cat("],", ending(), ",\"usage\":", json::write(usage_of(usage, usage.completion_tokens)),
             version_member(transcript), "}");
}

std::string MessagesReply::begin_stream(const serving::Transcript& transcript) {
  if (std::exchange(begun_, true)) return {};
  return event("message_start",
               cat("\"message\":", message_head(id_, request_),
                   "\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":",
                   json::write(usage_of(transcript.usage_at_start(), 0)), "}"));
}

std::string MessagesReply::events(const serving::ChoiceUpdate& update,
                                  const serving::Transcript& transcript) {
  std::string events = begin_stream(transcript);
  EventWriter writer(index_, events);
  take(update, writer);
  return events;
}

std::string MessagesReply::last_events(const serving::Transcript& transcript) {
  const engine::Usage& usage = transcript.usage();
  return cat(begin_stream(transcript),
             event("message_delta", cat("\"delta\":{", ending(), "},\"usage\":",
                                        json::write(usage_of(usage, usage.completion_tokens)),
                                        version_member(transcript))),
             event("message_stop", {}));
}

std::string MessagesReply::failure_events(const Error& error) {
  return messages_error_event(error);
}

}  // namespace motley::server
