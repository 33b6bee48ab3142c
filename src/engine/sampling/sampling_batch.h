#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/system/clock.h"
#include "engine/requests/events.h"
#include "engine/sampling/device_table.h"
#include "engine/sampling/penalty_counts.h"
#include "engine/sampling/sampling_state.h"
#include "ops/context.h"
#include "tensor/device/device.h"

namespace motley::engine {

// Draws the tokens of a step on the device. Owns the tables that choices refer to, at fixed
// addresses, and their host copies. A step is begin(), launch() for each piece of its logits, and
// collect(); after the stream has passed, drawn() returns the results.
class SamplingBatch {
 public:
  struct Options {
    std::int64_t rows = 0;        // drawn in a step
    std::int64_t piece_rows = 0;  // of one launch() call; at most `rows`
    std::int64_t vocabulary = 0;
    std::int64_t sequence_tokens = 0;  // of a sequence
    // Sequences whose penalty counts stay on the device, at least piece_rows. Beyond that counts
    // are made again when needed.
    std::int64_t counted_sequences = 64;
    // How long all draws of a step together wait for masks of grammars: at most this, and at most
    // half as long as the step has taken.
    Duration mask_patience = std::chrono::milliseconds(2);
  };

  // Allocates all memory that it will need, on the device and as pinned host memory.
  static Result<std::unique_ptr<SamplingBatch>> create(tensor::Device& device,
                                                       const Options& options);

  void begin();

  // Launches draws from logits [n, vocabulary] for these states, the next n rows of the step. The
  // states do not change yet.
  Result<void> launch(const ops::Context& context, tensor::Stream& stream,
                      const tensor::ConstTensor& logits, std::span<SamplingState* const> states);

  // Copies the step's results to the host.
  Result<void> collect(tensor::Stream& stream);

  struct Drawn {
    bool waits = false;  // nothing was drawn, because the state's mask has not arrived
    std::int32_t token = kernels::no_token_left;  // or kernels::logits_not_finite
    float logprob = 0;
    std::int32_t rank = 0;
    std::span<const TopLogprob> top = {};
    std::span<const std::int32_t> top_ranks = {};  // of named tokens, if they are ranked
  };
  // The result of row i of the step; the spans are valid until the next begin(). The state takes
  // the token by accept().
  Drawn drawn(std::int64_t row);

 private:
  // What draws write, by row of the step.
  struct Results {
    DeviceTable ids;
    DeviceTable log_probabilities;
    DeviceTable ranks;
    DeviceTable top_ids;
    DeviceTable top_log_probabilities;
    DeviceTable named_log_probabilities;  // by named token
    DeviceTable named_ranks;
    std::vector<TopLogprob> tops;  // [rows, max_named_tokens]
  };

  // How much of the tables that choices refer to is filled.
  struct Filled {
    std::int64_t masks = 0;  // rows
    std::int64_t biases = 0;
    std::int64_t named = 0;
  };

  explicit SamplingBatch(const Options& options) : options_(options) {}

  // These add to the host's tables, and set a choice's references to them.
  void add_mask(const grammar::Cursor& grammar, kernels::SampleChoice& choice);
  // After add_mask(): in the grammar's mask, or in a mask of their own.
  void add_token_rules(const SamplingState& state, kernels::SampleChoice& choice);
  void add_biases(const SamplingState& state, kernels::SampleChoice& choice);
  void add_named(const SamplingState& state, kernels::SampleChoice& choice);
  // Those that the choice names, in place of the most probable ones.
  void add_named_to(Drawn& drawn, const kernels::SampleChoice& choice,
                    std::span<TopLogprob> tops) const;
  // Uploads the rest of the tables, for the next rows.
  Result<void> upload(const Filled& before, std::int64_t rows, tensor::Stream& stream) const;

  Options options_;
  DeviceTable choices_;
  DeviceTable masks_;
  DeviceTable bias_ids_;
  DeviceTable biases_;
  DeviceTable named_ids_;
  PenaltyCounts counts_;
  Results results_;

  // Of the step so far:
  std::int64_t rows_ = 0;
  Filled filled_;
  bool with_log_probabilities_ = false;
  bool with_ranks_ = false;
  std::vector<char> waits_;  // by row: its mask has not arrived
  TimePoint began_;
  std::optional<TimePoint> masks_until_;
};

}  // namespace motley::engine
