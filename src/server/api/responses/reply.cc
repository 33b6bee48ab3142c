#include "server/api/responses/reply.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/random_id.h"
#include "server/api/reply_parts.h"
#include "server/http/messages/message.h"
#include "serving/forms/tag_search.h"

namespace motley::server {
namespace {

using Kind = ResponseItem::Kind;
using Status = ResponseItem::Status;

std::string_view prefix_of(Kind kind) {
  switch (kind) {
    case Kind::reasoning:
      return "rs_";
    case Kind::message:
      return "msg_";
    case Kind::call:
      break;
  }
  return "fc_";
}

// The growing part of an item of that kind, as events name it.
std::string_view growth_of(Kind kind) {
  switch (kind) {
    case Kind::reasoning:
      return "response.reasoning_text";
    case Kind::message:
      return "response.output_text";
    case Kind::call:
      break;
  }
  return "response.function_call_arguments";
}

// One of the codes of a failed response.
std::string_view code_of(const Error& error) {
  if (error.code() == ErrorCode::busy) return "rate_limit_exceeded";
  return http_status(error.code()) < 500 ? "invalid_prompt" : "server_error";
}

}  // namespace

ResponsesReply::ResponsesReply(ResponsesRequest request, const text::Tokenizer& tokenizer,
                               std::unique_ptr<serving::OutputParser> parser)
    : request_(std::move(request)),
      id_(cat("resp_", request_.chat.fields.request_id.empty() ? random_id()
                                                               : request_.chat.fields.request_id)),
      created_(std::time(nullptr)),
      parser_(std::move(parser)),
      script_(items_, request_.repeated, tokenizer, request_.chat.fields.tokens.as_ids) {}

void ResponsesReply::take(const serving::ChoiceUpdate& update) {
  if (request_.chat.fields.sampling.logprobs) {
    for (std::size_t i = 0; i < update.piece.tokens.size(); ++i) {
      waiting_.tokens.push_back(update.piece.tokens[i]);
      waiting_.offsets.push_back(update.piece.offsets[i]);
    }
  }
  const serving::OutputSection before = parser_->section();
  take_parts(parser_->push(update.piece.text));
  count(update, before);
  if (parser_->section() != serving::OutputSection::content) waiting_ = {};
  if (!update.end) return;
  take_parts(parser_->finish());
  finish(*update.end);
}

// Tokens that begin and end reasoning count as reasoning.
void ResponsesReply::count(const serving::ChoiceUpdate& update, serving::OutputSection before) {
  if (before == serving::OutputSection::reasoning ||
      parser_->section() == serving::OutputSection::reasoning)
    reasoning_tokens_ += static_cast<std::int64_t>(update.piece.tokens.size());
}

void ResponsesReply::take_parts(const serving::ParsedOutput& output) {
  output.for_each(
      [&](serving::OutputKind kind, std::string_view text) {
        add_text(kind == serving::OutputKind::content ? Kind::message : Kind::reasoning, text);
      },
      [&](const serving::CallPiece& piece) { add_call(piece); });
}

void ResponsesReply::add_text(Kind kind, std::string_view text) {
  if (!open_ || item().kind != kind) {
    // White space after a call would join words within one string; between items it has no meaning.
    if (!items_.empty()) text.remove_prefix(serving::leading_space(text));
    if (text.empty()) return;
    open_item(kind);
  }
  grow(text);
}

void ResponsesReply::add_call(const serving::CallPiece& piece) {
  if (piece.begins) open_item(Kind::call, piece);
  if (!piece.arguments.empty()) grow(piece.arguments);
}

std::size_t ResponsesReply::place_tokens() {
  const std::size_t before = item().tokens.size();
  if (item().kind == Kind::message) item().tokens.append(waiting_);
  waiting_ = {};
  return before;
}

void ResponsesReply::grow(std::string_view text) {
  kept_bytes_ -= item().bytes();
  item().text += text;
  const std::size_t from = place_tokens();
  kept_bytes_ += item().bytes();
  if (!streams_) return;
  begin_item_event(cat(growth_of(item().kind), ".delta"));
  script_.add(cat(",\"delta\":", json::string_literal(text)));
  if (item().kind == Kind::message) {
    script_.add(",\"logprobs\":[");
    script_.add_tokens(items_.size() - 1, from, item().tokens.size());
    script_.add("]");
  }
  end_event();
}

void ResponsesReply::open_item(Kind kind, const serving::CallPiece& call) {
  close_item(Status::completed);
  items_.push_back({.kind = kind, .id = cat(prefix_of(kind), random_id())});
  open_ = true;
  if (kind == Kind::call) {
    item().call_id = call.id.empty() ? cat("call_", random_id().substr(0, 24)) : call.id;
    item().name = call.name;
  }
  kept_bytes_ += item().bytes();
  if (!streams_) return;
  const std::size_t index = items_.size() - 1;
  begin_event("response.output_item.added");
  script_.add(cat(",\"output_index\":", index, ",\"item\":"));
  script_.add_item(index, true);
  end_event();
  if (kind == Kind::call) return;
  begin_item_event("response.content_part.added");
  script_.add(",\"part\":");
  script_.add_part(index, true);
  end_event();
}

void ResponsesReply::close_item(Status status) {
  if (!std::exchange(open_, false)) return;
  item().status = status;
  if (!streams_) return;
  const std::size_t index = items_.size() - 1;
  const Kind kind = item().kind;
  begin_item_event(cat(growth_of(kind), ".done"));
  if (kind == Kind::call) {
    script_.add(cat(",\"name\":", json::string_literal(item().name), ",\"arguments\":"));
  } else if (kind == Kind::message) {
    script_.add(",\"logprobs\":[");
    script_.add_tokens(index, 0, item().tokens.size());
    script_.add("],\"text\":");
  } else {
    script_.add(",\"text\":");
  }
  script_.add_text(index);
  end_event();
  if (kind != Kind::call) {
    begin_item_event("response.content_part.done");
    script_.add(",\"part\":");
    script_.add_part(index, false);
    end_event();
  }
  begin_event("response.output_item.done");
  script_.add(cat(",\"output_index\":", index, ",\"item\":"));
  script_.add_item(index, false);
  end_event();
}

void ResponsesReply::finish(engine::FinishReason end) {
  end_ = end;
  // An empty answer still has a message.
  const bool answers = std::ranges::any_of(
      items_, [](const ResponseItem& it) { return it.kind != Kind::reasoning; });
  if (end == engine::FinishReason::stop && !answers) open_item(Kind::message);
  // The token that ended a message counts as one of its tokens.
  if (open_ && !waiting_.tokens.empty()) {
    kept_bytes_ -= item().bytes();
    place_tokens();
    kept_bytes_ += item().bytes();
  }
  close_item(end == engine::FinishReason::stop ? Status::completed : Status::incomplete);
}

void ResponsesReply::begin_event(std::string_view name) {
  script_.add(
      cat("event: ", name, "\ndata: {\"type\":\"", name, "\",\"sequence_number\":", events_++));
}

// For the last item that was begun.
void ResponsesReply::begin_item_event(std::string_view name) {
  begin_event(name);
  script_.add(cat(",\"item_id\":\"", item().id, "\",\"output_index\":", items_.size() - 1));
  if (item().kind != Kind::call) script_.add(",\"content_index\":0");
}

void ResponsesReply::begin_stream() {
  if (std::exchange(streams_, true)) return;
  say_response("response.created", {.status = "in_progress"});
  say_response("response.in_progress", {.status = "in_progress"});
}

void ResponsesReply::say_response(std::string_view event, const Outcome& outcome) {
  begin_event(event);
  script_.add(",\"response\":");
  write_response(outcome);
  end_event();
}

void ResponsesReply::write_response(const Outcome& outcome) {
  const bool completed = outcome.status == "completed";
  script_.add(cat("{\"id\":\"", id_, "\",\"object\":\"response\",\"created_at\":", created_,
                  ",\"completed_at\":", completed ? std::to_string(std::time(nullptr)) : "null",
                  ",\"status\":\"", outcome.status,
                  "\",\"background\":false,\"error\":", outcome.error, ",\"incomplete_details\":",
                  end_ == engine::FinishReason::length && outcome.status == "incomplete"
                      ? R"({"reason":"max_output_tokens"})"
                      : "null",
                  ",\"output\":["));
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (i > 0) script_.add(",");
    script_.add_item(i, false);
  }
  script_.add("],");
  script_.add_repeated();
  script_.add(cat(",\"usage\":", outcome.usage, outcome.version, "}"));
}

