#pragma once

#include <cstddef>
#include <cstdint>

#include "base/function_ref.h"

namespace motley {

// Calls body(i) once for every i below `count`, on the calling thread and on others that end with
// the call; they take the indices in order. For work that a server does while it serves: there are
// at most eight threads, no more than processors, and the others yield to threads that run steps.
// `bytes` is what all bodies read together; little work gets few threads. Threads that can't be
// started are done without. A body must not throw, except std::bad_alloc, which is thrown again
// once all threads have ended; bodies that have not begun are then not called.
void for_each_index(std::size_t count, std::uint64_t bytes, FunctionRef<void(std::size_t i)> body);

}  // namespace motley
