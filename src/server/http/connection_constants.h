#pragma once

#include <chrono>
#include <cstddef>

#include "net/byte_stream.h"

// Shared by the files of Connection.
namespace motley::server {

using net::no_throw;
inline constexpr std::size_t piece_bytes = 16 << 10;
// What a client may send in vain: during an answer, and before its connection closes.
inline constexpr std::size_t linger_bytes = 64 << 20;
inline constexpr auto drain_linger_time = std::chrono::milliseconds(500);

}  // namespace motley::server
