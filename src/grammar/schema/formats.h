#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace motley::grammar::schema {

// The texts of one `format`: all that a regular expression can describe, or fewer, but none that
// common parsers (Python's standard library, pydantic, jsonschema) refuse.
struct Format {
  // For the compiler, which matches it against whole JSON strings: ASCII, without ^ and $, and
  // without characters that JSON escapes.
  std::string pattern;
  std::int64_t shortest = 0;            // characters
  std::optional<std::int64_t> longest;  // nothing: unlimited
};

// Null if no grammar can express it.
const Format* find_format(std::string_view name);

}  // namespace motley::grammar::schema
