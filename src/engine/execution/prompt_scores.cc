#include "engine/execution/prompt_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ops/logits.h"

namespace motley::engine {
namespace {

std::int64_t max_named(int top) { return std::min(top, max_named_tokens); }

}  // namespace

Result<std::unique_ptr<PromptScores>> PromptScores::create(tensor::Device& device,
                                                           const Options& options) {
  const Widths widths{.top = options.top, .named = max_named(options.top)};
  const auto bytes =
      static_cast<std::size_t>(options.piece_rows * widths.of_row()) * sizeof(std::int32_t);
  MOTLEY_TRY(tensor::Buffer on_device, device.allocate(bytes));
  MOTLEY_TRY(tensor::Buffer on_host, device.pinned_memory().allocate(bytes));
  return std::unique_ptr<PromptScores>(
      new PromptScores(options, std::move(on_device), std::move(on_host)));
}

PromptScores::PromptScores(const Options& options, tensor::Buffer device, tensor::Buffer host)
    : top_(options.top), device_(std::move(device)), host_(std::move(host)) {
  // Results are spans of these vectors, so they must not reallocate.
  logprobs_.reserve(static_cast<std::size_t>(options.rows));
  ranks_.reserve(static_cast<std::size_t>(options.rows));
  tops_.reserve(static_cast<std::size_t>(options.rows * options.top));
  named_.reserve(static_cast<std::size_t>(options.rows * max_named(options.top)));
}

void PromptScores::begin() {
  logprobs_.clear();
  ranks_.clear();
  tops_.clear();
  named_.clear();
}

PromptScores::Piece PromptScores::piece_in(const tensor::Buffer& memory, std::int64_t rows,
                                           const Widths& widths) {
  std::int64_t first = 0;
  const auto next = [&](DType dtype, std::int64_t width) {
    const std::int64_t begin = std::exchange(first, first + rows * width);
    return memory.view(dtype, {rows, width},
                       static_cast<std::size_t>(begin) * sizeof(std::int32_t));
  };
  Piece piece;
  piece.targets = next(DType::i32, 1);
  piece.logprobs = next(DType::f32, 1);
  piece.ranks = next(DType::i32, 1);
  piece.likeliest = next(DType::i32, widths.top);
  piece.likeliest_logprobs = next(DType::f32, widths.top);
  piece.named = next(DType::i32, widths.named);
  piece.named_logprobs = next(DType::f32, widths.named);
  return piece;
}

void PromptScores::ask(std::span<const ChunkOutput> outputs, std::span<const runner::LogitRow> rows,
                       const Widths& widths, const Piece& piece) {
  const auto most = static_cast<std::size_t>(widths.named);
  std::fill_n(piece.named.data<std::int32_t>(), rows.size() * most, 0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ChunkOutput& output = outputs[rows[i].chunk];
    std::int32_t& target = piece.targets.data<std::int32_t>()[i];
    target = 0;
    if (!output.scores(rows[i].token)) continue;
    const std::size_t at = rows[i].token - output.first_scored;
    target = output.scored[at];
    const std::size_t width = output.named_width();
    for (std::size_t k = 0; k < width; ++k)
      piece.named.data<std::int32_t>()[i * most + k] = std::max(output.named[at * width + k], 0);
  }
}

Result<void> PromptScores::read(std::span<ChunkOutput> outputs, const ops::Context& context,
                                tensor::Stream& stream, const tensor::Tensor& logits,
                                std::span<const runner::LogitRow> rows) {
  const auto is_scored = [&](const runner::LogitRow& row) {
    return outputs[row.chunk].scores(row.token);
  };
  if (std::ranges::none_of(rows, is_scored)) return {};
  const auto count = static_cast<std::int64_t>(rows.size());
  Widths widths;
  for (const runner::LogitRow& row : rows) {
    const ChunkOutput& output = outputs[row.chunk];
    widths.top = std::max<std::int64_t>(widths.top, output.top);
    widths.named = std::max(widths.named, static_cast<std::int64_t>(output.named_width()));
  }
  const Piece there = piece_in(device_, count, widths);
  const Piece here = piece_in(host_, count, widths);
  ask(outputs, rows, widths, here);
  MOTLEY_TRY_VOID(tensor::copy_tensor(here.targets, there.targets, stream));
  ops::log_probabilities(context, logits, there.targets, there.logprobs, there.ranks);
  if (widths.top > 0) {
    ops::top_k(context, logits, there.likeliest);
    ops::log_probabilities(context, logits, there.likeliest, there.likeliest_logprobs);
  }
  if (widths.named > 0) {
    MOTLEY_TRY_VOID(tensor::copy_tensor(here.named, there.named, stream));
    ops::log_probabilities(context, logits, there.named, there.named_logprobs);
  }
  const auto bytes = static_cast<std::size_t>(count * widths.of_row()) * sizeof(std::int32_t);
  // The ids that were asked for come back with the results.
  MOTLEY_TRY_VOID(stream.copy(host_.data(), device_.data(), bytes));
  MOTLEY_TRY_VOID(stream.synchronize());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ChunkOutput& output = outputs[rows[i].chunk];
    if (!is_scored(rows[i])) continue;
    extend(output, here, widths, i);
    const std::size_t done = rows[i].token - output.first_scored + 1;
    output.logprobs = std::span<const float>(logprobs_).last(done);
    output.ranks = std::span<const std::int32_t>(ranks_).last(done);
    output.logprobs_top =
        std::span<const TopLogprob>(tops_).last(done * static_cast<std::size_t>(output.top));
    output.logprobs_named = std::span<const float>(named_).last(done * output.named_width());
  }
  return {};
}

void PromptScores::extend(ChunkOutput& output, const Piece& piece, const Widths& widths,
                          std::size_t i) {
  logprobs_.push_back(piece.logprobs.data<float>()[i]);
  ranks_.push_back(piece.ranks.data<std::int32_t>()[i]);
  output.scores_finite = output.scores_finite && !std::isnan(logprobs_.back());
  const std::size_t first = i * static_cast<std::size_t>(widths.top);
  for (std::size_t k = first; k < first + static_cast<std::size_t>(output.top); ++k)
    tops_.push_back({.token = piece.likeliest.data<std::int32_t>()[k],
                     .logprob = piece.likeliest_logprobs.data<float>()[k]});
  // The chunk's results so far are those of its rows before.
  const std::size_t at = output.logprobs.size();
  const std::size_t width = output.named_width();
  for (std::size_t k = 0; k < width; ++k) {
    const bool is_token = output.named[at * width + k] >= 0;
    named_.push_back(
        is_token
            ? piece.named_logprobs.data<float>()[i * static_cast<std::size_t>(widths.named) + k]
            : -std::numeric_limits<float>::infinity());
  }
}

}  // namespace motley::engine
