#include "runner/runner.h"

#include <algorithm>

#include "base/cat.h"
#include "base/units.h"
#include "kernels/elementary.h"
#include "ops/embed.h"

namespace motley::runner {

using tensor::Tensor;

namespace {

// Rows of the graph that serves so many: few sizes, little padding.
std::int64_t graph_rows(std::int64_t rows) {
  if (rows <= 8) return rows;
  const std::int64_t unit = rows <= 64 ? 8 : rows <= 256 ? 16 : 64;
  return (rows + unit - 1) / unit * unit;
}

moe::DeltaLimits delta_limits(const Runner::Options& options) {
  if (options.adapters == nullptr) return {};
  return {.labels = static_cast<int>(options.max_sequences),
          .terms = lora::max_mix,
          .rank = options.adapter_rank,
          .rank_sum = options.mix_rank};
}

}  // namespace

Result<std::unique_ptr<Runner>> Runner::create(const model::Model& model, tensor::Device& device,
                                               const Options& options) {
  const std::int64_t expanded = model.most_expanded(options.max_rows, options.max_tokens);
  MOTLEY_TRY(StepLayout layout, StepLayout::create(device, {.rows = options.max_rows,
                                                            .sequences = options.max_sequences,
                                                            .tokens = options.max_tokens,
                                                            .expanded = expanded}));
  const moe::DeltaLimits limits = delta_limits(options);
  MOTLEY_TRY(model::Model::Workspace workspace,
             model.make_workspace({.rows = options.max_rows,
                                   .sequences = options.max_sequences,
                                   .logit_rows = options.logit_rows,
                                   .expanded = expanded,
                                   .deltas = limits}));
  const model::Config& config = model.config();
  const std::size_t bytes =
      model::scratch_bytes(options.max_rows, {config.hidden, config.hidden}) +
      model::scratch_bytes(options.logit_rows, {config.hidden, config.hidden, config.vocabulary});
  MOTLEY_TRY(tensor::Buffer memory, device.allocate(bytes));
  std::unique_ptr<Runner> runner(new Runner(model, device, options, std::move(layout),
                                            std::move(workspace), std::move(memory)));
  MOTLEY_TRY(runner->stream_, device.create_stream());
  if (options.keep_choices && config.has_experts()) {
    const tensor::Shape shape{config.layers, options.max_rows, config.moe.router.top_k};
    MOTLEY_TRY(runner->choices_memory_,
               device.allocate(static_cast<std::size_t>(shape.elements()) * sizeof(std::int32_t)));
    runner->choices_ = runner->choices_memory_.view(DType::i32, shape);
  }
  if (runner->on_gpu() && options.adapters != nullptr) {
    MOTLEY_TRY(runner->table_, lora::StepTable::create(device, *options.adapters,
                                                       {.rows = static_cast<int>(options.max_rows),
                                                        .labels = limits.labels,
                                                        .terms = limits.labels * limits.terms}));
  }
  MOTLEY_TRY_VOID(runner->make_pages());
  return runner;
}

Runner::Runner(const model::Model& model, tensor::Device& device, const Options& options,
               StepLayout layout, model::Model::Workspace workspace, tensor::Buffer memory)
    : model_(&model),
      device_(&device),
      options_(options),
      layout_(std::move(layout)),
      workspace_(std::move(workspace)),
      arena_(std::move(memory)) {
  if (on_gpu()) mix_limits_ = delta_limits(options);
}

Result<void> Runner::make_pages() {
  const std::vector<model::CacheLayout>& layouts = model_->cache_layouts();
  if (options_.spare) {
    MOTLEY_TRY(const tensor::MemoryInfo memory, device_->memory());
    const auto page =
        static_cast<std::uint64_t>(KvMemory::page_bytes(layouts, model_->activations()));
    const std::uint64_t left = memory.available - std::min(memory.available, *options_.spare);
    options_.pages = std::min(options_.pages, static_cast<std::int64_t>(left / page));
    if (options_.pages < 1)
      return Error(ErrorCode::out_of_memory,
                   cat(format_bytes(left), " are left for keys and values, of which a page takes ",
                       format_bytes(page)),
                   device_->description(), "free some memory, or give adapters less of it");
  }
  MOTLEY_TRY(kv_, KvMemory::create(*device_, layouts, model_->activations(), options_.pages));
  return {};
}

Runner::~Runner() {
  // An error is the device's end, which the next call on it reports.
  if (stream_ != nullptr) static_cast<void>(stream_->synchronize().ok());
}

Result<void> Runner::takes(const lora::Mix& mix) const {
  return mix_limits_ ? moe::fits(mix, *mix_limits_) : Result<void>();
}

Result<void> Runner::step(std::span<const Chunk> chunks, LogitsSink sink) {
  for (const Chunk& chunk : chunks)
    MOTLEY_CHECK(takes(chunk.mix).ok(), "mixes of adapters that steps have room for");
  layout_.build(chunks);
  const bool by_graph = layout_.decodes() && graph_rows(layout_.rows()) <= most_graph_rows();
  if (table_ != nullptr) {
    MOTLEY_TRY_VOID(table_->upload(layout_.adapters(), *stream_));
  } else {
    MOTLEY_CHECK(layout_.adapters().empty() || !on_gpu(), "a pool for the adapters of steps");
  }
  if (by_graph) layout_.pad_to(graph_rows(layout_.rows()));
  MOTLEY_TRY_VOID(layout_.upload(*stream_));
  arena_.rewind(0);
  const auto queue_step = [&]() -> Result<void> {
    if (by_graph) {
      MOTLEY_TRY(const Tensor logits, decode_by_graph());
      const auto used = static_cast<std::int64_t>(layout_.logit_rows().size());
      return sink(logits.slice(0, 0, used), layout_.logit_rows());
    }
    const model::HiddenStates hidden = take_states(layout_.rows());
    queue_forward(hidden);
    return emit_logits(hidden, sink);
  };
  auto queued = queue_step();
  // Between steps nothing is pinned on the runner's account.
  layout_.clear();
  if (queued.ok() && on_gpu()) return kernels::cuda_launches();
  return queued;
}

std::int64_t Runner::most_graph_rows() const {
  if (!on_gpu() || !options_.graphs) return 0;
  return std::min({options_.logit_rows, options_.max_rows, options_.max_sequences});
}

Result<void> Runner::warm_up() {
  for (std::int64_t rows = 1; graph_rows(rows) <= most_graph_rows(); rows = graph_rows(rows) + 1) {
    layout_.build({});
    layout_.pad_to(graph_rows(rows));
    MOTLEY_TRY_VOID(layout_.upload(*stream_));
    arena_.rewind(0);
    MOTLEY_TRY_VOID(decode_by_graph());
  }
  layout_.clear();
  return stream_->synchronize();
}

lora::RowMixes Runner::mixes(const std::int32_t* labels) const {
  const lora::Batch& adapters = layout_.adapters();
  // The same labels; for its own rows the table knows more.
  if (table_ != nullptr && labels == layout_.labels()) labels = table_->labels();
  return {.batch = adapters.empty() ? nullptr : &adapters, .labels = labels, .table = table_.get()};
}

model::HiddenStates Runner::take_states(std::int64_t rows) {
  const auto take = [&] {
    return arena_.allocate(DType::f32, {rows, model_->config().hidden}).value();
  };
  return {.sum = take(), .addend = take()};
}

void Runner::queue_forward(const model::HiddenStates& hidden) {
  const model::Batch batch{.count = layout_.rows(),
                           .tokens = layout_.tokens(),
                           .rows = {.sequences = layout_.sequences(),
                                    .seq_begin = layout_.seq_begin(),
                                    .positions = layout_.positions(),
                                    .block_table = layout_.block_table(),
                                    .most_rows = layout_.most_rows(),
                                    .least_rows = layout_.least_rows(),
                                    .most_positions = options_.max_tokens},
                           .pages = kv_.layers(),
                           .mixes = mixes(layout_.labels()),
                           .parts = layout_.parts(),
                           .expanded_begin = layout_.expanded_begin(),
                           .choices = options_.keep_choices ? &choices_ : nullptr};
  model_->forward(batch, workspace_, stream_->handle(), hidden);
}

void Runner::queue_decode(const model::HiddenStates& hidden, const Tensor& logits) {
  queue_forward(hidden);
  model_->logits(hidden, mixes(layout_.labels()), workspace_, stream_->handle(), logits);
}

Result<Tensor> Runner::decode_by_graph() {
  const model::Config& config = model_->config();
  const std::int64_t rows = layout_.rows();
  const model::HiddenStates hidden = take_states(rows);
  const Tensor logits = arena_.allocate(DType::f32, {rows, config.vocabulary}).value();
  const bool adapted = !layout_.adapters().empty();
  const GraphKey key{.rows = rows, .adapters = adapted, .reach = adapted ? table_->reach() : 0};
  const auto known = graphs_.find(key);
  if (known == graphs_.end()) {
    MOTLEY_TRY_VOID(capture_decode(key, hidden, logits));
    return logits;
  }
  MOTLEY_TRY_VOID(known->second->launch(*stream_));
  ++graph_launches_;
  return logits;
}

Result<void> Runner::capture_decode(const GraphKey& key, const model::HiddenStates& hidden,
                                    const Tensor& logits) {
  // Graphs of fewer kinds of adapters will not be asked for again.
  std::erase_if(graphs_, [&](const auto& graph) {
    return graph.first.adapters && key.adapters && graph.first.reach != key.reach;
  });
  // Once as it is, which also sets up what libraries set up at their first call.
  queue_decode(hidden, logits);
  MOTLEY_TRY(graphs_[key], stream_->capture([&]() -> Result<void> {
    queue_decode(hidden, logits);
    return kernels::cuda_launches();
  }));
  return {};
}

Result<void> Runner::emit_logits(const model::HiddenStates& hidden, LogitsSink sink) {
  const model::Config& config = model_->config();
  const std::span<const LogitRow> wanted = layout_.logit_rows();
  const auto at_once = static_cast<std::size_t>(options_.logit_rows);
  for (std::size_t begin = 0; begin < wanted.size(); begin += at_once) {
    const std::size_t count = std::min(at_once, wanted.size() - begin);
    const auto rows = static_cast<std::int64_t>(count);
    const std::size_t mark = arena_.mark();
    const model::HiddenStates gathered = take_states(rows);
    const Tensor logits = arena_.allocate(DType::f32, {rows, config.vocabulary}).value();
    ops::embed(context(), hidden.sum, layout_.places() + begin, gathered.sum);
    ops::embed(context(), hidden.addend, layout_.places() + begin, gathered.addend);
    model_->logits(gathered, mixes(layout_.logit_labels() + begin), workspace_, stream_->handle(),
                   logits);
    MOTLEY_TRY_VOID(sink(logits, wanted.subspan(begin, count)));
    arena_.rewind(mark);
  }
  return {};
}

}  // namespace motley::runner
