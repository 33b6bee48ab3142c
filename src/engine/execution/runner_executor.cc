#include "engine/execution/runner_executor.h"

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "ops/sample.h"

namespace motley::engine {
namespace {

// Samplers of this executor are its own.
SamplingState* state_of(const Draw& draw) { return static_cast<SamplingState*>(draw.sampler); }

// If memory runs out in a step, its queued work is waited for: the next step overwrites its inputs.
class Unwinding {
 public:
  explicit Unwinding(tensor::Stream& stream) : stream_(stream) {}
  ~Unwinding() {
    if (std::uncaught_exceptions() > before_) std::ignore = stream_.synchronize();
  }
  Unwinding(const Unwinding&) = delete;
  Unwinding& operator=(const Unwinding&) = delete;

 private:
  tensor::Stream& stream_;
  int before_ = std::uncaught_exceptions();
};

RoutedExpertsSizes routed_sizes(const runner::Runner& runner) {
  const model::Config& config = runner.config();
  if (!runner.options().keep_choices || !config.has_experts()) return {};
  return {.layers = static_cast<int>(config.layers),
          .top_k = config.moe.router.top_k,
          .experts = config.moe.router.experts};
}

}  // namespace

Result<std::unique_ptr<RunnerExecutor>> RunnerExecutor::create(runner::Runner& runner,
                                                               std::int64_t vocabulary,
                                                               int prompt_top) {
  const runner::Runner::Options& steps = runner.options();
  MOTLEY_TRY(std::unique_ptr<PromptScores> scores,
             PromptScores::create(
                 runner.device(),
                 {.rows = steps.max_rows, .piece_rows = steps.logit_rows, .top = prompt_top}));
  SamplingBatch::Options sampled{.rows = std::max(steps.max_sequences, steps.logit_rows),
                                 .piece_rows = steps.logit_rows,
                                 .vocabulary = vocabulary,
                                 .sequence_tokens = steps.max_tokens};
  sampled.counted_sequences = std::max(sampled.counted_sequences, steps.logit_rows);
  MOTLEY_TRY(std::unique_ptr<SamplingBatch> sampling,
             SamplingBatch::create(runner.device(), sampled));
  const std::int64_t scratch =
      ops::sample_scratch_bytes(runner.context(), steps.logit_rows, vocabulary);
  MOTLEY_TRY(tensor::Buffer memory, runner.device().allocate(static_cast<std::size_t>(scratch)));
  std::unique_ptr<RoutedRowsReader> routed;
  if (const RoutedExpertsSizes sizes = routed_sizes(runner); sizes.kept()) {
    MOTLEY_TRY(routed,
               RoutedRowsReader::create(runner.device(), {.sizes = sizes,
                                                          .has_experts = runner.config().moe_layers,
                                                          .rows = steps.max_rows}));
  }
  return std::unique_ptr<RunnerExecutor>(new RunnerExecutor(runner, vocabulary, std::move(scores),
                                                            std::move(routed), std::move(sampling),
                                                            tensor::Arena(std::move(memory))));
}

RunnerExecutor::RunnerExecutor(runner::Runner& runner, std::int64_t vocabulary,
                               std::unique_ptr<PromptScores> scores,
                               std::unique_ptr<RoutedRowsReader> routed,
                               std::unique_ptr<SamplingBatch> sampling, tensor::Arena scratch)
    : runner_(&runner),
      vocabulary_(vocabulary),
      scores_(std::move(scores)),
      routed_(std::move(routed)),
      sampling_(std::move(sampling)),
      scratch_(std::move(scratch)) {
  const auto sequences = static_cast<std::size_t>(runner.options().max_sequences);
  draws_.reserve(sequences);
  states_.reserve(sequences);
}

Executor::Limits RunnerExecutor::limits() const {
  const runner::Runner::Options& options = runner_->options();
  const auto& mixes = runner_->mix_limits();
  const std::int64_t slots = runner_->states().slots();
  return {.rows = options.max_rows,
          .sequences = slots == 0 ? options.max_sequences : std::min(options.max_sequences, slots),
          .sequence_tokens = options.max_tokens,
          .pages = runner_->kv().pages(),
          .page_tokens = runner::KvMemory::page_tokens,
          .vocabulary = vocabulary_,
          .prompt_top = scores_->top(),
          .state_slots = slots,
          .snapshots = runner_->states().places(),
          .host_snapshots = runner_->states().host_places(),
          .adapter_rank = mixes ? mixes->rank : 0,
          .mix_rank = mixes ? mixes->rank_sum : 0,
          .routed_experts = routed_ == nullptr ? RoutedExpertsSizes{} : routed_->sizes()};
}

Result<void> RunnerExecutor::step(std::span<const runner::Chunk> chunks,
                                  std::span<ChunkOutput> outputs, FunctionRef<void()> meanwhile) {
  // On a CPU step() computes at once.
  const bool queues = runner_->device().id().kind != tensor::DeviceKind::cpu;
  if (!queues) meanwhile();
  const Unwinding unwinding(runner_->stream());
  chunks_ = chunks;
  outputs_ = outputs;
  draws_.clear();
  states_.clear();
  // Masks are computed while the model runs.
  for (const ChunkOutput& output : outputs) {
    for (const Draw& draw : output.draws) {
      if (grammar::Cursor* const grammar = state_of(draw)->grammar()) grammar->request_mask();
    }
  }
  scores_->begin();
  sampling_->begin();
  auto sink = [this](const tensor::Tensor& logits, std::span<const runner::LogitRow> rows) {
    return read(logits, rows);
  };
  MOTLEY_TRY_VOID(runner_->step(chunks, sink));
  if (!draws_.empty()) MOTLEY_TRY_VOID(sampling_->collect(runner_->stream()));
  MOTLEY_TRY_VOID(launch_routed());
  if (queues) {
    meanwhile();
    const TimePoint queued = clock_.now();
    const Result<bool> captured = capture_meanwhile();
    // The results of draws are valid after this, even if the capture failed.
    MOTLEY_TRY_VOID(runner_->synchronize());
    if (!captured.ok()) return captured.error();
    // A capture waits for a step of single tokens that shows that there is time for it.
    const bool decodes = std::ranges::all_of(
        chunks, [](const runner::Chunk& each) { return each.tokens.size() == 1; });
    if (*captured) {
      last_wait_ = {};
    } else if (decodes) {
      last_wait_ = clock_.now() - queued;
    }
  }
  answer_routed();
  answer_draws();
  return {};
}

Result<void> RunnerExecutor::launch_routed() {
  if (std::ranges::none_of(outputs_, &ChunkOutput::asks_routed)) return {};
  return routed_->queue(runner_->choices(), runner_->stream());
}

void RunnerExecutor::answer_routed() {
  std::int64_t row = 0;
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    if (outputs_[i].asks_routed) outputs_[i].routed = routed_->from(row);
    row += std::ssize(chunks_[i].tokens);
  }
}

