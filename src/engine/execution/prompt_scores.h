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

  // The most of a piece's rows.
  struct Widths {
    std::int64_t top = 0;
    std::int64_t named = 0;

    // In numbers of four bytes.
    std::int64_t of_row() const { return 3 + 2 * top + 2 * named; }
  };
  // Results for a piece of n rows, in device or host memory.
  struct Piece {
    tensor::Tensor targets;             // [n, 1]
    tensor::Tensor logprobs;            // [n, 1]
    tensor::Tensor ranks;               // [n, 1]
    tensor::Tensor likeliest;           // [n, top]
    tensor::Tensor likeliest_logprobs;  // [n, top]
    tensor::Tensor named;               // [n, named]
    tensor::Tensor named_logprobs;      // [n, named]
  };
  static Piece piece_in(const tensor::Buffer& memory, std::int64_t rows, const Widths& widths);
  // Writes what a piece asks for, in host memory.
  static void ask(std::span<const ChunkOutput> outputs, std::span<const runner::LogitRow> rows,
                  const Widths& widths, const Piece& piece);
  // Extends a chunk's results by those of row i of a piece.
  void extend(ChunkOutput& output, const Piece& piece, const Widths& widths, std::size_t i);

  int top_;
  tensor::Buffer device_;
  tensor::Buffer host_;
  std::vector<float> logprobs_;
  std::vector<std::int32_t> ranks_;
  std::vector<TopLogprob> tops_;
  std::vector<float> named_;
};

}  // namespace motley::engine
