#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/execution/executor.h"
#include "ops/context.h"
#include "runner/runner.h"
#include "tensor/buffer.h"
#include "tensor/device/device.h"

namespace motley::engine {

// Log-probabilities of prompts' tokens in a step, computed on the device.
class PromptScores {
 public:
  struct Options {
    std::int64_t rows = 0;        // of a step
    std::int64_t piece_rows = 0;  // of a read() call
    int top = max_top_logprobs;   // alternatives to a token, at most
  };

  static Result<std::unique_ptr<PromptScores>> create(tensor::Device& device,
                                                      const Options& options);

  void begin();
  // Reads logits [n, vocabulary] of these rows of the step's chunks, in order of rows, and extends
  // the chunks' results.
  Result<void> read(std::span<ChunkOutput> outputs, const ops::Context& context,
                    tensor::Stream& stream, const tensor::Tensor& logits,
                    std::span<const runner::LogitRow> rows);

  // Alternatives to a token, at most.
  int top() const { return top_; }

 private:
  PromptScores(const Options& options, tensor::Buffer device, tensor::Buffer host);

  // Results for a piece of n rows, in device or host memory.
  struct Piece {
    tensor::Tensor targets;             // [n, 1]
    tensor::Tensor logprobs;            // [n, 1]
    tensor::Tensor ranks;               // [n, 1]
    tensor::Tensor likeliest;           // [n, top]
    tensor::Tensor likeliest_logprobs;  // [n, top]
  };
  static Piece piece_in(const tensor::Buffer& memory, std::int64_t rows, std::int64_t top);

  int top_;
  tensor::Buffer device_;
  tensor::Buffer host_;
  std::vector<float> logprobs_;
  std::vector<std::int32_t> ranks_;
  std::vector<TopLogprob> tops_;
};

}  // namespace motley::engine