Result<bool> RunnerExecutor::capture_meanwhile() {
  // Steps without graphs leave little time to wait for: after this many a capture is worth a delay.
  constexpr int patience = 64;
  const bool misses = runner_->misses_graph();
  missed_steps_ = misses ? missed_steps_ + 1 : 0;
  // warm_up() made the first captures, so their duration is known.
  if (runner_->capture_time() > last_wait_ && missed_steps_ < patience) return false;
  missed_steps_ = 0;
  return runner_->capture_ahead();
}

Result<void> RunnerExecutor::read(const tensor::Tensor& logits,
                                  std::span<const runner::LogitRow> rows) {
  MOTLEY_TRY_VOID(scores_->read(outputs_, runner_->context(), runner_->stream(), logits, rows));
  // Adjacent rows with one draw each are drawn together; several draws of one row, of choices that
  // fork, are drawn one by one.
  std::size_t first = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto [chunk, token] = rows[i];
    const bool last = token + 1 == chunks_[chunk].tokens.size();
    const std::span<Draw> draws = last ? outputs_[chunk].draws : std::span<Draw>();
    if (draws.size() != 1) {
      MOTLEY_TRY_VOID(launch_sampling(logits, first));
      first = i + 1;
    }
    for (Draw& draw : draws) {
      draws_.push_back(&draw);
      states_.push_back(state_of(draw));
      if (draws.size() > 1) MOTLEY_TRY_VOID(launch_sampling(logits, i));
    }
  }
  return launch_sampling(logits, first);
}

Result<void> RunnerExecutor::launch_sampling(const tensor::Tensor& logits, std::size_t first) {
  if (states_.empty()) return {};
  const auto begin = static_cast<std::int64_t>(first);
  const auto end = begin + static_cast<std::int64_t>(states_.size());
  ops::Context context = runner_->context();
  context.scratch = &scratch_;
  Result<void> queued =
      sampling_->launch(context, runner_->stream(), logits.slice(0, begin, end), states_);
  states_.clear();
  return queued;
}

void RunnerExecutor::answer_draws() {
  for (std::size_t i = 0; i < draws_.size(); ++i) {
    Draw& draw = *draws_[i];
    const SamplingBatch::Drawn drawn = sampling_->drawn(static_cast<std::int64_t>(i));
    draw.waits = drawn.waits;
    if (draw.waits) continue;
    draw.token = drawn.token;
    draw.logprob = drawn.logprob;
    draw.rank = drawn.rank;
    draw.top = drawn.top;
    draw.top_ranks = drawn.top_ranks;
    draw.ends = drawn.token >= 0 && state_of(draw)->accept(drawn.token);
  }
}

}  // namespace motley::engine
