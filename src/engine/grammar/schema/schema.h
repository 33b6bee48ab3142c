#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "engine/sampling/sampling_params.h"

namespace motley::engine {

enum class SchemaReading : std::uint8_t {
  // As authors mean it: objects hold what they name unless they say otherwise, keywords of one type
  // ask for that type, and a pattern without ^ and $ is the whole text.
  as_meant,
  // As JSON Schema defines it, which allows more.
  to_the_letter,
};

// A schema as the compiler can hold it.
struct ReadableSchema {
  // Every answer that follows it follows the client's schema, but for what `unenforced` names.
  json::Value schema;
  // Places of the client's schema that no grammar holds, at most 64: "properties.tags.uniqueItems".
  // ASCII without blanks and commas, other bytes as %XX.
  std::vector<std::string> unenforced;
};

// `invalid_argument` for what is no schema, exceeds the limits of check_schema(), or what no value
// satisfies. `where` is what messages call the schema.
Result<ReadableSchema> read_schema(const json::Value& schema, std::string_view where,
                                   SchemaReading reading = SchemaReading::as_meant);

struct ReadableSpec {
  GrammarSpec spec;
  std::vector<std::string> unenforced;  // of schemas in a structural tag, behind their places in it
};

// The same for all schemas of a spec. A spec without any stays as it is.
Result<ReadableSpec> read_schemas(const GrammarSpec& spec);

}  // namespace motley::engine
