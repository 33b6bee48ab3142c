#include "server/http/connections/request_log.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/cat.h"
#include "base/log.h"

namespace motley::server {
namespace {

constexpr std::size_t max_logged_message = 500;
constexpr std::size_t max_logged_path = 200;

log::Field field_of(const LogField& field) {
  switch (field.kind) {
    case LogField::Kind::text:
      return {field.key, field.text};
    case LogField::Kind::count:
      return {field.key, field.count};
    case LogField::Kind::number:
      break;
  }
  return {field.key, field.number};
}

}  // namespace

void RequestLog::begin(TimePoint now, std::size_t sent_bytes) {
  start_ = now;
  sent_before_ = sent_bytes;
}

double RequestLog::milliseconds_until(TimePoint now) const {
  return std::chrono::duration<double, std::milli>(now - start_).count();
}

void RequestLog::add_first_token(TimePoint now) {
  constexpr std::string_view key = "first_token_ms";
  if (std::ranges::find(fields_, key, &LogField::key) != fields_.end()) return;
  add({key, milliseconds_until(now)});
}

void RequestLog::add_error(const HttpResponse& response) {
  if (response.error_code.empty()) return;
  add({"error", response.error_code});
  if (response.error_message.empty()) return;
  add({"message", printable(response.error_message.substr(0, max_logged_message))});
}

void RequestLog::write(std::string_view event, const HttpRequest& request,
                       const Outcome& outcome) const {
  const bool well = outcome.status == 200 && !outcome.gone;
  const log::Level level = quiet_ && well ? log::Level::debug : log::Level::info;
  if (!log::enabled(level)) return;
  const std::string method = printable(request.method);
  const std::string path = printable(request.path.substr(0, max_logged_path));
  std::vector<log::Field> fields = {{"id", request.id},
                                    {"peer", outcome.peer},
                                    {"client", request.client()},
                                    {"method", method},
                                    {"path", path},
                                    {"status", outcome.status == 0 ? 499 : outcome.status},
                                    {"gone", outcome.gone},
                                    {"received", outcome.received},
                                    {"sent", outcome.sent_bytes - sent_before_},
                                    {"ms", milliseconds_until(outcome.now)}};
  for (const LogField& each : fields_) fields.push_back(field_of(each));
  log::write(level, event, fields);
}

}  // namespace motley::server
