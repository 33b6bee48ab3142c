#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/system/clock.h"
#include "engine/events.h"
#include "engine/sampling/sampling_state.h"
#include "ops/context.h"
#include "ops/sample.h"
#include "tensor/buffer.h"
#include "tensor/device/device.h"

namespace motley::engine {

// Draws the tokens of a step where its logits are: the tables that choices point into, at addresses
// that stay, and their images on the host. A step is begin(), launch() for each piece of its
// logits, collect(); once the stream has passed, drawn() has the answers.
class SamplingBatch {
 public:
  struct Options {
    std::int64_t rows = 0;        // drawn in a step
    std::int64_t piece_rows = 0;  // of one launch() call; at most `rows`
    std::int64_t vocabulary = 0;
    std::int64_t sequence_tokens = 0;  // of the longest sequence
    // Sequences whose penalties' counts stay on the device, at least piece_rows. Those of more are
    // counted again when their turn comes.
    std::int64_t counted_sequences = 64;
    // For masks of grammars that have not come when a step's rows are drawn, all together: at most
    // so long, and half as long as the step has taken by then.
    Duration mask_patience = std::chrono::milliseconds(2);
  };

  // Takes all memory that it will need, on the device and as pinned memory on the host.
  static Result<std::unique_ptr<SamplingBatch>> create(tensor::Device& device,
                                                       const Options& options);

  void begin();

  // Draws from logits [n, vocabulary] for these states, the next n rows of the step. Nothing is
  // taken by the states yet.
  Result<void> launch(const ops::Context& context, tensor::Stream& stream,
                      const tensor::ConstTensor& logits, std::span<SamplingState* const> states);

  // Brings the step's answers to the host.
  Result<void> collect(tensor::Stream& stream);

  struct Drawn {
    bool waits = false;  // nothing was drawn, because the state's mask has not come
    std::int32_t token = kernels::no_token_left;  // or kernels::logits_not_finite
    float logprob = 0;
    std::span<const TopLogprob> top = {};
  };
  // Row i of the step; the span is good until the next begin(). The state takes the token through
  // accept().
  Drawn drawn(std::int64_t row);

 private:
  // A table in the device's memory, and what is copied to or from it.
  struct Table {
    tensor::Buffer device;
    tensor::Buffer host;
  };
  // A row of counts, and whose it is.
  struct CountsRow {
    std::uint64_t state = 0;
    std::int64_t tokens = 0;  // counted
    std::uint64_t used = 0;   // by which launch() call
  };

  explicit SamplingBatch(const Options& options) : options_(options) {}
  static Result<Table> make_table(tensor::Device& device, std::int64_t bytes);
  template <class T>
  static T* host(const Table& table);
  template <class T>
  static T* device(const Table& table);

  // Add to the host's tables, and point a choice into them.
  void add_mask(const GrammarCursor& grammar, kernels::SampleChoice& choice);
  // Behind add_mask(): in the grammar's mask, or in one of their own.
  void add_token_rules(const SamplingState& state, kernels::SampleChoice& choice);
  void add_biases(const SamplingState& state, kernels::SampleChoice& choice);
  // The row of a state's counts, which are made anew where they are not as they should be.
  Result<void> add_counts(const ops::Context& context, tensor::Stream& stream,
                          const SamplingState& state, kernels::SampleChoice& choice);
  // Copies [begin, end) elements of a table to the device.
  template <class T>
  static Result<void> upload(const Table& table, std::int64_t begin, std::int64_t end,
                             tensor::Stream& stream);

  Options options_;
  Table choices_;
  Table masks_;
  Table bias_ids_;
  Table biases_;
  Table tokens_;  // of a sequence that is counted
  Table ids_;
  Table log_probabilities_;
  Table top_ids_;
  Table top_log_probabilities_;
  tensor::Buffer counts_;
  std::vector<CountsRow> counts_rows_;
  std::uint64_t calls_ = 0;
  std::int64_t masked_ = 0;  // rows of the masks
  std::vector<char> waits_;  // by row: its mask has not come
  TimePoint began_;
  std::optional<TimePoint> masks_until_;
  std::vector<TopLogprob> tops_;  // [rows, max_top_logprobs]

  std::int64_t rows_ = 0;  // of the step so far
  std::int64_t bias_count_ = 0;
  bool with_log_probabilities_ = false;
};

}  // namespace motley::engine
