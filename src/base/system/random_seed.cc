#include "base/system/random_seed.h"

#include <sys/random.h>

#include "base/check.h"

namespace motley {

// Not std::random_device: in a static libstdc++ it may need a newer glibc than all else does.
std::uint64_t random_seed() {
  std::uint64_t bits = 0;
  // So few bytes come whole, and no signal interrupts them.
  MOTLEY_CHECK(::getrandom(&bits, sizeof bits, 0) == sizeof bits, "no random numbers");
  return bits;
}

}  // namespace motley
