#include "base/log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <unistd.h>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/json/json.h"
#include "base/system/line_writer.h"
#include "base/system/out_of_memory.h"
#include "base/utf8.h"

namespace motley::log {
namespace {

constexpr std::array<std::string_view, 2> format_names = {"text", "json"};
constexpr std::array<std::string_view, 5> level_names = {"debug", "info", "warning", "error",
                                                         "off"};

// The limit of a text field: keeps lines readable, and many of them in the ring.
constexpr std::size_t longest_text = 8192;
// How long the last line of a program waits for a reader that has stopped.
constexpr std::chrono::milliseconds patience{1000};

struct State {
  Settings settings;
  std::mutex one_line_at_a_time;
  std::shared_ptr<LineWriter> writer;  // of a Background
  bool never_waits = false;            // there was one
  std::atomic<std::uint64_t> lost{0};  // not counting the writer's own
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

std::string_view cut(std::string_view value) {
  if (value.size() <= longest_text) return value;
  value = value.substr(0, longest_text);
  value.remove_suffix(utf8::incomplete_tail(value));
  return value;
}

std::string text_line(Level level, std::string_view event, std::span<const Field> fields) {
  const std::string_view name = level_names[static_cast<std::size_t>(level)];
  std::string line = cat(timestamp(), " ", name, std::string(8 - name.size(), ' '), event);
  for (const Field& field : fields) {
    line += cat(" ", field.key(), "=");
    if (field.is_text() && needs_quotes(field.value())) {
      json::append_string(line, cut(field.value()));
    } else {
      line += cut(field.value());
    }
  }
  line += '\n';
  return line;
}

std::string json_line(Level level, std::string_view event, std::span<const Field> fields) {
  std::string line = cat("{\"time\":\"", timestamp(), "\",\"level\":\"",
                         level_names[static_cast<std::size_t>(level)], "\",\"event\":");
  json::append_string(line, event);
  for (const Field& field : fields) {
    line += ',';
    json::append_string(line, field.key());
    line += ':';
    // "inf" and "nan" are no JSON numbers.
    if (field.is_text() || field.value().find('n') != std::string::npos) {
      json::append_string(line, cut(field.value()));
    } else {
      line += field.value();
    }
  }
  line += "}\n";
  return line;
}

std::string make_line(Level level, std::string_view event, std::span<const Field> fields) {
  return state().settings.format == Format::json ? json_line(level, event, fields)
                                                 : text_line(level, event, fields);
}

std::string lost_line(std::uint64_t lines) {
  if (!enabled(Level::warning)) return {};
  const Field field("lines", lines);
  return make_line(Level::warning, "log.lost", {&field, 1});
}

void write_locked(State& log, std::string_view text, LineWriter* writer) {
  if (writer != nullptr) {
    writer->write(text);
  } else if (log.never_waits) {
    if (!write_within(STDERR_FILENO, text, patience)) ++log.lost;
  } else {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  }
}

template <std::size_t count>
Result<std::size_t> index_of(std::string_view name, std::string_view what,
                             const std::array<std::string_view, count>& names) {
  const auto at = std::ranges::find(names, name);
  if (at != names.end()) return static_cast<std::size_t>(at - names.begin());
  return Error(ErrorCode::invalid_argument, cat("unknown log ", what, " ", quote(name)), "",
               cat("use one of ", join(names)));
}

}  // namespace

Result<Level> parse_level(std::string_view name) {
  MOTLEY_TRY(const std::size_t index, index_of(name, "level", level_names));
  return static_cast<Level>(index);
}

Result<Format> parse_format(std::string_view name) {
  MOTLEY_TRY(const std::size_t index, index_of(name, "format", format_names));
  return static_cast<Format>(index);
}

void configure(Settings settings) { state().settings = std::move(settings); }
const Settings& settings() { return state().settings; }

Background::Background()
    : writer_(std::make_shared<LineWriter>(
          LineWriter::Options{.descriptor = STDERR_FILENO, .lost_line = lost_line})) {
  State& log = state();
  const std::lock_guard lock(log.one_line_at_a_time);
  MOTLEY_CHECK(log.writer == nullptr, "one background at a time");
  log.writer = writer_;
  log.never_waits = true;
}

Background::~Background() {
  State& log = state();
  const std::lock_guard lock(log.one_line_at_a_time);
  log.lost += writer_->lost();
  log.writer.reset();
  // Lines logged meanwhile wait, and follow those of the ring.
  writer_.reset();
}

std::uint64_t lost() {
  State& log = state();
  const std::lock_guard lock(log.one_line_at_a_time);
  return log.lost + (log.writer == nullptr ? 0 : log.writer->lost());
}

void write_beside(std::string_view text) noexcept {
  State& log = state();
  const std::lock_guard lock(log.one_line_at_a_time);
  write_locked(log, text, log.writer.get());
}

void write_before_end(std::string_view text) noexcept {
  State& log = state();
  const std::lock_guard lock(log.one_line_at_a_time);
  if (log.writer != nullptr) log.writer->flush(patience);
  write_locked(log, text, nullptr);
}

bool enabled(Level level) { return level >= state().settings.level && level != Level::off; }

std::string failure_line(std::string_view message) {
  if (state().settings.format != Format::json) return cat("motley: ", message, "\n");
  const Field field("message", message);
  return json_line(Level::error, "program.failed", {&field, 1});
}

void write(Level level, std::string_view event, std::span<const Field> fields) noexcept {
  if (!enabled(level)) return;
  State& log = state();
  const Result<void> written = within_memory([&] {
    const std::string line = make_line(level, event, fields);
    const std::lock_guard lock(log.one_line_at_a_time);
    if (log.settings.sink) {
      log.settings.sink(line);
    } else {
      write_locked(log, line, log.writer.get());
    }
  });
  if (!written.ok()) ++log.lost;
}

}  // namespace motley::log
