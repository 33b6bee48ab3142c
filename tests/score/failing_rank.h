#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dist/communicator.h"

namespace motley::score_tests {

// A rank whose device fails in the middle of a step, at that sum over ranks; or which then takes
// part in nothing any more, and does not say so.
class FailingRank final : public dist::Communicator {
 public:
  enum class Fault : std::uint8_t { fails, stays_away };
  FailingRank(dist::Communicator& ranks, int sums, Fault fault = Fault::fails)
      : ranks_(ranks), sums_(sums), fault_(fault) {}

  int rank() const override { return ranks_.rank(); }
  int ranks() const override { return ranks_.ranks(); }
  Result<void> all_reduce(std::span<float> numbers, Part part, const Crossing& crossing) override {
    if (is_away()) return {};
    return ranks_.all_reduce(numbers, part, crossing);
  }
  bool fits_norm(const kernels::AddAndNorm& rows, DType type) const override {
    return ranks_.fits_norm(rows, type);
  }
  Result<void> sum_and_norm(const kernels::AddAndNorm& rows, Part part,
                            const Crossing& crossing) override {
    if (is_away()) return {};
    return ranks_.sum_and_norm(rows, part, crossing);
  }
  Result<void> all_max(std::span<float> numbers, Part part, StreamHandle stream) override {
    if (fault_ == Fault::stays_away && sums_ < 0) return {};
    return ranks_.all_max(numbers, part, stream);
  }
  Result<void> reduce_scatter(std::span<const float> numbers, std::span<float> own,
                              StreamHandle stream) override {
    return ranks_.reduce_scatter(numbers, own, stream);
  }
  Result<void> all_gather(const Columns& columns) override {
    if (fault_ == Fault::stays_away && sums_ < 0) return {};
    return ranks_.all_gather(columns);
  }
  Result<void> gather_parts(const Parts& parts) override {
    if (fault_ == Fault::stays_away && sums_ < 0) return {};
    ++gathered_parts_;
    return ranks_.gather_parts(parts);
  }
  Result<void> broadcast(std::span<std::byte> bytes, int root, StreamHandle stream) override {
    return ranks_.broadcast(bytes, root, stream);
  }
  Result<void> barrier(StreamHandle stream) override { return ranks_.barrier(stream); }
  int gathered_parts() const { return gathered_parts_; }
  void fail(const Error& error) override { ranks_.fail(error); }
  Result<void> status() const override { return ranks_.status(); }

 private:
  bool is_away() {
    const bool faulty = sums_ <= 0;
    if (sums_-- == 0 && fault_ == Fault::fails) fail(Error(ErrorCode::io, "the device is gone"));
    return faulty && fault_ == Fault::stays_away;
  }

  dist::Communicator& ranks_;
  int sums_;
  int gathered_parts_ = 0;
  Fault fault_;
};

}  // namespace motley::score_tests
