#include "cli/idle_memory.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace motley::cli {

void prepare_memory_return() {
#ifdef __GLIBC__
  // Arenas keep memory that other threads freed in them; four suffice for the allocating threads.
  ::mallopt(M_ARENA_MAX, 4);
  // Also keeps glibc from raising the threshold to the largest freed block.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 16 << 20);
#endif
}

bool IdleMemory::is_time(std::uint64_t begun, bool works, TimePoint now) {
  if (works || begun != begun_) busy_ = now;
  begun_ = begun;
  if (returned_ == begun || now - busy_ < rest || now - last_ < pause) return false;
  returned_ = begun;
  last_ = now;
  return true;
}

void return_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace motley::cli
