#pragma once

#include <cstddef>
#include <span>

#include "dist/communicator.h"

namespace motley::score_tests {

// A rank whose device fails in the middle of a step: at that sum over ranks.
class FailingRank final : public dist::Communicator {
 public:
  FailingRank(dist::Communicator& ranks, int sums) : ranks_(ranks), sums_(sums) {}

  int rank() const override { return ranks_.rank(); }
  int ranks() const override { return ranks_.ranks(); }
  Result<void> all_reduce(std::span<float> numbers, Part part) override {
    if (sums_-- == 0) fail(Error(ErrorCode::io, "the device is gone"));
    return ranks_.all_reduce(numbers, part);
  }
  Result<void> reduce_scatter(std::span<const float> numbers, std::span<float> own) override {
    return ranks_.reduce_scatter(numbers, own);
  }
  Result<void> all_gather(const Columns& columns) override { return ranks_.all_gather(columns); }
  Result<void> broadcast(std::span<std::byte> bytes, int root) override {
    return ranks_.broadcast(bytes, root);
  }
  Result<void> barrier() override { return ranks_.barrier(); }
  void fail(const Error& error) override { ranks_.fail(error); }
  Result<void> status() const override { return ranks_.status(); }

 private:
  dist::Communicator& ranks_;
  int sums_;
};

}  // namespace motley::score_tests
