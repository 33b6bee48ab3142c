#include "runner/runner.h"

#include <algorithm>
#include <cstring>

#include "base/cat.h"

namespace motley::runner {

using tensor::Tensor;

Result<std::unique_ptr<Runner>> Runner::create(const model::Model& model, tensor::Device& device,
                                               const Options& options) {
  MOTLEY_TRY(KvMemory kv,
             KvMemory::create(device, model.cache_layouts(), model.activations(), options.pages));
  MOTLEY_TRY(std::unique_ptr<tensor::Stream> stream, device.create_stream());
  MOTLEY_TRY(model::Model::Workspace workspace,
             model.make_workspace(options.max_rows, options.logit_rows));
  const model::Config& config = model.config();
  const std::size_t bytes =
      model::scratch_bytes(options.max_rows, {config.hidden}) +
      model::scratch_bytes(options.logit_rows, {config.hidden, config.vocabulary});
  MOTLEY_TRY(tensor::Buffer memory, device.allocate(bytes));
  return std::unique_ptr<Runner>(new Runner(model, options, std::move(kv), std::move(stream),
                                            std::move(workspace), std::move(memory)));
}

Runner::Runner(const model::Model& model, const Options& options, KvMemory kv,
               std::unique_ptr<tensor::Stream> stream, model::Model::Workspace workspace,
               tensor::Buffer memory)
    : model_(&model),
      options_(options),
      kv_(std::move(kv)),
      stream_(std::move(stream)),
      workspace_(std::move(workspace)),
      arena_(std::move(memory)),
      table_width_(KvMemory::pages_for(options.max_tokens)) {
  const auto rows = static_cast<std::size_t>(options.max_rows);
  const auto sequences = static_cast<std::size_t>(options.max_sequences);
  tokens_.reserve(rows);
  positions_.reserve(rows);
  mixes_.reserve(rows);
  logit_rows_.reserve(rows);
  logit_places_.reserve(rows);
  logit_labels_.reserve(rows);
  seq_begin_.reserve(sequences + 1);
  block_table_.reserve(sequences * static_cast<std::size_t>(table_width_));
}

void Runner::step(std::span<const Chunk> chunks, LogitsSink sink) {
  lay_out(chunks);
  adapters_.build(mixes_);
  const auto rows = static_cast<std::int64_t>(tokens_.size());
  const tensor::ConstTensor table(reinterpret_cast<const std::byte*>(block_table_.data()),
                                  DType::i32,
                                  {static_cast<std::int64_t>(chunks.size()), table_width_});
  const model::Batch batch{
      .tokens = tokens_,
      .labels = adapters_.labels(),
      .rows = {.seq_begin = seq_begin_, .positions = positions_, .block_table = table},
      .pages = kv_.layers(),
      .adapters = adapters_.empty() ? nullptr : &adapters_};
  arena_.rewind(0);
  const Tensor hidden = arena_.allocate(DType::f32, {rows, model_->config().hidden}).value();
  model_->forward(batch, workspace_, stream_->handle(), hidden);
  emit_logits(hidden, sink);
  for (const Chunk& chunk : chunks)
    chunk.sequence->length += static_cast<std::int64_t>(chunk.tokens.size());
  // Between steps nothing is pinned on the runner's account.
  mixes_.clear();
  adapters_.clear();
}

void Runner::lay_out(std::span<const Chunk> chunks) {
  MOTLEY_CHECK(static_cast<std::int64_t>(chunks.size()) <= options_.max_sequences,
               "a step of at most max_sequences chunks");
  tokens_.clear();
  positions_.clear();
  mixes_.clear();
  logit_rows_.clear();
  logit_places_.clear();
  seq_begin_.assign(1, 0);
  block_table_.assign(chunks.size() * static_cast<std::size_t>(table_width_), -1);
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const Chunk& chunk = chunks[c];
    Sequence& sequence = *chunk.sequence;
    const auto count = static_cast<std::int64_t>(chunk.tokens.size());
    MOTLEY_CHECK(count > 0 && sequence.length + count <= options_.max_tokens,
                 "a chunk with tokens, in a sequence that stays within max_tokens");
    sequence.pages.grow_to(sequence.length + count);
    std::ranges::copy(sequence.pages.pages(),
                      block_table_.begin() + static_cast<std::ptrdiff_t>(c) * table_width_);
    for (std::size_t t = 0; t < chunk.tokens.size(); ++t) {
      const bool wanted = chunk.logits == LogitsOf::all ||
                          (chunk.logits == LogitsOf::last && t + 1 == chunk.tokens.size());
      if (wanted) {
        logit_rows_.push_back({.chunk = c, .token = t});
        logit_places_.push_back(static_cast<std::int32_t>(tokens_.size()));
      }
      tokens_.push_back(chunk.tokens[t]);
      positions_.push_back(
          static_cast<std::int32_t>(sequence.length + static_cast<std::int64_t>(t)));
      mixes_.push_back(chunk.mix);
    }
    seq_begin_.push_back(static_cast<std::int32_t>(tokens_.size()));
  }
  MOTLEY_CHECK(static_cast<std::int64_t>(tokens_.size()) <= options_.max_rows,
               "a step of at most max_rows rows");
}

void Runner::emit_logits(const Tensor& hidden, LogitsSink sink) {
  const model::Config& config = model_->config();
  const auto row_bytes = static_cast<std::size_t>(config.hidden * bits(hidden.dtype()) / 8);
  const auto at_once = static_cast<std::size_t>(options_.logit_rows);
  for (std::size_t begin = 0; begin < logit_rows_.size(); begin += at_once) {
    const std::size_t count = std::min(at_once, logit_rows_.size() - begin);
    const auto rows = static_cast<std::int64_t>(count);
    const std::size_t mark = arena_.mark();
    const Tensor gathered = arena_.allocate(hidden.dtype(), {rows, config.hidden}).value();
    const Tensor logits = arena_.allocate(DType::f32, {rows, config.vocabulary}).value();
    logit_labels_.clear();
    for (std::size_t i = 0; i < count; ++i) {
      const auto row = static_cast<std::size_t>(logit_places_[begin + i]);
      stream_->copy(gathered.bytes() + i * row_bytes, hidden.bytes() + row * row_bytes, row_bytes)
          .value();
      logit_labels_.push_back(adapters_.labels()[row]);
    }
    model_->logits(gathered, logit_labels_, adapters_.empty() ? nullptr : &adapters_, workspace_,
                   stream_->handle(), logits);
    sink(logits, std::span(logit_rows_).subspan(begin, count));
    arena_.rewind(mark);
  }
}

}  // namespace motley::runner
