#pragma once

#include <chrono>

#include <boost/asio/io_context.hpp>

#include "base/function_ref.h"

namespace motley::server {

// Descriptors or memory have run out; others may be released meanwhile.
inline constexpr auto shortage_pause = std::chrono::milliseconds(50);

// Runs the context in this thread until it has no work, after `prepare`. If memory runs out, both
// are done again. Our code does not throw, but the standard library does: this is for operations
// that belong to no connection's coroutine.
void run_context(boost::asio::io_context& context, FunctionRef<void()> prepare);

}  // namespace motley::server
