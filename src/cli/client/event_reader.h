#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/result.h"

namespace motley::cli {

// Parses the server-sent events of a streamed completion or chat, divided into any pieces.
class EventReader {
 public:
  // Called for every event except errors and the end.
  using Hear = std::function<void(const json::Object& event)>;
  explicit EventReader(Hear hear) : hear_(std::move(hear)) {}

  // Fails for a server's error in the stream, or if it is no such stream.
  Result<void> read(std::string_view piece);

  bool done() const { return done_; }
  // The number of generated tokens, if the server reports it.
  std::optional<std::int64_t> tokens() const { return tokens_; }

 private:
  Result<void> read_line(std::string_view line);

  Hear hear_;
  std::string line_;  // an incomplete line
  std::optional<std::int64_t> tokens_;
  bool done_ = false;
};

}  // namespace motley::cli
