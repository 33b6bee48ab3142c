#include "server/api/responses/items.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/utf8.h"
#include "server/api/fields/token_lists.h"
#include "server/api/reply_parts.h"

namespace motley::server {
std::string_view name(ResponseItem::Status status) {
  switch (status) {
    case ResponseItem::Status::in_progress:
      return "in_progress";
    case ResponseItem::Status::completed:
      return "completed";
    case ResponseItem::Status::incomplete:
      break;
  }
  return "incomplete";
}

void ResponseScript::add(std::string_view text) {
  if (steps_.empty() || steps_.back().what != What::literal)
    steps_.push_back({.what = What::literal});
  steps_.back().literal += text;
}

void ResponseScript::add_tokens(std::size_t item, std::size_t from, std::size_t to) {
  if (from < to) steps_.push_back({.what = What::tokens, .item = item, .at = from, .end = to});
}

void ResponseScript::add_item(std::size_t item, bool empty) {
  using Kind = ResponseItem::Kind;
  const ResponseItem& it = items_[item];
  add(cat("{\"id\":\"", it.id, "\",\"status\":\"", name(it.status), "\","));
  if (it.kind == Kind::call) {
    add(cat("\"type\":\"function_call\",\"call_id\":\"", it.call_id,
            "\",\"name\":", json::string_literal(it.name), ",\"arguments\":"));
    if (empty)
      add("\"\"");
    else
      add_text(item);
    return add("}");
  }
  add(it.kind == Kind::reasoning ? R"("type":"reasoning","summary":[],"content":[)"
                                 : R"("type":"message","role":"assistant","content":[)");
  if (!empty) add_part(item, false);
  add("]}");
}

void ResponseScript::add_part(std::size_t item, bool empty) {
  const ResponseItem& it = items_[item];
  if (it.kind == ResponseItem::Kind::reasoning) {
    add(R"({"type":"reasoning_text","text":)");
  } else {
    add(R"({"type":"output_text","annotations":[],"logprobs":[)");
    if (!empty) add_tokens(item, 0, it.tokens.size());
    add("],\"text\":");
  }
  if (empty)
    add("\"\"");
  else
    add_text(item);
  add("}");
}

std::string ResponseScript::next(std::size_t bytes) {
  std::string piece;
  while (!steps_.empty() && piece.size() < bytes) {
    if (write(steps_.front(), piece, bytes)) steps_.pop_front();
  }
  return piece;
}

bool ResponseScript::write(Step& step, std::string& piece, std::size_t bytes) const {
  switch (step.what) {
    case What::literal:
      piece += step.literal;
      return true;
    case What::repeated: {
      const std::string_view rest = std::string_view(repeated_).substr(step.at);
      const std::string_view some = rest.substr(0, bytes - piece.size());
      piece += some;
      step.at += some.size();
      return some.size() == rest.size();
    }
    case What::text:
      return write_text(step, piece, bytes);
    case What::tokens:
      break;
  }
  const KeptTokens& tokens = items_[step.item].tokens;
  while (step.at < step.end && piece.size() < bytes) {
    if (std::exchange(step.begun, true)) piece += ',';
    piece += json::write(scored_token(tokenizer_, tokens.id(step.at), tokens.logprob(step.at),
                                      tokens.top(step.at), {.as_ids = tokens_as_ids_}));
    ++step.at;
  }
  return step.at == step.end;
}

bool ResponseScript::write_text(Step& step, std::string& piece, std::size_t bytes) const {
  const std::string_view text = items_[step.item].text;
  // At least enough for one character.
  std::string_view some = text.substr(step.at, std::max<std::size_t>(bytes - piece.size(), 16));
  const bool last = step.at + some.size() == text.size();
  if (!last) some.remove_suffix(utf8::incomplete_tail(some));
  const std::string literal = json::string_literal(some);
  std::string_view inside = literal;
  if (std::exchange(step.begun, true)) inside.remove_prefix(1);
  if (!last) inside.remove_suffix(1);
  piece += inside;
  step.at += some.size();
  return last;
}

}  // namespace motley::server
