#pragma once

#include <filesystem>

#include "wide/wide_golden.h"

namespace motley::wide_tests {

// Writes the plain checkpoint that a golden's quantised one in `stored` stands for: in float32 what
// was quantised, which that holds exactly, and all else as it is.
void write_decoded(const WideGolden& golden, const std::filesystem::path& stored,
                   const std::filesystem::path& to);

}  // namespace motley::wide_tests
