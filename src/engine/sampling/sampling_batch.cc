#include "engine/sampling/sampling_batch.h"

#include <algorithm>

#include "base/check.h"

namespace motley::engine {

template <class T>
T* SamplingBatch::host(const Table& table) {
  return reinterpret_cast<T*>(table.host.data());
}
template <class T>
T* SamplingBatch::device(const Table& table) {
  return reinterpret_cast<T*>(table.device.data());
}

Result<SamplingBatch::Table> SamplingBatch::make_table(tensor::Device& device, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  Table table;
  MOTLEY_TRY(table.device, device.allocate(size));
  MOTLEY_TRY(table.host, device.pinned_memory().allocate(size));
  return table;
}

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
  MOTLEY_TRY(batch->choices_, make_table(device, rows * choice));
  MOTLEY_TRY(batch->masks_, make_table(device, rows * words * number));
  MOTLEY_TRY(batch->bias_ids_, make_table(device, biases * number));
  MOTLEY_TRY(batch->biases_, make_table(device, biases * number));
  MOTLEY_TRY(batch->tokens_, make_table(device, options.sequence_tokens * number));
  MOTLEY_TRY(batch->ids_, make_table(device, rows * number));
  MOTLEY_TRY(batch->log_probabilities_, make_table(device, rows * number));
  MOTLEY_TRY(batch->top_ids_, make_table(device, tops * number));
  MOTLEY_TRY(batch->top_log_probabilities_, make_table(device, tops * number));
  const std::int64_t counts = options.counted_sequences * options.vocabulary * number;
  MOTLEY_TRY(batch->counts_, device.allocate(static_cast<std::size_t>(counts)));
  batch->counts_rows_.resize(static_cast<std::size_t>(options.counted_sequences));
  batch->waits_.reserve(static_cast<std::size_t>(rows));
  batch->tops_.resize(static_cast<std::size_t>(tops));
  return batch;
}

template <class T>
Result<void> SamplingBatch::upload(const Table& table, std::int64_t begin, std::int64_t end,
                                   tensor::Stream& stream) {
  if (begin == end) return {};
  return stream.copy(device<T>(table) + begin, host<T>(table) + begin,
                     static_cast<std::size_t>(end - begin) * sizeof(T));
}

void SamplingBatch::begin() {
  rows_ = 0;
  bias_count_ = 0;
  masked_ = 0;
  waits_.clear();
  masks_until_.reset();
  began_ = SteadyClock().now();
  with_log_probabilities_ = false;
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
      {host<std::uint32_t>(masks_) + masked_ * words, static_cast<std::size_t>(words)});
  choice.mask_row = static_cast<std::int32_t>(masked_++);
}

void SamplingBatch::add_token_rules(const SamplingState& state, kernels::SampleChoice& choice) {
  const std::int64_t words = (options_.vocabulary + 31) / 32;
  const bool masked = choice.mask_row >= 0;
  if (!masked) choice.mask_row = static_cast<std::int32_t>(masked_++);
  const std::span<std::uint32_t> mask(host<std::uint32_t>(masks_) + choice.mask_row * words,
                                      static_cast<std::size_t>(words));
  if (!masked) std::ranges::fill(mask, ~std::uint32_t{0});
  state.allow(mask);
}

void SamplingBatch::add_biases(const SamplingState& state, kernels::SampleChoice& choice) {
  choice.bias_begin = static_cast<std::int32_t>(bias_count_);
  for (const LogitBias& bias : state.biases()) {
    host<std::int32_t>(bias_ids_)[bias_count_] = bias.token;
    host<float>(biases_)[bias_count_] = bias.bias;
    ++bias_count_;
  }
  choice.bias_end = static_cast<std::int32_t>(bias_count_);
}

Result<void> SamplingBatch::add_counts(const ops::Context& context, tensor::Stream& stream,
                                       const SamplingState& state, kernels::SampleChoice& choice) {
  const auto tokens = static_cast<std::int64_t>(state.tokens().size());
  auto place = std::find_if(counts_rows_.begin(), counts_rows_.end(),
                            [&](const CountsRow& row) { return row.state == state.id(); });
  const bool known = place != counts_rows_.end();
  if (!known) {
    place =
        std::min_element(counts_rows_.begin(), counts_rows_.end(),
                         [](const CountsRow& a, const CountsRow& b) { return a.used < b.used; });
    MOTLEY_CHECK(place->used < calls_, "a row of counts for each row of a piece");
  }
  choice.counts_row = static_cast<std::int32_t>(place - counts_rows_.begin());
  if (!known || place->tokens != tokens) {
    MOTLEY_CHECK(tokens <= options_.sequence_tokens, "a sequence of at most sequence_tokens");
    MOTLEY_TRY_VOID(
        stream.copy(tokens_.device.data(), state.tokens().data(), state.tokens().size_bytes()));
    ops::count_tokens(context, device<std::int32_t>(tokens_), state.prompt_tokens(),
                      tokens - state.prompt_tokens(),
                      counts_.view(DType::i32, {options_.counted_sequences, options_.vocabulary})
                          .select(choice.counts_row));
  }
  // The draw counts its token; if it was in vain, counts have to be made again.
  const bool in_vain = waits_.back() != 0;
  *place = {.state = state.id(), .tokens = in_vain ? -1 : tokens + 1, .used = calls_};
  return {};
}

