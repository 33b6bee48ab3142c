#pragma once

#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"
#include "cli/options/arguments/arguments.h"

namespace motley::cli {

// Receives a command's result piece by piece: standard output, or a test's string.
using Output = FunctionRef<void(std::string_view)>;

struct Command {
  CommandSpec spec;
  Result<void> (*run)(const Arguments& arguments, Output output) = nullptr;
  bool logs = true;
};

Command ask_command();
Command bench_command();
Command chat_command();
Command inspect_command();
Command score_command();
Command serve_command();
Command tokenize_command();

}  // namespace motley::cli
