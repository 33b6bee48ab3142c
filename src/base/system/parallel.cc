#include "base/system/parallel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <new>
#include <thread>
#include <unistd.h>

#include "base/system/cpu.h"
#include "base/system/out_of_memory.h"

namespace motley {
namespace {

// More threads would slow down the steps that run meanwhile.
constexpr std::uint64_t max_threads = 8;
// A thread costs about as much to start as a tenth of this to read.
constexpr std::uint64_t bytes_a_thread = 1 << 20;
// Of the helpers: where processors lack, threads that run steps go first.
constexpr int niceness = 10;

std::size_t threads_for(std::size_t count, std::uint64_t bytes) {
  const std::uint64_t wanted =
      std::min({bytes / bytes_a_thread, max_threads, std::uint64_t{count}});
  // The processors are counted only where there is work for several.
  if (wanted <= 1) return 1;
  return std::min<std::size_t>(wanted, static_cast<std::size_t>(usable_cpus()));
}

}  // namespace

void for_each_index(std::size_t count, std::uint64_t bytes, FunctionRef<void(std::size_t i)> body) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) body(i);
  };
  const std::size_t threads = threads_for(count, bytes);
  if (threads == 1) return work();

  std::atomic<bool> out_of_memory{false};
  const auto guarded = [&] {
    if (within_memory(work).ok()) return;
    out_of_memory = true;
    next = count;
  };
  std::array<std::thread, max_threads - 1> helpers;
  const auto start = [&](std::thread& helper) {
    helper = std::thread([&] {
      static_cast<void>(::nice(niceness));
      guarded();
    });
  };
  for (std::size_t i = 0; i < threads - 1; ++i) {
    // Those that are there do the work.
    if (!within_memory([&] { start(helpers[i]); }).ok()) break;
  }
  guarded();
  for (std::thread& helper : helpers) {
    if (helper.joinable()) helper.join();
  }
  if (out_of_memory) throw std::bad_alloc();
}

}  // namespace motley
