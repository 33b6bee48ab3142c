#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "dist/layout.h"

namespace motley::dist {

// One rank's view of a group of ranks that compute a model together. All ranks make the same calls
// in the same order. A call returns when this rank's part is done and its arguments may be reused.
//
// The first error of any rank is final for the group: from then on every call, on every rank,
// returns that error, which names the rank. A wait for the other ranks is bounded.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Replaces the numbers by their sum over ranks, which is added in order of ranks: rank 0 + rank 1
  // + ... All ranks get the same bits. A rank that has no part (a shard of no heads) adds nothing.
  enum class Part : std::uint8_t { own, none };
  virtual Result<void> all_reduce(std::span<float> numbers, Part part) = 0;

  // own = this rank's part (deal) of the sum over ranks, which is added in the same order.
  virtual Result<void> reduce_scatter(std::span<const float> numbers, std::span<float> own) = 0;

  // Rows whose columns are dealt: each rank has some, and those that give an `out` get all.
  struct Columns {
    std::int64_t rows = 0;
    const float* own = nullptr;
    std::int64_t own_stride = 0;
    Range columns;  // of a row that this rank has; may be empty
    float* out = nullptr;
    std::int64_t out_stride = 0;
  };
  virtual Result<void> all_gather(const Columns& columns) = 0;

  // Replaces the bytes by those of the root.
  virtual Result<void> broadcast(std::span<std::byte> bytes, int root) = 0;

  virtual Result<void> barrier() = 0;

  // This rank can't go on. Ranks that wait for it return at once.
  virtual void fail(const Error& error) = 0;
  // The group's error, if any rank has failed.
  virtual Result<void> status() const = 0;
};

}  // namespace motley::dist
