#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "cli/cli.h"

namespace motley::cli {

// For tests: the result of running the program. Without an environment there is no Hugging Face
// cache.
struct Outcome {
  int status = 0;
  std::string output;
  std::string errors;
};

inline Outcome motley(const std::vector<std::string>& words, const Environment& environment = {}) {
  Outcome outcome;
  auto output = [&](std::string_view text) { outcome.output += text; };
  auto errors = [&](std::string_view text) { outcome.errors += text; };
  outcome.status = run(words, environment, output, errors);
  return outcome;
}

// The output of --json.
inline std::vector<json::Value> lines(const std::string& output) {
  std::vector<json::Value> values;
  for (std::size_t at = 0; at < output.size();) {
    const std::size_t end = output.find('\n', at);
    values.push_back(json::parse(output.substr(at, end - at), "bench").value());
    at = end + 1;
  }
  return values;
}
inline double number(const json::Value& line, std::string_view key) {
  return line.if_object()->find(key)->as_number("bench").value();
}

}  // namespace motley::cli
