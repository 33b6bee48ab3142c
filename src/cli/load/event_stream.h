#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace motley::cli {

// Reads the server-sent events of a streamed completion, from pieces cut anywhere.
class EventStream {
 public:
  // Called for every event that carries text.
  explicit EventStream(std::function<void()> text) : text_(std::move(text)) {}

  // An error of the server in the stream, or what is no such stream.
  Result<void> read(std::string_view piece);

  bool done() const { return done_; }
  // Tokens of the completion, if the server told.
  std::optional<std::int64_t> tokens() const { return tokens_; }

 private:
  Result<void> read_line(std::string_view line);

  std::function<void()> text_;
  std::string line_;  // as far as it has come
  std::optional<std::int64_t> tokens_;
  bool done_ = false;
};

// What an error of OpenAI's shape says, or the beginning of a body that is none.
std::string error_text(std::string_view body);

}  // namespace motley::cli
