#include "cli/load/event_stream.h"

#include <algorithm>

#include "base/cat.h"
#include "base/json.h"

namespace motley::cli {
namespace {

constexpr std::size_t longest_line = 1 << 20;
constexpr std::size_t shown_bytes = 200;

const json::Object* object_of(const json::Object& parent, std::string_view key) {
  const json::Value* const value = parent.find(key);
  return value == nullptr ? nullptr : value->if_object();
}

// {"error": {"message": ...}}
const std::string* message_of(const json::Object& event) {
  const json::Object* const error = object_of(event, "error");
  const json::Value* const message = error == nullptr ? nullptr : error->find("message");
  return message == nullptr ? nullptr : message->if_string();
}

bool has_text(const json::Object& event) {
  const json::Value* const choices = event.find("choices");
  if (choices == nullptr || choices->if_array() == nullptr) return false;
  return std::ranges::any_of(*choices->if_array(), [](const json::Value& choice) {
    const json::Object* const object = choice.if_object();
    const json::Value* const text = object == nullptr ? nullptr : object->find("text");
    return text != nullptr && text->if_string() != nullptr && !text->if_string()->empty();
  });
}

}  // namespace

Result<void> EventStream::read(std::string_view piece) {
  for (;;) {
    const std::size_t end = piece.find('\n');
    line_ += piece.substr(0, end);
    if (line_.size() > longest_line)
      return Error(ErrorCode::bad_file, "a line of its answer is too long", "",
                   "check that the URL is that of an OpenAI-compatible server");
    if (end == piece.npos) return {};
    piece.remove_prefix(end + 1);
    MOTLEY_TRY_VOID(read_line(line_));
    line_.clear();
  }
}

Result<void> EventStream::read_line(std::string_view line) {
  constexpr std::string_view data = "data:";
  if (!line.starts_with(data)) return {};
  line.remove_prefix(data.size());
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line == "[DONE]") {
    done_ = true;
    return {};
  }
  MOTLEY_TRY(const json::Value value, json::parse(line, "an event of its answer"));
  const json::Object* const event = value.if_object();
  if (event == nullptr) return {};
  if (const std::string* const message = message_of(*event))
    return Error(ErrorCode::unavailable, *message, "", "see the server's log");
  if (has_text(*event)) text_();
  if (const json::Object* const usage = object_of(*event, "usage")) {
    const json::Value* const count = usage->find("completion_tokens");
    if (count != nullptr && count->if_integer() != nullptr) tokens_ = *count->if_integer();
  }
  return {};
}

std::string error_text(std::string_view body) {
  const auto value = json::parse(body, "an answer");
  if (value.ok() && value->if_object() != nullptr) {
    if (const std::string* const message = message_of(*value->if_object())) return *message;
  }
  return quote(body.substr(0, shown_bytes));
}

}  // namespace motley::cli
