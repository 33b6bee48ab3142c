#pragma once

#include <cstdint>

// Replaces the program's operator new by one that counts, so a test that uses it is a program of
// its own.
namespace motley {

// Since the program began, on all threads.
std::int64_t counted_allocations();

}  // namespace motley
