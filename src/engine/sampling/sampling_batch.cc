#include "engine/sampling/sampling_batch.h"

#include <algorithm>

#include "base/check.h"
#include "ops/sample.h"

namespace motley::engine {

Result<std::unique_ptr<SamplingBatch>> SamplingBatch::create(tensor::Device& device,
                                                             const Options& options) {
  MOTLEY_CHECK(options.piece_rows >= 1 && options.piece_rows <= options.rows, "rows of a piece");
  MOTLEY_CHECK(options.counted_sequences >= options.piece_rows, "counts for a piece");
  std::unique_ptr<SamplingBatch> batch(new SamplingBatch(options));
  const std::int64_t rows = options.rows;
  constexpr std::int64_t number = 4;  // bytes of an i32, u32 or f32
  const std::int64_t words = (options.vocabulary + 31) / 32;
  const std::int64_t biases = rows * max_row_biases;
  const std::int64_t tops = rows * max_top_logprobs;
  constexpr auto choice = static_cast<std::int64_t>(sizeof(kernels::SampleChoice));
  MOTLEY_TRY(batch->choices_, DeviceTable::create(device, rows * choice));
  MOTLEY_TRY(batch->masks_, DeviceTable::create(device, rows * words * number));
  MOTLEY_TRY(batch->bias_ids_, DeviceTable::create(device, biases * number));
  MOTLEY_TRY(batch->biases_, DeviceTable::create(device, biases * number));
  MOTLEY_TRY(batch->counts_,
             PenaltyCounts::create(device, {.sequences = options.counted_sequences,
                                            .vocabulary = options.vocabulary,
                                            .sequence_tokens = options.sequence_tokens}));
  Results& results = batch->results_;
  MOTLEY_TRY(results.ids, DeviceTable::create(device, rows * number));
  MOTLEY_TRY(results.log_probabilities, DeviceTable::create(device, rows * number));
  MOTLEY_TRY(results.ranks, DeviceTable::create(device, rows * number));
  MOTLEY_TRY(results.top_ids, DeviceTable::create(device, tops * number));
  MOTLEY_TRY(results.top_log_probabilities, DeviceTable::create(device, tops * number));
  results.tops.resize(static_cast<std::size_t>(tops));
  batch->waits_.reserve(static_cast<std::size_t>(rows));
  return batch;
}

void SamplingBatch::begin() {
  rows_ = 0;
  bias_count_ = 0;
  masked_ = 0;
  waits_.clear();
  masks_until_.reset();
  began_ = SteadyClock().now();
  with_log_probabilities_ = false;
  with_ranks_ = false;
}

// Without a mask the row is drawn in vain, and its result says so.
void SamplingBatch::add_mask(const grammar::Cursor& grammar, kernels::SampleChoice& choice) {
  if (!grammar.ready()) {
    const TimePoint now = SteadyClock().now();
    if (!masks_until_) masks_until_ = now + std::min(options_.mask_patience, (now - began_) / 2);
    grammar.wait(*masks_until_);
  }
  if (!grammar.ready() || grammar.failure()) {
    waits_.back() = 1;
    return;
  }
  const std::int64_t words = (options_.vocabulary + 31) / 32;
  grammar.copy_mask(
      {masks_.on_host<std::uint32_t>() + masked_ * words, static_cast<std::size_t>(words)});
  choice.mask_row = static_cast<std::int32_t>(masked_++);
}

void SamplingBatch::add_token_rules(const SamplingState& state, kernels::SampleChoice& choice) {
  const std::int64_t words = (options_.vocabulary + 31) / 32;
  const bool masked = choice.mask_row >= 0;
  if (!masked) choice.mask_row = static_cast<std::int32_t>(masked_++);
  const std::span<std::uint32_t> mask(masks_.on_host<std::uint32_t>() + choice.mask_row * words,
                                      static_cast<std::size_t>(words));
  if (!masked) std::ranges::fill(mask, ~std::uint32_t{0});
  state.allow(mask);
}

void SamplingBatch::add_biases(const SamplingState& state, kernels::SampleChoice& choice) {
  choice.bias_begin = static_cast<std::int32_t>(bias_count_);
  for (const LogitBias& bias : state.biases()) {
    bias_ids_.on_host<std::int32_t>()[bias_count_] = bias.token;
    biases_.on_host<float>()[bias_count_] = bias.bias;
    ++bias_count_;
  }
  choice.bias_end = static_cast<std::int32_t>(bias_count_);
}

Result<void> SamplingBatch::launch(const ops::Context& context, tensor::Stream& stream,
                                   const tensor::ConstTensor& logits,
                                   std::span<SamplingState* const> states) {
  const auto count = static_cast<std::int64_t>(states.size());
  MOTLEY_CHECK(count <= options_.piece_rows && rows_ + count <= options_.rows &&
                   logits.dim(0) == count && logits.dim(1) == options_.vocabulary,
               "rows that there is room for");
  counts_.begin_launch();
  const std::int64_t first_bias = bias_count_;
  const std::int64_t first_mask = masked_;
  for (std::int64_t i = 0; i < count; ++i) {
    SamplingState& state = *states[static_cast<std::size_t>(i)];
    kernels::SampleChoice& choice = choices_.on_host<kernels::SampleChoice>()[rows_ + i];
    choice = state.choice();
    add_biases(state, choice);
    waits_.push_back(0);
    if (state.grammar() != nullptr) add_mask(*state.grammar(), choice);
    if (state.has_token_rules() && waits_.back() == 0) add_token_rules(state, choice);
    if (state.has_penalties()) {
      MOTLEY_TRY(choice.counts_row, counts_.row_of(context, stream, state, waits_.back() == 0));
    }
    with_log_probabilities_ |= choice.top_log_probabilities >= 0;
    with_ranks_ |= choice.ranked;
  }
  const std::int64_t words = (options_.vocabulary + 31) / 32;
  MOTLEY_TRY_VOID(choices_.upload<kernels::SampleChoice>(rows_, rows_ + count, stream));
  MOTLEY_TRY_VOID(masks_.upload<std::uint32_t>(first_mask * words, masked_ * words, stream));
  MOTLEY_TRY_VOID(bias_ids_.upload<std::int32_t>(first_bias, bias_count_, stream));
  MOTLEY_TRY_VOID(biases_.upload<float>(first_bias, bias_count_, stream));
  const auto tops = [&](const DeviceTable& table, DType type) {
    return table.device.view(type, {options_.rows, max_top_logprobs})
        .slice(0, rows_, rows_ + count);
  };
  ops::sample(context, logits,
              {.choices = choices_.on_device<kernels::SampleChoice>() + rows_,
               .masks = masks_.device.view(DType::i32, {options_.rows, words}),
               .counts = counts_.view(),
               .bias_ids = bias_ids_.on_device<std::int32_t>(),
               .biases = biases_.on_device<float>()},
              {.ids = results_.ids.on_device<std::int32_t>() + rows_,
               .log_probabilities = results_.log_probabilities.on_device<float>() + rows_,
               .ranks = results_.ranks.on_device<std::int32_t>() + rows_,
               .top_ids = tops(results_.top_ids, DType::i32),
               .top_log_probabilities = tops(results_.top_log_probabilities, DType::f32)});
  rows_ += count;
  return {};
}

Result<void> SamplingBatch::collect(tensor::Stream& stream) {
  constexpr std::int64_t number = 4;  // bytes of an i32 or f32
  if (rows_ == 0) return {};
  MOTLEY_TRY_VOID(results_.ids.download(rows_ * number, stream));
  if (!with_log_probabilities_) return {};
  const std::int64_t tops = rows_ * max_top_logprobs;
  MOTLEY_TRY_VOID(results_.log_probabilities.download(rows_ * number, stream));
  if (with_ranks_) MOTLEY_TRY_VOID(results_.ranks.download(rows_ * number, stream));
  MOTLEY_TRY_VOID(results_.top_ids.download(tops * number, stream));
  return results_.top_log_probabilities.download(tops * number, stream);
}

SamplingBatch::Drawn SamplingBatch::drawn(std::int64_t row) {
  MOTLEY_CHECK(row >= 0 && row < rows_, "a row of the step");
  if (waits_[static_cast<std::size_t>(row)] != 0) return {.waits = true};
  Drawn drawn{.token = results_.ids.on_host<std::int32_t>()[row]};
  const kernels::SampleChoice& choice = choices_.on_host<kernels::SampleChoice>()[row];
  const std::int32_t asked = choice.top_log_probabilities;
  if (asked < 0) return drawn;
  if (choice.ranked) drawn.rank = results_.ranks.on_host<std::int32_t>()[row];
  drawn.logprob = results_.log_probabilities.on_host<float>()[row];
  const std::int64_t first = row * max_top_logprobs;
  for (std::int64_t i = first; i < first + asked; ++i) {
    results_.tops[static_cast<std::size_t>(i)] = {
        .token = results_.top_ids.on_host<std::int32_t>()[i],
        .logprob = results_.top_log_probabilities.on_host<float>()[i]};
  }
  drawn.top = {results_.tops.data() + first, static_cast<std::size_t>(asked)};
  return drawn;
}

}  // namespace motley::engine
