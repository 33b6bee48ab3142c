#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace motley::server {

// What becomes of pushes of adapters. Thread-safe.
class PushCounts {
 public:
  enum class Outcome : std::uint8_t { done, repeated, conflict, no_room, refused, failed };
  static constexpr std::array<std::string_view, 6> names = {"done",    "repeated", "conflict",
                                                            "no_room", "refused",  "failed"};

  // By the status of the answer.
  void count(int status);
  void count(Outcome outcome) { ++outcomes_[static_cast<std::size_t>(outcome)]; }
  void add_bytes(std::uint64_t bytes) { bytes_ += bytes; }

  std::uint64_t of(Outcome outcome) const { return outcomes_[static_cast<std::size_t>(outcome)]; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::array<std::atomic<std::uint64_t>, names.size()> outcomes_ = {};
  std::atomic<std::uint64_t> bytes_{0};
};

struct PushFigures {
  std::uint64_t used_bytes = 0;
  std::uint64_t limit_bytes = 0;
  std::uint64_t contents = 0;
};

// Further metrics: of pushes, and of what is held of them.
std::string push_metrics(const PushCounts& counts, const PushFigures& held);

}  // namespace motley::server
