#include "base/log.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <utility>

#include "base/json.h"

namespace motley::log {
namespace {

constexpr std::array<std::string_view, 5> level_names = {"debug", "info", "warning", "error",
                                                         "off"};

struct State {
  Settings settings;
  std::mutex one_line_at_a_time;
};

State& state() {
  static State instance;
  return instance;
}

// UTC with milliseconds, as RFC 3339 writes it.
std::string timestamp() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t whole = std::chrono::system_clock::to_time_t(now);
  const auto since = now.time_since_epoch();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(since).count() % 1000;
  std::tm parts{};
  gmtime_r(&whole, &parts);
  char text[40];
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + length, sizeof text - length, ".%03dZ", static_cast<int>(milliseconds));
  return text;
}

bool needs_quotes(std::string_view value) {
  if (value.empty()) return true;
  return std::any_of(value.begin(), value.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte <= ' ' || byte >= 0x7f || c == '"' || c == '=' || c == '\\';
  });
}

std::string text_line(Level level, std::string_view event, std::initializer_list<Field> fields) {
  const std::string_view name = level_names[static_cast<std::size_t>(level)];
  std::string line = cat(timestamp(), " ", name, std::string(8 - name.size(), ' '), event);
  for (const Field& field : fields) {
    line += cat(" ", field.key(), "=");
    if (field.is_text() && needs_quotes(field.value())) {
      json::append_string(line, field.value());
    } else {
      line += field.value();
    }
  }
  return line + '\n';
}

std::string json_line(Level level, std::string_view event, std::initializer_list<Field> fields) {
  std::string line = cat("{\"time\":\"", timestamp(), "\",\"level\":\"",
                         level_names[static_cast<std::size_t>(level)], "\",\"event\":");
  json::append_string(line, event);
  for (const Field& field : fields) {
    line += ',';
    json::append_string(line, field.key());
    line += ':';
    // "inf" and "nan" are no JSON numbers.
    if (field.is_text() || field.value().find('n') != std::string::npos) {
      json::append_string(line, field.value());
    } else {
      line += field.value();
    }
  }
  return line + "}\n";
}

}  // namespace

Result<Level> parse_level(std::string_view name) {
  const auto at = std::find(level_names.begin(), level_names.end(), name);
  if (at != level_names.end()) return static_cast<Level>(at - level_names.begin());
  return Error(ErrorCode::invalid_argument, cat("unknown log level ", quote(name)), "",
               cat("use one of ", join(level_names)));
}

void configure(Settings settings) { state().settings = std::move(settings); }

bool enabled(Level level) { return level >= state().settings.level && level != Level::off; }

void write(Level level, std::string_view event, std::initializer_list<Field> fields) {
  if (!enabled(level)) return;
  State& log = state();
  const std::string line = log.settings.format == Format::json ? json_line(level, event, fields)
                                                               : text_line(level, event, fields);
  const std::lock_guard lock(log.one_line_at_a_time);
  if (log.settings.sink) {
    log.settings.sink(line);
  } else {
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
}

}  // namespace motley::log
