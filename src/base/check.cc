#include "base/check.h"

#include <cstdio>
#include <cstdlib>

#include "base/cat.h"

namespace motley {

void check_failed(const char* file, int line, std::string_view condition,
                  std::string_view explanation) {
  const std::string text =
      cat("broken invariant at ", file, ":", line, ": ", condition, " (", explanation, ")\n");
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
  std::abort();
}

}  // namespace motley