Result<void> SamplingBatch::launch(const ops::Context& context, tensor::Stream& stream,
                                   const tensor::ConstTensor& logits,
                                   std::span<SamplingState* const> states) {
  const auto count = static_cast<std::int64_t>(states.size());
  MOTLEY_CHECK(count <= options_.piece_rows && rows_ + count <= options_.rows &&
                   logits.dim(0) == count && logits.dim(1) == options_.vocabulary,
               "rows that there is room for");
  ++calls_;
  const std::int64_t first_bias = bias_count_;
  const std::int64_t first_mask = masked_;
  for (std::int64_t i = 0; i < count; ++i) {
    SamplingState& state = *states[static_cast<std::size_t>(i)];
    kernels::SampleChoice& choice = host<kernels::SampleChoice>(choices_)[rows_ + i];
    choice = state.choice();
    add_biases(state, choice);
    waits_.push_back(0);
    if (state.grammar() != nullptr) add_mask(*state.grammar(), choice);
    if (state.has_token_rules() && waits_.back() == 0) add_token_rules(state, choice);
    if (state.has_penalties()) MOTLEY_TRY_VOID(add_counts(context, stream, state, choice));
    with_log_probabilities_ |= choice.top_log_probabilities >= 0;
  }
  const std::int64_t words = (options_.vocabulary + 31) / 32;
  MOTLEY_TRY_VOID(upload<kernels::SampleChoice>(choices_, rows_, rows_ + count, stream));
  MOTLEY_TRY_VOID(upload<std::uint32_t>(masks_, first_mask * words, masked_ * words, stream));
  MOTLEY_TRY_VOID(upload<std::int32_t>(bias_ids_, first_bias, bias_count_, stream));
  MOTLEY_TRY_VOID(upload<float>(biases_, first_bias, bias_count_, stream));
  const auto tops = [&](const Table& table, DType type) {
    return table.device.view(type, {options_.rows, max_top_logprobs})
        .slice(0, rows_, rows_ + count);
  };
  ops::sample(
      context, logits,
      {.choices = device<kernels::SampleChoice>(choices_) + rows_,
       .masks = masks_.device.view(DType::i32, {options_.rows, words}),
       .counts = counts_.view(DType::i32, {options_.counted_sequences, options_.vocabulary}),
       .bias_ids = device<std::int32_t>(bias_ids_),
       .biases = device<float>(biases_)},
      {.ids = device<std::int32_t>(ids_) + rows_,
       .log_probabilities = device<float>(log_probabilities_) + rows_,
       .top_ids = tops(top_ids_, DType::i32),
       .top_log_probabilities = tops(top_log_probabilities_, DType::f32)});
  rows_ += count;
  return {};
}

Result<void> SamplingBatch::collect(tensor::Stream& stream) {
  const auto download = [&](const Table& table, std::int64_t numbers) -> Result<void> {
    return stream.copy(table.host.data(), table.device.data(),
                       static_cast<std::size_t>(numbers) * 4);
  };
  if (rows_ == 0) return {};
  MOTLEY_TRY_VOID(download(ids_, rows_));
  if (!with_log_probabilities_) return {};
  MOTLEY_TRY_VOID(download(log_probabilities_, rows_));
  MOTLEY_TRY_VOID(download(top_ids_, rows_ * max_top_logprobs));
  return download(top_log_probabilities_, rows_ * max_top_logprobs);
}

SamplingBatch::Drawn SamplingBatch::drawn(std::int64_t row) {
  MOTLEY_CHECK(row >= 0 && row < rows_, "a row of the step");
  if (waits_[static_cast<std::size_t>(row)] != 0) return {.waits = true};
  Drawn drawn{.token = host<std::int32_t>(ids_)[row]};
  const std::int32_t asked = host<kernels::SampleChoice>(choices_)[row].top_log_probabilities;
  if (asked < 0) return drawn;
  drawn.logprob = host<float>(log_probabilities_)[row];
  const std::int64_t first = row * max_top_logprobs;
  for (std::int64_t i = first; i < first + asked; ++i) {
    tops_[static_cast<std::size_t>(i)] = {.token = host<std::int32_t>(top_ids_)[i],
                                          .logprob = host<float>(top_log_probabilities_)[i]};
  }
  drawn.top = {tops_.data() + first, static_cast<std::size_t>(asked)};
  return drawn;
}

}  // namespace motley::engine
