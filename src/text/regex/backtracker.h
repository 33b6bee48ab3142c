#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "text/chat/marked_text.h"
#include "text/regex/alphabet.h"
#include "text/regex/program.h"

namespace motley::text::regex {

// The leftmost match from byte `from` on; counts `steps`. An error if it takes more than
// `max_steps`, or more memory than reasonable patterns need.
Result<std::optional<Span>> backtrack(const Program& program, const Alphabet& alphabet,
                                      std::string_view text, std::size_t from,
                                      std::size_t max_steps, std::size_t& steps);

// The error of a search that exceeds its limit of steps.
Error too_many_steps();

}  // namespace motley::text::regex
