#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/result.h"

namespace motley::cli {

// Reads the server-sent events of a streamed completion or chat, from pieces cut anywhere.
class EventReader {
 public:
  // Called for every event but the errors and the end.
  using Hear = std::function<void(const json::Object& event)>;
  explicit EventReader(Hear hear) : hear_(std::move(hear)) {}

  // An error of the server in the stream, or what is no such stream.
  Result<void> read(std::string_view piece);

  bool done() const { return done_; }
  // Tokens of the answer, if the server counts them.
  std::optional<std::int64_t> tokens() const { return tokens_; }

 private:
  Result<void> read_line(std::string_view line);

  Hear hear_;
  std::string line_;  // as far as it has come
  std::optional<std::int64_t> tokens_;
  bool done_ = false;
};

}  // namespace motley::cli
