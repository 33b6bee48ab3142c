#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/cli.h"

namespace motley::cli {

// A call of the program and what came of it: for tests.
struct Outcome {
  int status = 0;
  std::string output;
  std::string errors;
};

inline Outcome motley(const std::vector<std::string>& words) {
  Outcome outcome;
  auto output = [&](std::string_view text) { outcome.output += text; };
  auto errors = [&](std::string_view text) { outcome.errors += text; };
  outcome.status = run(words, output, errors);
  return outcome;
}

}  // namespace motley::cli
