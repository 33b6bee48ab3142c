#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "dist/communicator.h"

namespace motley::gpu_tests {

// Several ranks on one GPU and one thread, of which each runs all it does before the next: rank 0
// comes last, and gets the parts of the others. For calls that gather parts once and do nothing
// else together.
class RanksInTurn final : public dist::Communicator {
 public:
  explicit RanksInTurn(int ranks) : rank_(ranks - 1), parts_(static_cast<std::size_t>(ranks)) {}

  void next() { --rank_; }
  int gathered() const { return gathered_; }

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(parts_.size()); }
  Result<void> gather_parts(const Parts& parts) override {
    ++gathered_;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const auto bytes = static_cast<std::size_t>(parts.bytes);
    parts_[static_cast<std::size_t>(rank_)].resize(bytes);
    copy(parts_[static_cast<std::size_t>(rank_)].data(), parts.data + rank_ * parts.bytes, bytes);
    // What stands in the other parts must not be used.
    EXPECT_EQ(cudaMemset(parts.data, 0xFF, bytes * parts_.size()), cudaSuccess);
    std::byte* to = parts.data;
    for (const std::vector<std::byte>& part : parts_) {
      if (!part.empty()) copy(to, part.data(), bytes);
      to += bytes;
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return {};
  }

  Result<void> all_reduce(std::span<float>, Part, const Crossing&) override { return {}; }
  Result<void> all_max(std::span<float>, Part, StreamHandle) override { return {}; }
  Result<void> reduce_scatter(std::span<const float>, std::span<float>, StreamHandle) override {
    return {};
  }
  Result<void> all_gather(const Columns&) override { return {}; }
  Result<void> broadcast(std::span<std::byte>, int, StreamHandle) override { return {}; }
  Result<void> barrier(StreamHandle) override { return {}; }
  void fail(const Error&) override {}
  Result<void> status() const override { return {}; }

 private:
  static void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    EXPECT_EQ(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), cudaSuccess);
  }

  int rank_;
  int gathered_ = 0;
  std::vector<std::vector<std::byte>> parts_;
};

}  // namespace motley::gpu_tests
