#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/cat.h"
#include "base/result.h"

// Structured log lines: an event and its fields, one line each, written whole.
//   2026-11-21T09:30:00.123Z info    model.loaded layers=48 bytes=61203283968 path="/models/a b"
// No prompt text and no key ever goes into a field.
namespace motley::log {

enum class Level : std::uint8_t { debug, info, warning, error, off };

// "debug", "info", "warning", "error" or "off".
Result<Level> parse_level(std::string_view name);

enum class Format : std::uint8_t { text, json };

struct Settings {
  Level level = Level::info;
  Format format = Format::text;
  // Gets each line, newline included, one at a time; standard error where there is none.
  std::function<void(std::string_view)> sink;
};

// Not while other threads log: at the start of the program, or of a test.
void configure(Settings settings);

class Field {
 public:
  Field(std::string_view key, std::string_view value) : key_(key), value_(value), text_(true) {}
  Field(std::string_view key, const char* value) : Field(key, std::string_view(value)) {}
  Field(std::string_view key, const std::string& value) : Field(key, std::string_view(value)) {}
  Field(std::string_view key, char value) : Field(key, std::string_view(&value, 1)) {}
  template <class T>
    requires(std::integral<T> || std::floating_point<T>)
  Field(std::string_view key, T value) : key_(key), value_(cat(value)), text_(false) {}

  std::string_view key() const { return key_; }
  std::string_view value() const { return value_; }
  bool is_text() const { return text_; }

 private:
  std::string_view key_;
  std::string value_;
  bool text_;
};

bool enabled(Level level);

void write(Level level, std::string_view event, std::initializer_list<Field> fields);

inline void debug(std::string_view event, std::initializer_list<Field> fields = {}) {
  write(Level::debug, event, fields);
}
inline void info(std::string_view event, std::initializer_list<Field> fields = {}) {
  write(Level::info, event, fields);
}
inline void warning(std::string_view event, std::initializer_list<Field> fields = {}) {
  write(Level::warning, event, fields);
}
inline void error(std::string_view event, std::initializer_list<Field> fields = {}) {
  write(Level::error, event, fields);
}

}  // namespace motley::log
