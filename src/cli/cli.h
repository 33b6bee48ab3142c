#pragma once

#include <span>
#include <string>

#include "cli/command.h"
#include "cli/options/arguments/environment.h"

namespace motley::cli {

// Runs the program: `words` are the arguments after its name. Returns the exit status; an error is
// the last line on standard error.
int run(std::span<const std::string> words, const Environment& environment, Output output,
        Output errors);

}  // namespace motley::cli
