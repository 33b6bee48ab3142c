#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace motley {
class LineWriter;
}

// Structured log lines: an event and its fields, one line each, written whole.
//   2026-11-21T09:30:00.123Z info    model.loaded layers=48 bytes=61203283968 path="/models/a b"
// No prompt text and no key ever goes into a field.
namespace motley::log {

enum class Level : std::uint8_t { debug, info, warning, error, off };

// "debug", "info", "warning", "error" or "off".
Result<Level> parse_level(std::string_view name);

enum class Format : std::uint8_t { text, json };

// "text" or "json".
Result<Format> parse_format(std::string_view name);

struct Settings {
  Level level = Level::info;
  Format format = Format::text;
  // Receives each line, newline included, one at a time; default: standard error.
  std::function<void(std::string_view)> sink;
};

// Must not be called while other threads log: only at the start of the program or of a test.
void configure(Settings settings);
const Settings& settings();

// During its lifetime lines go to standard error through a ring and a separate thread (LineWriter),
// so that a reader that stops reading blocks no other thread. For servers; at most one at a time.
// Afterwards write_beside() waits only for a limited time for such a reader.
class Background {
 public:
  Background();
  // Writes the remaining lines, within a second.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

 private:
  std::shared_ptr<LineWriter> writer_;
};

// The number of lines lost for lack of memory or because the reader had stopped.
std::uint64_t lost();

// Writes text that is no log line to standard error, after everything written before: progress, or
// the last line of a program. Never blocks a program that has had a Background.
void write_beside(std::string_view text) noexcept;

// The same before the process exits: returns when the text has been written, or the reader has
// taken nothing for a second.
void write_before_end(std::string_view text) noexcept;

// The line with which a program says why it ends: "motley: MESSAGE", or an object with the event
// program.failed where the format is JSON. With its newline.
std::string failure_line(std::string_view message);

// Borrows its contents for the call that it is an argument of. Allocates nothing.
class Field {
 public:
  Field(std::string_view key, std::string_view value) : key_(key), value_(value) {}
  Field(std::string_view key, const char* value) : Field(key, std::string_view(value)) {}
  Field(std::string_view key, const std::string& value) : Field(key, std::string_view(value)) {}
  Field(std::string_view key, const char& value) : Field(key, std::string_view(&value, 1)) {}
  Field(std::string_view key, std::same_as<bool> auto value)
      : key_(key), value_(value ? "true" : "false"), text_(false) {}
  template <class T>
    requires((std::integral<T> || std::floating_point<T>) && !std::same_as<T, bool> &&
             !std::same_as<T, char>)
  Field(std::string_view key, T value) : key_(key), text_(false) {
    const auto end = std::to_chars(digits_.data(), digits_.data() + digits_.size(), value).ptr;
    digits_used_ = static_cast<std::size_t>(end - digits_.data());
  }

  std::string_view key() const { return key_; }
  std::string_view value() const {
    return digits_used_ > 0 ? std::string_view(digits_.data(), digits_used_) : value_;
  }
  bool is_text() const { return text_; }

 private:
  std::string_view key_;
  std::string_view value_;
  std::array<char, 64> digits_ = {};
  std::size_t digits_used_ = 0;  // of a number
  bool text_ = true;
};

bool enabled(Level level);

// A line for which memory runs out is counted as lost.
void write(Level level, std::string_view event, std::span<const Field> fields) noexcept;
inline void write(Level level, std::string_view event,
                  std::initializer_list<Field> fields) noexcept {
  write(level, event, std::span<const Field>(fields.begin(), fields.size()));
}

inline void debug(std::string_view event, std::initializer_list<Field> fields = {}) noexcept {
  write(Level::debug, event, fields);
}
inline void info(std::string_view event, std::initializer_list<Field> fields = {}) noexcept {
  write(Level::info, event, fields);
}
inline void warning(std::string_view event, std::initializer_list<Field> fields = {}) noexcept {
  write(Level::warning, event, fields);
}
inline void error(std::string_view event, std::initializer_list<Field> fields = {}) noexcept {
  write(Level::error, event, fields);
}

}  // namespace motley::log
