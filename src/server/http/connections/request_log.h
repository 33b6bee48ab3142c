#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/system/clock.h"
#include "server/http/messages/message.h"

namespace motley::server {

// Collects what the log's line about a request says of its answer.
class RequestLog {
 public:
  // The answer begins; the connection has sent this much before.
  void begin(TimePoint now, std::size_t sent_bytes);
  // Logs the answer only if it is an error, or at debug level.
  void quieten() { quiet_ = true; }
  void add(LogField field) { fields_.push_back(std::move(field)); }
  void add_error(const HttpResponse& response);
  // Once: later calls change nothing.
  void add_first_token(TimePoint now);

  struct Outcome {
    std::string_view peer;
    int status = 0;  // 0: none was sent
    bool gone = false;
    std::size_t received = 0;  // bytes of the body
    std::size_t sent_bytes = 0;
    TimePoint now;
  };
  void write(std::string_view event, const HttpRequest& request, const Outcome& outcome) const;

 private:
  double milliseconds_until(TimePoint now) const;

  TimePoint start_;
  std::size_t sent_before_ = 0;
  bool quiet_ = false;
  std::vector<LogField> fields_;
};

}  // namespace motley::server
