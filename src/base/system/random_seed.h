#pragma once

#include <cstdint>

namespace motley {

// 64 random bits of the kernel: different for each call, thread and process.
std::uint64_t random_seed();

}  // namespace motley
