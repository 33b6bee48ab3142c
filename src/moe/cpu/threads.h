#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "base/system/thread_pool.h"
#include "ops/context.h"

namespace motley::moe {

// Like ThreadPool::for_tasks; without a pool it runs on the calling thread.
inline void for_tasks(const ops::Context& context, std::int64_t tasks,
                      FunctionRef<void(std::int64_t task)> body) {
  if (auto* const pool = static_cast<ThreadPool*>(context.stream.native)) {
    pool->for_tasks(tasks, body);
    return;
  }
  for (std::int64_t task = 0; task < tasks; ++task) body(task);
}

}  // namespace motley::moe
