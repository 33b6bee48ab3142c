#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "grammar/spec.h"

namespace motley::grammar {

enum class SchemaReading : std::uint8_t {
  // As authors usually mean it: objects have only the named properties unless stated otherwise,
  // keywords of one type imply that type, and a pattern without ^ and $ matches the whole text.
  as_meant,
  // As JSON Schema defines it, which allows more.
  to_the_letter,
};

// A schema rewritten for the compiler.
struct ReadableSchema {
  // Every answer that satisfies it satisfies the client's schema, except for the keywords in
  // `unenforced`.
  json::Value schema;
  // Keywords of the client's schema that no grammar enforces, at most 64:
  // "properties.tags.uniqueItems". ASCII without blanks and commas, other bytes as %XX.
  std::vector<std::string> unenforced;
};

// `invalid_argument` if it is no schema, exceeds the limits of check_schema(), or is satisfied by
// no value. `where` names the schema in messages.
Result<ReadableSchema> read_schema(const json::Value& schema, std::string_view where,
                                   SchemaReading reading = SchemaReading::as_meant);

struct ReadableSpec {
  Spec spec;
  std::vector<std::string> unenforced;  // of schemas in a structural tag, after their places in it
};

// The same for all schemas of a spec. A spec without schemas is unchanged.
Result<ReadableSpec> read_schemas(const Spec& spec);

}  // namespace motley::grammar
