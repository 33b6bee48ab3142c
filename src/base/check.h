#pragma once

#include <string>
#include <string_view>

namespace motley {

// Prints the broken invariant with its place on standard error, and aborts.
[[noreturn]] void check_failed(const char* file, int line, std::string_view condition,
                               std::string_view explanation);

}  // namespace motley

// Checks an invariant of our own code, in every build. Never for what a user, a file or a request
// can cause: that is an Error. An expression, so that compilers see at any optimisation level that
// MOTLEY_CHECK(false, ...) does not return.
#define MOTLEY_CHECK(condition, explanation) \
  ((condition) ? static_cast<void>(0)        \
               : ::motley::check_failed(__FILE__, __LINE__, #condition, explanation))

// For checks that are too slow for release builds.
#ifdef MOTLEY_DEBUG
#define MOTLEY_DCHECK(condition, explanation) MOTLEY_CHECK(condition, explanation)
#else
#define MOTLEY_DCHECK(condition, explanation) static_cast<void>(0)
#endif
