#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace motley::engine::schema {

// The texts of one `format`: all of them as far as a regular expression can tell, or fewer, and
// none that common parsers (Python's standard library, pydantic, jsonschema) refuse.
struct Format {
  // As the compiler matches it against whole strings of JSON: ASCII, without ^ and $, and without
  // characters that JSON escapes.
  std::string pattern;
  std::int64_t shortest = 0;            // characters
  std::optional<std::int64_t> longest;  // nothing where there is no end
};

// Null where no grammar holds it.
const Format* find_format(std::string_view name);

}  // namespace motley::engine::schema
