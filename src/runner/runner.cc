#include "runner/runner.h"

#include <algorithm>
#include <limits>

#include "base/cat.h"
#include "base/log.h"
#include "base/units.h"
#include "kernels/adapters.h"
#include "kernels/elementary.h"
#include "ops/embed.h"
#include "runner/other_ranks.h"
#include "runner/state_plan.h"

namespace motley::runner {

using tensor::Tensor;

namespace {

// Rows of the captured step for this many rows: few sizes, with little padding.
std::int64_t graph_rows(std::int64_t rows) {
  if (rows <= 8) return rows;
  const std::int64_t unit = rows <= 64 ? 8 : rows <= 256 ? 16 : 64;
  return (rows + unit - 1) / unit * unit;
}

// Bytes of float32 tensors of these widths in an arena.
std::size_t state_bytes(std::int64_t rows, std::initializer_list<std::int64_t> widths) {
  std::size_t bytes = 0;
  for (const std::int64_t width : widths)
    bytes += static_cast<std::size_t>(rows * width) * sizeof(float) + tensor::Allocator::alignment;
  return bytes;
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
  const model::Mixer* const second_form = model.with_second_form();
  const std::int64_t positions =
      second_form == nullptr ? 0 : second_form->max_positions(options.max_rows, options.max_tokens);
  MOTLEY_TRY(StepLayout layout, StepLayout::create(device, {.rows = options.max_rows,
                                                            .sequences = options.max_sequences,
                                                            .tokens = options.max_tokens,
                                                            .second_form = second_form,
                                                            .positions = positions,
                                                            .rank = model.shard().rank}));
  const moe::DeltaLimits limits = delta_limits(options);
  MOTLEY_TRY(model::Model::Workspace workspace,
             model.make_workspace({.rows = options.max_rows,
                                   .sequences = options.max_sequences,
                                   .logit_rows = options.logit_rows,
                                   .positions = positions,
                                   .deltas = limits}));
  const model::Config& config = model.config();
  const std::size_t bytes =
      state_bytes(options.max_rows, {config.hidden, config.hidden}) +
      state_bytes(options.logit_rows, {config.hidden, config.hidden, config.vocabulary});
  MOTLEY_TRY(tensor::Buffer memory, device.allocate(bytes));
  std::unique_ptr<Runner> runner(new Runner(model, device, options, std::move(layout),
                                            std::move(workspace), std::move(memory)));
  MOTLEY_TRY(runner->stream_, device.create_stream());
  if (runner->on_gpu() && model.ranks() != nullptr) {
    MOTLEY_TRY(runner->passed_, device.create_event());
  }
  if (options.keep_choices && config.has_experts()) MOTLEY_TRY_VOID(runner->make_choices());
  if (runner->on_gpu() && options.adapters != nullptr) {
    MOTLEY_TRY(runner->table_, lora::StepTable::create(device, *options.adapters,
                                                       {.rows = static_cast<int>(options.max_rows),
                                                        .labels = limits.labels,
                                                        .terms = limits.labels * limits.terms,
                                                        .ranks = limits.rank_sum}));
  }
  MOTLEY_CHECK(!model.keeps_states() || options.state_slots > 0, "slots for sequences' states");
  // Of ranks also the one whose part of all states is empty: it has the same slots.
  if (options.state_slots > 0) {
    MOTLEY_TRY(runner->states_, StateMemory::create(device, model.state_shapes(),
                                                    {.slots = options.state_slots,
                                                     .places = options.snapshots,
                                                     .host_places = options.host_snapshots}));
    if (options.host_snapshots > 0) {
      MOTLEY_TRY(runner->state_copies_,
                 BackgroundCopies::create(device, options.state_slots + max_state_offloads));
    }
  }
  MOTLEY_TRY_VOID(runner->make_pages());
  if (options.others != nullptr) runner->share_shrinks();
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

Result<void> Runner::make_choices() {
  const model::Config& config = model_->config();
  const tensor::Shape shape{config.layers, options_.max_rows, config.moe.router.top_k};
  MOTLEY_TRY(choices_memory_,
             device_->allocate(static_cast<std::size_t>(shape.elements()) * sizeof(std::int32_t)));
  return {};
}

// Without gaps, so that the choices of a step are one copy. A graph was captured with as many rows,
// so with the same addresses.
void Runner::view_choices() {
  if (choices_memory_.size() == 0) return;
  const model::Config& config = model_->config();
  choices_ =
      choices_memory_.view(DType::i32, {config.layers, layout_.rows(), config.moe.router.top_k});
}

Result<void> Runner::make_pages() {
  const std::vector<model::TokenCaches>& caches = model_->token_caches();
  if (options_.spare) {
    MOTLEY_TRY(const tensor::MemoryInfo memory, device_->memory());
    // A rank without heads keeps nothing.
    const auto page = static_cast<std::uint64_t>(
        std::max<std::int64_t>(KvMemory::page_bytes(caches, model_->kv_type()), 1));
    const std::uint64_t left = memory.available - std::min(memory.available, *options_.spare);
    options_.pages = std::min(options_.pages, static_cast<std::int64_t>(left / page));
    if (options_.pages < 1)
      return Error(ErrorCode::out_of_memory,
                   cat(format_bytes(left), " are left for keys and values, of which a page takes ",
                       format_bytes(page)),
                   device_->description(), "free some memory, or give adapters less of it");
  }
  MOTLEY_TRY(kv_, KvMemory::create(*device_, caches, model_->kv_type(), options_.pages));
  return {};
}

Runner::~Runner() {
  // An error is final for the device; the next call on it reports it.
  if (stream_ != nullptr) static_cast<void>(stream_->synchronize().ok());
  static_cast<void>(state_copies_.finish().ok());
  // Adapters of the last step are pinned in rank 0's pool, which may go before the other ranks.
  static_cast<void>(for_others([](Runner& other) -> Result<void> {
                      if (other.table_ != nullptr) other.table_->release();
                      return {};
                    }).ok());
}

void Runner::share_shrinks() {
  const OtherRanks& others = *options_.others;
  ops::SharedShrinks shared{.experts = true, .dense = true};
  for (int rank = 1; rank < others.ranks(); ++rank) {
    const model::Model& other = others.model(rank);
    shared.experts = shared.experts && model_->shrinks_alike(other);
    shared.dense = shared.dense && model::has_heads(other.config(), other.shard());
  }
  if (model_->tuning() != nullptr) shared.from_rows = model_->tuning()->shared_shrinks_from;
  const auto set = [&](Runner& runner) -> Result<void> {
    runner.shared_shrinks_ = shared;
    return {};
  };
  static_cast<void>(for_others(set).ok());
  static_cast<void>(set(*this).ok());
}

Result<void> Runner::for_others(FunctionRef<Result<void>(Runner& runner)> work) const {
  if (options_.others == nullptr) return {};
  for (int rank = 1; rank < options_.others->ranks(); ++rank) {
    Runner* const other = options_.others->runner_if_made(rank);
    if (other != nullptr) MOTLEY_TRY_VOID(work(*other));
  }
  return {};
}

Result<void> Runner::release_adapters() {
  MOTLEY_TRY_VOID(for_others([](Runner& other) { return other.release_adapters(); }));
  return table_ == nullptr ? Result<void>() : table_->upload(lora::Batch(), *stream_);
}

Result<void> Runner::synchronize() {
  MOTLEY_TRY_VOID(stream_->synchronize());
  return ranks_status();
}

Result<bool> Runner::step_is_done() const {
  return passed_ == nullptr ? Result<bool>(true) : passed_->reached();
}

Result<void> Runner::takes(const lora::Mix& mix) const {
  return mix_limits_ ? moe::fits(mix, *mix_limits_) : Result<void>();
}

Result<Runner::LaidOut> Runner::lay_out(std::span<const Chunk> chunks) {
  for (const Chunk& chunk : chunks)
    MOTLEY_CHECK(takes(chunk.mix).ok(), "mixes of adapters that steps have room for");
  layout_.build(chunks);
  adapted_ = !layout_.adapters().empty();
  // A step has the same size whether it is captured or not, so its rows have the same bits.
  const bool padded = is_padded(layout_.decodes(), layout_.rows());
  std::optional<GraphKey> key;
  if (padded && options_.graphs) {
    key = GraphKey{.rows = graph_rows(layout_.rows())};
    if (adapted_) {
      key->adapters = lora::class_of(layout_.adapters());
      if (!key->adapters) key.reset();
    }
  }
  if (table_ != nullptr) {
    MOTLEY_TRY_VOID(table_->upload(layout_.adapters(), *stream_));
    if (key && adapted_) table_->widen_to(*key->adapters, key->rows, table_->foreseen());
  } else {
    MOTLEY_CHECK(!adapted_ || !on_gpu(), "a pool for the adapters of steps");
  }
  if (padded) layout_.pad_to(graph_rows(layout_.rows()));
  MOTLEY_TRY_VOID(layout_.upload(*stream_));
  arena_.rewind(0);
  return LaidOut{.padded = padded, .key = key};
}

Result<void> Runner::copy_page(std::int32_t from, std::int32_t to) {
  MOTLEY_TRY_VOID(for_others([&](Runner& other) { return other.copy_page(from, to); }));
  // The last, which also makes its GPU this thread's again.
  return kv_.copy_page(from, to, *stream_);
}

Result<void> Runner::copy_state(std::int32_t from, std::int32_t to) {
  MOTLEY_TRY_VOID(for_others([&](Runner& other) { return other.copy_state(from, to); }));
  return states_.copy(from, to, *stream_);
}

Result<void> Runner::save_state(std::int32_t slot, std::int32_t place) {
  MOTLEY_TRY_VOID(for_others([&](Runner& other) { return other.save_state(slot, place); }));
  return states_.save(slot, place, *stream_);
}

Result<void> Runner::restore_state(std::int32_t place, std::int32_t slot) {
  MOTLEY_TRY_VOID(for_others([&](Runner& other) { return other.restore_state(place, slot); }));
  return states_.restore(place, slot, *stream_);
}

Result<void> Runner::offload_state(std::int32_t place, std::int32_t host_place) {
  MOTLEY_TRY_VOID(
      for_others([&](Runner& other) { return other.offload_state(place, host_place); }));
  return state_copies_.begin(
      *stream_, [&](tensor::Stream& stream) { return states_.offload(place, host_place, stream); });
}

Result<void> Runner::load_state(std::int32_t host_place, std::int32_t slot) {
  MOTLEY_TRY_VOID(for_others([&](Runner& other) { return other.load_state(host_place, slot); }));
  return state_copies_.begin(
      *stream_, [&](tensor::Stream& stream) { return states_.load(host_place, slot, stream); });
}

Result<std::uint64_t> Runner::state_copies_ended() {
  std::uint64_t ended = std::numeric_limits<std::uint64_t>::max();
  MOTLEY_TRY_VOID(for_others([&](Runner& other) -> Result<void> {
    MOTLEY_TRY(const std::uint64_t there, other.state_copies_ended());
    ended = std::min(ended, there);
    return {};
  }));
  MOTLEY_TRY(const std::uint64_t here, state_copies_.ended());
  return std::min(ended, here);
}

Result<void> Runner::finish_state_copies() {
  MOTLEY_TRY_VOID(for_others([](Runner& other) { return other.finish_state_copies(); }));
  return state_copies_.finish();
}

Result<void> Runner::ranks_status() const {
  const dist::Communicator* const ranks = model_->ranks();
  return ranks == nullptr ? Result<void>() : ranks->status();
}

Result<void> Runner::step(std::span<const Chunk> chunks, LogitsSink sink) {
  if (options_.others == nullptr) return step_on_rank(chunks, sink);
  return options_.others->run(*this, way_of(chunks), [&](Runner& runner, int rank) {
    const auto no_sink = [](const Tensor&, std::span<const LogitRow>) { return Result<void>(); };
    return rank == 0 ? step_on_rank(chunks, sink) : runner.step_on_rank(chunks, no_sink);
  });
}

// A step of other sizes may be the first to use a library's kernel; our own are there from the
// start.
dist::LaunchGate::Way Runner::way_of(std::span<const Chunk> chunks) const {
  using Way = dist::LaunchGate::Way;
  const bool padded = is_padded(std::ranges::all_of(chunks, &Chunk::decodes), std::ssize(chunks));
  return padded && is_warm_ && !options_.capture_in_steps ? Way::together : Way::alone;
}

Result<void> Runner::step_on_rank(std::span<const Chunk> chunks, LogitsSink sink) {
  MOTLEY_TRY(const LaidOut laid_out, lay_out(chunks));
  const auto launch_step = [&]() -> Result<void> {
    if (laid_out.padded) {
      MOTLEY_TRY(const Tensor logits, decode(laid_out.key));
      const auto used = static_cast<std::int64_t>(layout_.logit_rows().size());
      return sink(logits.slice(0, 0, used), layout_.logit_rows());
    }
    const model::HiddenStates hidden = take_states(layout_.rows());
    launch_forward(hidden);
    return emit_logits(hidden, sink);
  };
  auto queued = launch_step();
  // Between steps the runner pins nothing.
  layout_.clear();
  if (passed_ != nullptr && queued.ok()) queued = stream_->record(*passed_);
  if (queued.ok()) queued = ranks_status();
  if (!queued.ok() || !on_gpu()) return queued;
  MOTLEY_TRY_VOID(kernels::cuda_launches(model_->kernels()));
  if (!missed_ || !options_.capture_in_steps) return {};
  return capture(*missed_, foreseen());
}

bool Runner::is_padded(bool decodes, std::int64_t rows) const {
  return decodes && graph_rows(rows) <= max_padded_rows();
}

std::int64_t Runner::max_padded_rows() const {
  if (!on_gpu()) return 0;
  return std::min({options_.logit_rows, options_.max_rows, options_.max_sequences});
}

Result<void> Runner::warm_up() {
  if (options_.others == nullptr) return warm_up_rank();
  MOTLEY_TRY_VOID(options_.others->run(*this, dist::LaunchGate::Way::alone,
                                       [](Runner& runner, int) { return runner.warm_up_rank(); }));
  is_warm_ = options_.graphs;
  return {};
}

Result<void> Runner::warm_up_rank() {
  if (!options_.graphs) return {};
  for (std::int64_t rows = 1; graph_rows(rows) <= max_padded_rows(); rows = graph_rows(rows) + 1) {
    // First without capture, which also initialises libraries.
    layout_.build({});
    layout_.pad_to(graph_rows(rows));
    adapted_ = false;
    MOTLEY_TRY_VOID(layout_.upload(*stream_));
    arena_.rewind(0);
    launch_decode(take_decode_memory());
    MOTLEY_TRY_VOID(kernels::cuda_launches(model_->kernels()));
    MOTLEY_TRY_VOID(capture({.rows = graph_rows(rows)}, {}));
  }
  if (table_ != nullptr) {
    for (const lora::SiteSpec& spec : model_->base_view().sites())
      all_sites_.add(spec.site, lora::SiteSet::touched);
    for (const GraphKey& key : adapted_keys()) MOTLEY_TRY_VOID(capture(key, all_sites_));
  }
  layout_.clear();
  return synchronize();
}

void Runner::foresee(const lora::SiteSet& sites) {
  static_cast<void>(for_others([&](Runner& other) -> Result<void> {
                      other.foresee(sites);
                      return {};
                    }).ok());
  if (table_ != nullptr) table_->foresee(sites);
}

const Runner::CapturedStep* Runner::find_graph(const GraphKey& key,
                                               const lora::SiteSet& sites) const {
  const auto known = graphs_.find(key);
  if (known == graphs_.end()) return nullptr;
  return !key.adapters || known->second.sites.covers(sites) ? &known->second : nullptr;
}

std::vector<Runner::GraphKey> Runner::adapted_keys() const {
  std::vector<GraphKey> keys;
  for (std::int64_t rows = 1; graph_rows(rows) <= max_padded_rows(); rows = graph_rows(rows) + 1) {
    for (int each = 0; each < lora::adapter_class_count; ++each) {
      const GraphKey key{.rows = graph_rows(rows),
                         .adapters = static_cast<lora::AdapterClass>(each)};
      if (key.adapters != lora::AdapterClass::many_labels || key.rows > kernels::few_labels)
        keys.push_back(key);
    }
  }
  return keys;
}

const lora::SiteSet& Runner::foreseen() const {
  static const lora::SiteSet none;
  return table_ == nullptr ? none : table_->foreseen();
}

std::optional<Runner::GraphKey> Runner::missing_graph() const {
  const lora::SiteSet& sites = foreseen();
  if (missed_ && find_graph(*missed_, sites) == nullptr) return missed_;
  if (sites.empty() || complete_for_ == sites) return std::nullopt;
  for (const GraphKey& key : adapted_keys()) {
    const auto known = graphs_.find(key);
    if (known == graphs_.end() || known->second.sites != sites) return key;
  }
  return std::nullopt;
}

Result<bool> Runner::capture_ahead() {
  if (!options_.graphs) return false;
  const std::optional<GraphKey> key = missing_graph();
  bool room = key.has_value();
  // A graph is made and dropped.
  const auto alone = [this] {
    return dist::LaunchGate::enter(options_.others == nullptr ? nullptr : options_.others->gate(),
                                   dist::LaunchGate::Way::alone);
  };
  if (key) {
    const auto capture_on = [&](Runner& runner) -> Result<void> {
      const auto pass = alone();
      Result<void> captured = runner.capture(*key, runner.foreseen());
      if (captured.ok() || captured.error().code() != ErrorCode::out_of_memory) return captured;
      room = false;
      return {};
    };
    MOTLEY_TRY_VOID(for_others(capture_on));
    MOTLEY_TRY_VOID(capture_on(*this));
    if (room) return true;
    log::warning("runner.no_room_for_graphs", {{"graphs", graphs_.size()}, {"rows", key->rows}});
  }
  // Steps run without the graph, on all ranks alike; adapters may need the memory.
  const auto leave_out = [&](Runner& runner) -> Result<void> {
    if (key) {
      const auto pass = alone();
      runner.graphs_.erase(*key);
    }
    runner.missed_.reset();
    if (runner.complete_for_ != runner.foreseen()) runner.complete_for_ = runner.foreseen();
    return {};
  };
  MOTLEY_TRY_VOID(for_others(leave_out));
  MOTLEY_TRY_VOID(leave_out(*this));
  return false;
}

lora::RowMixes Runner::mixes(const std::int32_t* labels) const {
  const lora::Batch& adapters = layout_.adapters();
  // The labels are equal, but for its own labels the table has row groups, too.
  if (table_ != nullptr && labels == layout_.labels()) labels = table_->labels();
  return {.batch = adapted_ ? &adapters : nullptr, .labels = labels, .table = table_.get()};
}

model::HiddenStates Runner::take_states(std::int64_t rows) {
  const auto take = [&] {
    return arena_.allocate(DType::f32, {rows, model_->config().hidden}).value();
  };
  return {.sum = take(), .addend = take()};
}

void Runner::trace_other(std::string_view name, FunctionRef<void()> work) {
  model::TracedLaunch traced{.ops = {name}};
  kernels::log_cuda_launches(model_->kernels(), &traced.kernels);
  work();
  kernels::log_cuda_launches(model_->kernels(), nullptr);
  workspace_.trace->push_back(std::move(traced));
}

Result<Runner::Trace> Runner::trace(std::span<const Chunk> chunks) {
  MOTLEY_TRY(const LaidOut laid_out, lay_out(chunks));
  const auto launch_step = [&]() -> Result<void> {
    if (laid_out.padded) {
      launch_decode(take_decode_memory());
    } else {
      const model::HiddenStates hidden = take_states(layout_.rows());
      launch_forward(hidden);
      MOTLEY_TRY_VOID(emit_logits(
          hidden, [](const Tensor&, std::span<const LogitRow>) { return Result<void>(); }));
    }
    return kernels::cuda_launches(model_->kernels());
  };
  Trace trace;
  workspace_.trace = &trace.launches;
  auto queued = Result<void>();
  if (on_gpu()) {
    auto graph = stream_->capture(launch_step);
    if (graph.ok()) trace.captured = (*graph)->work_count();
    if (!graph.ok()) queued = std::move(graph).error();
  } else {
    queued = launch_step();
  }
  workspace_.trace = nullptr;
  layout_.clear();
  if (!queued.ok()) return std::move(queued).error();
  return trace;
}

void Runner::launch_forward(const model::HiddenStates& hidden) {
  view_choices();
  // Each rank chooses by itself between a graph and launches, and its sites may be fewer than
  // others': a step that a graph may serve gathers nothing.
  workspace_.shared_shrinks = layout_.decodes() ? ops::SharedShrinks{} : shared_shrinks_;
  const model::Batch batch{.count = layout_.rows(),
                           .tokens = layout_.tokens(),
                           .rows = {.sequences = layout_.sequences(),
                                    .seq_begin = layout_.seq_begin(),
                                    .positions = layout_.positions(),
                                    .block_table = layout_.block_table(),
                                    .max_rows = layout_.max_rows(),
                                    .least_rows = layout_.least_rows(),
                                    .max_positions = options_.max_tokens},
                           .pages = kv_.layers(),
                           .states = layout_.states(),
                           .layer_states = states_.layers(),
                           .mixes = mixes(layout_.labels()),
                           .parts = layout_.parts(),
                           .position_begin = layout_.position_begin(),
                           .choices = choices_memory_.size() == 0 ? nullptr : &choices_};
  model_->forward(batch, workspace_, stream_->handle(), hidden);
}

void Runner::launch_decode(const DecodeMemory& memory) {
  launch_forward(memory.hidden);
  model_->logits(memory.hidden, mixes(layout_.labels()), workspace_, stream_->handle(),
                 memory.logits);
}

Runner::DecodeMemory Runner::take_decode_memory() {
  const std::int64_t rows = layout_.rows();
  const model::HiddenStates hidden = take_states(rows);
  return {.hidden = hidden,
          .logits = arena_.allocate(DType::f32, {rows, model_->config().vocabulary}).value()};
}

Result<Tensor> Runner::decode(const std::optional<GraphKey>& key) {
  const DecodeMemory memory = take_decode_memory();
  const CapturedStep* const captured =
      key ? find_graph(*key, adapted_ ? table_->own_sites() : foreseen()) : nullptr;
  if (captured != nullptr) {
    MOTLEY_TRY_VOID(captured->graph->launch(*stream_));
    view_choices();
    ++graph_launches_;
    return memory.logits;
  }
  if (key) missed_ = key;
  launch_decode(memory);
  return memory.logits;
}

Result<void> Runner::capture(const GraphKey& key, const lora::SiteSet& sites) {
  const SteadyClock clock;
  const TimePoint begin = clock.now();
  layout_.build({});
  layout_.pad_to(key.rows);
  adapted_ = key.adapters.has_value();
  CapturedStep captured;
  if (adapted_) {
    table_->widen_to(*key.adapters, key.rows, sites);
    captured.sites = sites;
  }
  arena_.rewind(0);
  const DecodeMemory memory = take_decode_memory();
  MOTLEY_TRY(captured.graph, stream_->capture([&]() -> Result<void> {
    launch_decode(memory);
    return kernels::cuda_launches(model_->kernels());
  }));
  graphs_[key] = std::move(captured);
  if (missed_ == key) missed_.reset();
  capture_time_ = clock.now() - begin;
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
    const auto gather = [&] {
      ops::embed(context(), hidden.sum, layout_.places() + begin, gathered.sum);
      ops::embed(context(), hidden.addend, layout_.places() + begin, gathered.addend);
    };
    workspace_.trace == nullptr ? gather() : trace_other("gather_rows", gather);
    model_->logits(gathered, mixes(layout_.logit_labels() + begin), workspace_, stream_->handle(),
                   logits);
    MOTLEY_TRY_VOID(ranks_status());
    MOTLEY_TRY_VOID(sink(logits, wanted.subspan(begin, count)));
    arena_.rewind(mark);
  }
  return {};
}

}  // namespace motley::runner
