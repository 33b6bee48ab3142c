#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/sampling/sampling_state.h"
#include "ops/context.h"
#include "tensor/buffer.h"
#include "tensor/device/device.h"

namespace motley::engine {

// How often each token occurs in sequences with penalties, a row for each sequence. Rows stay on
// the device, where draws keep them current; those that were not used longest are given to others.
class PenaltyCounts {
 public:
  struct Options {
    std::int64_t sequences = 0;  // with rows at a time; at least as many as one launch draws for
    std::int64_t vocabulary = 0;
    std::int64_t sequence_tokens = 0;  // at most, of a sequence
  };
  static Result<PenaltyCounts> create(tensor::Device& device, const Options& options);

  // Call before the rows of each launch.
  void begin_launch() { ++launches_; }
  // The row of this state, counted anew if it is not current. `draws`: the draw that follows counts
  // its token; without that the row is counted anew the next time.
  Result<std::int32_t> row_of(const ops::Context& context, tensor::Stream& stream,
                              const SamplingState& state, bool draws);
  // [sequences, vocabulary]
  tensor::Tensor view() const;

 private:
  struct Row {
    std::uint64_t state = 0;
    std::int64_t tokens = 0;  // counted
    std::uint64_t used = 0;   // by which launch
  };

  Options options_;
  tensor::Buffer tokens_;  // of a sequence that is counted
  tensor::Buffer counts_;
  std::vector<Row> rows_;
  std::uint64_t launches_ = 0;
};

}  // namespace motley::engine
