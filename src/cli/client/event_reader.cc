#include "cli/client/event_reader.h"

#include <algorithm>

namespace motley::cli {
namespace {

constexpr std::size_t longest_line = 1 << 20;

const json::Object* object_of(const json::Object& parent, std::string_view key) {
  const json::Value* const value = parent.find(key);
  return value == nullptr ? nullptr : value->if_object();
}

}  // namespace

Result<void> EventReader::read(std::string_view piece) {
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

// Each event is one line of data; comments and empty lines are ignored.
Result<void> EventReader::read_line(std::string_view line) {
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
  if (const json::Object* const error = object_of(*event, "error")) {
    const json::Value* const message = error->find("message");
    if (message != nullptr && message->if_string() != nullptr)
      return Error(ErrorCode::unavailable, *message->if_string(), "", "see the server's log");
  }
  if (const json::Object* const usage = object_of(*event, "usage")) {
    const json::Value* const count = usage->find("completion_tokens");
    if (count != nullptr && count->if_integer() != nullptr) tokens_ = *count->if_integer();
  }
  hear_(*event);
  return {};
}

}  // namespace motley::cli
