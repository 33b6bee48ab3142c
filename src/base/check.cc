#include "base/check.h"

#include <cstdlib>

#include "base/cat.h"
#include "base/log.h"

namespace motley {

void check_failed(const char* file, int line, std::string_view condition,
                  std::string_view explanation) {
  log::write_before_end(log::failure_line(
      cat("broken invariant at ", file, ":", line, ": ", condition, " (", explanation, ")")));
  std::abort();
}

}  // namespace motley