std::string ResponsesReply::usage(const engine::Usage& usage) const {
  json::Object read{{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}};
  json::Object written{{"reasoning_tokens", reasoning_tokens_}};
  return json::write(json::Object{{"input_tokens", usage.prompt_tokens},
                                  {"input_tokens_details", std::move(read)},
                                  {"output_tokens", usage.completion_tokens},
                                  {"output_tokens_details", std::move(written)},
                                  {"total_tokens", usage.prompt_tokens + usage.completion_tokens}});
}

ResponsesReply::Outcome ResponsesReply::outcome(const serving::Transcript& transcript) const {
  const bool whole = end_ != engine::FinishReason::length && end_ != engine::FinishReason::aborted;
  return {.status = whole ? "completed" : "incomplete",
          .usage = usage(transcript.usage()),
          .version = version_member(transcript)};
}

std::string ResponsesReply::next_piece(const serving::Transcript& transcript) {
  if (!std::exchange(written_, true)) write_response(outcome(transcript));
  return next();
}

std::string ResponsesReply::events(const serving::ChoiceUpdate& update,
                                   const serving::Transcript&) {
  begin_stream();
  take(update);
  return next();
}

std::string ResponsesReply::last_events(const serving::Transcript& transcript) {
  begin_stream();
  const Outcome outcome = this->outcome(transcript);
  say_response(cat("response.", outcome.status), outcome);
  return next();
}

// Clients raise the event `error`; the failed response has what was generated.
std::string ResponsesReply::failure_events(const Error& error) {
  begin_stream();
  close_item(Status::incomplete);
  json::Object object{
      {"code", code_of(error)},
      {"message", error.message()},
      {"param", error.where().empty() ? json::Value() : json::Value(error.where())}};
  const std::string members = json::write(object);
  begin_event("error");
  script_.add(cat(",", std::string_view(members).substr(1, members.size() - 2)));
  end_event();
  say_response("response.failed", {.status = "failed", .error = members});
  return next();
}

}  // namespace motley::server
