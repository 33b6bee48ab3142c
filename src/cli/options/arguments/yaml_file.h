#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

namespace motley::cli {

// A key of a YAML file's map. Scalars that the value holds are texts as they are written, but for
// those inside maps, which have JSON's types; null and nothing are null.
struct YamlEntry {
  std::string key;
  std::size_t line = 0;
  json::Value value;
};

// The map that a text is; empty if it has no document. Refuses anchors, aliases, tags, a second
// document and deep nesting. Keys may be duplicates.
Result<std::vector<YamlEntry>> parse_yaml(std::string_view text, std::string_view name);

}  // namespace motley::cli
