#include "base/check.h"

#include <cstdlib>

#include "base/cat.h"
#include "base/log.h"

namespace motley {

void check_failed(const char* file, int line, std::string_view condition,
                  std::string_view explanation) {
  const std::string text =
      cat("broken invariant at ", file, ":", line, ": ", condition, " (", explanation, ")\n");
  log::write_before_end(text);
  std::abort();
}

}  // namespace motley
