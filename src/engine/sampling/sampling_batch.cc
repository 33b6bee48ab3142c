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
  const std::int64_t named = rows * max_named_tokens;
  constexpr auto choice = static_cast<std::int64_t>(sizeof(kernels::SampleChoice));
  MOTLEY_TRY(batch->choices_, DeviceTable::create(device, rows * choice));
  MOTLEY_TRY(batch->masks_, DeviceTable::create(device, rows * words * number));
  MOTLEY_TRY(batch->bias_ids_, DeviceTable::create(device, biases * number));
  MOTLEY_TRY(batch->biases_, DeviceTable::create(device, biases * number));
  MOTLEY_TRY(batch->named_ids_, DeviceTable::create(device, named * number));
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
  MOTLEY_TRY(results.named_log_probabilities, DeviceTable::create(device, named * number));
  MOTLEY_TRY(results.named_ranks, DeviceTable::create(device, named * number));
  results.tops.resize(static_cast<std::size_t>(named));
  batch->waits_.reserve(static_cast<std::size_t>(rows));
  return batch;
}

void SamplingBatch::begin() {
  rows_ = 0;
  filled_ = {};
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
      {masks_.on_host<std::uint32_t>() + filled_.masks * words, static_cast<std::size_t>(words)});
  choice.mask_row = static_cast<std::int32_t>(filled_.masks++);
}

void SamplingBatch::add_token_rules(const SamplingState& state, kernels::SampleChoice& choice) {
  const std::int64_t words = (options_.vocabulary + 31) / 32;
  const bool masked = choice.mask_row >= 0;
  if (!masked) choice.mask_row = static_cast<std::int32_t>(filled_.masks++);
  const std::span<std::uint32_t> mask(masks_.on_host<std::uint32_t>() + choice.mask_row * words,
                                      static_cast<std::size_t>(words));
  if (!masked) std::ranges::fill(mask, ~std::uint32_t{0});
  state.allow(mask);
}

void SamplingBatch::add_biases(const SamplingState& state, kernels::SampleChoice& choice) {
  choice.bias_begin = static_cast<std::int32_t>(filled_.biases);
  for (const LogitBias& bias : state.biases()) {
    bias_ids_.on_host<std::int32_t>()[filled_.biases] = bias.token;
    biases_.on_host<float>()[filled_.biases] = bias.bias;
    ++filled_.biases;
  }
  choice.bias_end = static_cast<std::int32_t>(filled_.biases);
}

void SamplingBatch::add_named(const SamplingState& state, kernels::SampleChoice& choice) {
  const std::span<const std::int32_t> tokens = state.logprob_tokens();
  std::ranges::copy(tokens, named_ids_.on_host<std::int32_t>() + filled_.named);
  choice.named_begin = static_cast<std::int32_t>(filled_.named);
  filled_.named += std::ssize(tokens);
  choice.named_end = static_cast<std::int32_t>(filled_.named);
}

Result<void> SamplingBatch::upload(const Filled& before, std::int64_t rows,
                                   tensor::Stream& stream) const {
  const std::int64_t words = (options_.vocabulary + 31) / 32;
  MOTLEY_TRY_VOID(choices_.upload<kernels::SampleChoice>(rows_, rows_ + rows, stream));
  MOTLEY_TRY_VOID(
      masks_.upload<std::uint32_t>(before.masks * words, filled_.masks * words, stream));
  MOTLEY_TRY_VOID(bias_ids_.upload<std::int32_t>(before.biases, filled_.biases, stream));
  MOTLEY_TRY_VOID(biases_.upload<float>(before.biases, filled_.biases, stream));
  return named_ids_.upload<std::int32_t>(before.named, filled_.named, stream);
}

