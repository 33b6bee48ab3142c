#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "base/json/json.h"

namespace motley::cli {

// One finding: a field of the JSON, and a line of the text.
struct Fact {
  std::string key;  // "layers"; '_' becomes a space in the text
  json::Value value;
  std::string text;
};

// The findings about a folder, as far as it could be read.
struct Findings {
  std::vector<Fact> facts;
  // Why loading it would fail, on one line.
  std::optional<std::string> refusal;

  void add(std::string key, json::Value value, std::string text) {
    facts.push_back({std::move(key), std::move(value), std::move(text)});
  }
  void add(std::string key, std::int64_t number) { add(std::move(key), number, cat(number)); }
  void add(std::string key, std::string_view text) {
    add(std::move(key), json::Value(text), printable(text));
  }
  void add_bytes(std::string key, std::int64_t bytes);
};

}  // namespace motley::cli
