#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace motley::cli {

// An answer of HTTP/1.1 as its bytes come, whole or in chunks.
class HttpAnswer {
 public:
  HttpAnswer();
  HttpAnswer(HttpAnswer&& other) noexcept;
  HttpAnswer& operator=(HttpAnswer&& other) noexcept;
  ~HttpAnswer();

  // An error where the bytes are no such answer.
  Result<void> take(std::string_view bytes);
  // The connection has ended, which ends a body without a length too; an error where one had more.
  Result<void> end();

  bool complete() const;
  int status() const;  // 0 before the head is there
  // What came of the body and was not taken yet.
  std::string take_body();

 private:
  struct Parser;

  std::unique_ptr<Parser> parser_;
  std::string pending_;  // bytes whose meaning needs more of them
};

// The data of server-sent events in a body that comes piece by piece.
class EventReader {
 public:
  void take(std::string_view body) { pending_ += body; }
  // The next whole event's data, or none yet.
  std::optional<std::string> next();

 private:
  std::string pending_;
};

// The value of a metric without labels on a page of Prometheus text.
std::optional<double> metric(std::string_view page, std::string_view name);

// What a metric's first sample has as that label, or "".
std::string_view metric_label(std::string_view page, std::string_view name, std::string_view label);

}  // namespace motley::cli
