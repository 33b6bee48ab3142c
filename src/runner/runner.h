#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "lora/batch.h"
#include "model/model.h"
#include "runner/kv_memory.h"
#include "tensor/device.h"

namespace motley::runner {

// A sequence as far as it has been computed: its pages hold the keys and values of `length` tokens.
struct Sequence {
  explicit Sequence(KvMemory& memory) : pages(&memory) {}

  PageList pages;
  std::int64_t length = 0;
};

enum class LogitsOf : std::uint8_t { none, last, all };

// The next tokens of a sequence, under one mix of adapters: a piece of a prompt, or a single token.
struct Chunk {
  Sequence* sequence = nullptr;
  std::span<const std::int32_t> tokens;
  lora::Mix mix;
  LogitsOf logits = LogitsOf::last;
};

// Logits [n, vocabulary] (f32) of some rows of a step; rows[i] says whose row i is.
struct LogitRow {
  std::size_t chunk = 0;
  std::size_t token = 0;  // inside the chunk
};
using LogitsSink = FunctionRef<void(const tensor::Tensor& logits, std::span<const LogitRow> rows)>;

// Runs steps: any mix of chunks at once. Owns keys and values and all memory that a step works in;
// after warm-up a step takes nothing from the heap.
class Runner {
 public:
  struct Options {
    std::int64_t max_rows = 512;       // of a step, all chunks together
    std::int64_t max_sequences = 256;  // of a step
    std::int64_t max_tokens = 4096;    // of one sequence
    std::int64_t pages = 0;            // of keys and values
    std::int64_t logit_rows = 32;      // that get logits at a time
  };

  // Model and device must outlive the runner.
  static Result<std::unique_ptr<Runner>> create(const model::Model& model, tensor::Device& device,
                                                const Options& options);

  KvMemory& kv() { return kv_; }
  const Options& options() const { return options_; }
  tensor::Stream& stream() { return *stream_; }

  // Every chunk has at least one token; together they fit the options, and the free pages hold what
  // the sequences grow by. Logits reach the sink in order of rows.
  void step(std::span<const Chunk> chunks, LogitsSink sink);

 private:
  Runner(const model::Model& model, const Options& options, KvMemory kv,
         std::unique_ptr<tensor::Stream> stream, model::Model::Workspace workspace,
         tensor::Buffer memory);

  void lay_out(std::span<const Chunk> chunks);
  void emit_logits(const tensor::Tensor& hidden, LogitsSink sink);

  const model::Model* model_;
  Options options_;
  KvMemory kv_;
  std::unique_ptr<tensor::Stream> stream_;
  model::Model::Workspace workspace_;
  tensor::Arena arena_;  // a step's hidden states, rows that get logits, and logits

  // The layout of the step at hand.
  lora::Batch adapters_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> seq_begin_;
  std::vector<std::int32_t> block_table_;
  std::int64_t table_width_ = 0;
  std::vector<lora::Mix> mixes_;
  std::vector<LogitRow> logit_rows_;
  std::vector<std::int32_t> logit_places_;  // rows of the step
  std::vector<std::int32_t> logit_labels_;
};

}  // namespace motley::runner
