#include "engine/execution/prompt_scores.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/logits.h"

namespace motley::engine {
namespace {

std::size_t piece_bytes(std::int64_t rows, std::int64_t top) {
  return static_cast<std::size_t>(rows * (3 + 2 * top)) * sizeof(std::int32_t);
}

}  // namespace

Result<std::unique_ptr<PromptScores>> PromptScores::create(tensor::Device& device,
                                                           const Options& options) {
  const std::size_t bytes = piece_bytes(options.piece_rows, options.top);
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
}

void PromptScores::begin() {
  logprobs_.clear();
  ranks_.clear();
  tops_.clear();
}

PromptScores::Piece PromptScores::piece_in(const tensor::Buffer& memory, std::int64_t rows,
                                           std::int64_t top) {
  const auto at = [&](DType dtype, std::int64_t first, std::int64_t width) {
    return memory.view(dtype, {rows, width},
                       static_cast<std::size_t>(first) * sizeof(std::int32_t));
  };
  return {.targets = at(DType::i32, 0, 1),
          .logprobs = at(DType::f32, rows, 1),
          .ranks = at(DType::i32, 2 * rows, 1),
          .likeliest = at(DType::i32, 3 * rows, top),
          .likeliest_logprobs = at(DType::f32, 3 * rows + rows * top, top)};
}

Result<void> PromptScores::read(std::span<ChunkOutput> outputs, const ops::Context& context,
                                tensor::Stream& stream, const tensor::Tensor& logits,
                                std::span<const runner::LogitRow> rows) {
  const auto is_scored = [&](const runner::LogitRow& row) {
    return row.token < outputs[row.chunk].scored.size();
  };
  if (std::ranges::none_of(rows, is_scored)) return {};
  const auto count = static_cast<std::int64_t>(rows.size());
  int most = 0;
  for (const runner::LogitRow& row : rows) most = std::max(most, outputs[row.chunk].top);
  const Piece there = piece_in(device_, count, most);
  const Piece here = piece_in(host_, count, most);
  for (std::size_t i = 0; i < rows.size(); ++i)
    here.targets.data<std::int32_t>()[i] =
        is_scored(rows[i]) ? outputs[rows[i].chunk].scored[rows[i].token] : 0;
  MOTLEY_TRY_VOID(tensor::copy_tensor(here.targets, there.targets, stream));
  ops::log_probabilities(context, logits, there.targets, there.logprobs, there.ranks);
  if (most > 0) {
    ops::top_k(context, logits, there.likeliest);
    ops::log_probabilities(context, logits, there.likeliest, there.likeliest_logprobs);
  }
  MOTLEY_TRY_VOID(stream.copy(host_.data(), device_.data(), piece_bytes(count, most)));
  MOTLEY_TRY_VOID(stream.synchronize());

  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!is_scored(rows[i])) continue;
    ChunkOutput& output = outputs[rows[i].chunk];
    logprobs_.push_back(here.logprobs.data<float>()[i]);
    ranks_.push_back(here.ranks.data<std::int32_t>()[i]);
    output.scores_finite = output.scores_finite && !std::isnan(logprobs_.back());
    const std::size_t first = i * static_cast<std::size_t>(most);
    const auto top = static_cast<std::size_t>(output.top);
    for (std::size_t k = first; k < first + top; ++k)
      tops_.push_back({.token = here.likeliest.data<std::int32_t>()[k],
                       .logprob = here.likeliest_logprobs.data<float>()[k]});
    const std::size_t done = rows[i].token + 1;
    output.logprobs = std::span<const float>(logprobs_).last(done);
    output.ranks = std::span<const std::int32_t>(ranks_).last(done);
    output.logprobs_top = std::span<const TopLogprob>(tops_).last(done * top);
  }
  return {};
}

}  // namespace motley::engine
