#pragma once

#include <string>
#include <string_view>

namespace motley {

// Prints the broken invariant with its place on standard error, and aborts.
[[noreturn]] void check_failed(const char* file, int line, std::string_view condition,
                               std::string_view explanation);

}  // namespace motley

// An invariant of our own code, checked in every build. What a user, a file or a request can cause
// is never checked like this: it is an Error.
// An expression, so that compilers see at any level of optimisation that MOTLEY_CHECK(false, ...)
// does not return.
#define MOTLEY_CHECK(condition, explanation) \
  ((condition) ? static_cast<void>(0)        \
               : ::motley::check_failed(__FILE__, __LINE__, #condition, explanation))

// The same where a check would cost too much in a release build.
#ifdef MOTLEY_DEBUG
#define MOTLEY_DCHECK(condition, explanation) MOTLEY_CHECK(condition, explanation)
#else
#define MOTLEY_DCHECK(condition, explanation) static_cast<void>(0)
#endif
