#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// Options of a command in a file, --config FILE:
//   model: models/demo            # the positional
//   max-batch-tokens: 256         # --max-batch-tokens 256; names may have '_' for '-'
//   adapter: [a=x/a, b=x/b]       # --adapter a=x/a --adapter b=x/b
//   no-graphs: true               # a switch; false: not given
namespace motley::cli {

// A scalar as it is written; a map as JSON.
struct FileValue {
  std::string text;

  bool operator==(const FileValue&) const = default;
};

struct FileOption {
  std::string key;
  std::string where;                   // for errors: "server.yaml:3, port"
  std::vector<FileValue> values = {};  // none: null, or an empty list

  bool operator==(const FileOption&) const = default;
};

// YAML without anchors, aliases, tags, several documents or duplicate keys, or JSON.
Result<std::vector<FileOption>> read_config_file(const std::filesystem::path& path);

// The same of a text; `name` is the file's.
Result<std::vector<FileOption>> parse_config(std::string_view text, std::string_view name);

}  // namespace motley::cli