Result<void> SamplingBatch::launch(const ops::Context& context, tensor::Stream& stream,
                                   const tensor::ConstTensor& logits,
                                   std::span<SamplingState* const> states) {
  const auto count = static_cast<std::int64_t>(states.size());
  MOTLEY_CHECK(count <= options_.piece_rows && rows_ + count <= options_.rows &&
                   logits.dim(0) == count && logits.dim(1) == options_.vocabulary,
               "rows that there is room for");
  counts_.begin_launch();
  const Filled before = filled_;
  for (std::int64_t i = 0; i < count; ++i) {
    SamplingState& state = *states[static_cast<std::size_t>(i)];
    kernels::SampleChoice& choice = choices_.on_host<kernels::SampleChoice>()[rows_ + i];
    choice = state.choice();
    add_biases(state, choice);
    add_named(state, choice);
    waits_.push_back(0);
    if (state.grammar() != nullptr) add_mask(*state.grammar(), choice);
    if (state.has_token_rules() && waits_.back() == 0) add_token_rules(state, choice);
    if (state.has_penalties()) {
      MOTLEY_TRY(choice.counts_row, counts_.row_of(context, stream, state, waits_.back() == 0));
    }
    with_log_probabilities_ |= choice.top_log_probabilities >= 0;
    with_ranks_ |= choice.ranked;
  }
  MOTLEY_TRY_VOID(upload(before, count, stream));
  const std::int64_t words = (options_.vocabulary + 31) / 32;
  const auto tops = [&](const DeviceTable& table, DType type) {
    return table.device.view(type, {options_.rows, max_top_logprobs})
        .slice(0, rows_, rows_ + count);
  };
  ops::sample(context, logits,
              {.choices = choices_.on_device<kernels::SampleChoice>() + rows_,
               .masks = masks_.device.view(DType::i32, {options_.rows, words}),
               .counts = counts_.view(),
               .bias_ids = bias_ids_.on_device<std::int32_t>(),
               .biases = biases_.on_device<float>(),
               .named_ids = named_ids_.on_device<std::int32_t>()},
              {.ids = results_.ids.on_device<std::int32_t>() + rows_,
               .log_probabilities = results_.log_probabilities.on_device<float>() + rows_,
               .ranks = results_.ranks.on_device<std::int32_t>() + rows_,
               .top_ids = tops(results_.top_ids, DType::i32),
               .top_log_probabilities = tops(results_.top_log_probabilities, DType::f32),
               .named_log_probabilities = results_.named_log_probabilities.on_device<float>(),
               .named_ranks = results_.named_ranks.on_device<std::int32_t>()});
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
  MOTLEY_TRY_VOID(results_.top_log_probabilities.download(tops * number, stream));
  if (filled_.named == 0) return {};
  MOTLEY_TRY_VOID(results_.named_log_probabilities.download(filled_.named * number, stream));
  return with_ranks_ ? results_.named_ranks.download(filled_.named * number, stream)
                     : Result<void>();
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
  const std::span<TopLogprob> tops(results_.tops.data() + row * max_named_tokens, max_named_tokens);
  for (std::size_t i = 0; i < static_cast<std::size_t>(asked); ++i) {
    const auto at = static_cast<std::size_t>(row) * max_top_logprobs + i;
    tops[i] = {.token = results_.top_ids.on_host<std::int32_t>()[at],
               .logprob = results_.top_log_probabilities.on_host<float>()[at]};
  }
  drawn.top = tops.first(static_cast<std::size_t>(asked));
  if (choice.named_begin < choice.named_end) add_named_to(drawn, choice, tops);
  return drawn;
}

void SamplingBatch::add_named_to(Drawn& drawn, const kernels::SampleChoice& choice,
                                 std::span<TopLogprob> tops) const {
  const auto first = static_cast<std::size_t>(choice.named_begin);
  const std::size_t count = static_cast<std::size_t>(choice.named_end) - first;
  for (std::size_t i = 0; i < count; ++i)
    tops[i] = {.token = named_ids_.on_host<std::int32_t>()[first + i],
               .logprob = results_.named_log_probabilities.on_host<float>()[first + i]};
  drawn.top = tops.first(count);
  if (choice.ranked)
    drawn.top_ranks = {results_.named_ranks.on_host<std::int32_t>() + first, count};
}

}  // namespace motley::engine
