#include "cli/bench/tune/expert_tuner.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/log.h"
#include "cli/bench/steps/random_adapters.h"
#include "kernels/tuning/candidates.h"
#include "kernels/tuning/crossovers.h"
#include "lora/apply/apply.h"
#include "lora/apply/step_table.h"
#include "model/dense_groups.h"

namespace motley::cli {
namespace {

constexpr std::int64_t max_tokens = 4096;
constexpr int launches = 16;  // each has its own choices, and the weights of a layer in turn

struct Layers {
  kernels::ExpertLayerShape shape;
  std::vector<const model::MoeBlock*> blocks;
};

std::vector<Layers> layers_of(const model::Model& model) {
  std::vector<Layers> all;
  model::for_each_moe(model.layers(), [&](const model::MoeBlock& block, std::size_t) {
    if (block.backend->kernels().size() < 2) return;
    const kernels::ExpertLayerShape shape = model::expert_layer_shape(block);
    auto found = std::ranges::find(all, shape, &Layers::shape);
    if (found == all.end()) found = all.insert(all.end(), Layers{shape, {}});
    // Formats of one width may have backends of their own; only the first one's is measured.
    if (found->blocks.empty() || found->blocks.front()->backend == block.backend)
      found->blocks.push_back(&block);
  });
  return all;
}

// Different experts for each token, all alike likely.
std::vector<std::int32_t> even_choices(std::int64_t tokens, const moe::Problem& problem) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(problem.experts));
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::int32_t> ids;
  std::uint64_t state = 1;
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(problem.top_k); ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      std::swap(order[i], order[i + (state >> 33) % (order.size() - i)]);
      ids.push_back(order[i]);
    }
  }
  return ids;
}

// Random adapters on all rows of a step, each of the same number of rows.
class AdaptedRows {
 public:
  static constexpr int count = 4;
  static constexpr int rank = 16;

  static Result<std::unique_ptr<AdaptedRows>> create(const model::Model& model,
                                                     tensor::Device& device) {
    auto made = std::make_unique<AdaptedRows>();
    MOTLEY_TRY(made->adapters_,
               RandomAdapters::create(model, device,
                                      {.count = count, .ranks = {rank}, .factors = DType::bf16}));
    const int columns = made->adapters_->largest_rank();
    MOTLEY_TRY(made->table_, lora::StepTable::create(device, made->adapters_->pool(),
                                                     {.rows = static_cast<int>(max_tokens),
                                                      .labels = count,
                                                      .terms = count,
                                                      .ranks = columns}));
    made->limits_ = {.labels = count, .terms = 1, .rank = columns, .rank_sum = columns};
    return made;
  }

  const moe::DeltaLimits& limits() const { return limits_; }
  const std::int32_t* labels() const { return table_->labels(); }
  lora::ExpertDeltas deltas(const model::MoeBlock& block) const {
    return {.batch = &batch_, .layer = block.router.site.layer, .table = table_.get()};
  }
  // The rows of the next steps.
  Result<void> place(std::int64_t rows, tensor::Stream& stream) {
    std::vector<lora::Mix> mixes;
    for (std::int64_t row = 0; row < rows; ++row)
      mixes.push_back(adapters_->mixes()[static_cast<std::size_t>(row % count)]);
    batch_.build(mixes);
    MOTLEY_TRY_VOID(table_->upload(batch_, stream));
    return stream.synchronize();
  }

 private:
  std::unique_ptr<RandomAdapters> adapters_;
  std::unique_ptr<lora::StepTable> table_;
  lora::Batch batch_;
  moe::DeltaLimits limits_;
};

class ExpertTuner {
 public:
  // `adapted`: rows with adapters; null: rows of the base.
  ExpertTuner(const model::Model& model, tensor::Device& device, GraphTimer& timer,
              const Layers& layers, AdaptedRows* adapted)
      : device_(device),
        timer_(timer),
        layers_(layers),
        adapted_(adapted),
        problem_(layers.blocks.front()->problem),
        backend_(*layers.blocks.front()->backend),
        context_{.kernels = &model.kernels(),
                 .stream = timer.handle(),
                 .scratch = nullptr,
                 .exact = false} {}

  Result<kernels::TunedExperts> tune() {
    MOTLEY_TRY_VOID(make_inputs());
    const std::span<const moe::ExpertKernel> tilings = backend_.kernels();
    std::vector<std::string> names;
    for (const moe::ExpertKernel& kernel : tilings)
      names.push_back(kernels::cuda::tiling_name(kernel.number));
    const std::vector<std::int64_t> ladder = kernels::tuning_ladder(max_tokens);
    kernels::TunedExperts tuned{.shape = layers_.shape, .rows = {}, .times = {}};
    tuned.shape.adapters = adapted_ != nullptr;
    MOTLEY_TRY(tuned.times,
               kernels::measure_candidates(
                   names, ladder, [&](std::size_t candidate, std::int64_t tokens, double limit_us) {
                     return measure(tilings[candidate], tokens, limit_us);
                   }));
    tuned.rows = kernels::find_crossovers(tuned.times);
    return tuned;
  }

 private:
  Result<void> make_inputs() {
    const auto allocate = [&](std::int64_t numbers, std::size_t bytes) {
      return device_.allocate(static_cast<std::size_t>(numbers) * bytes);
    };
    const std::int64_t pairs = max_tokens * problem_.top_k;
    MOTLEY_TRY(x_, allocate(max_tokens * problem_.hidden, 2));
    MOTLEY_TRY(out_, allocate(max_tokens * problem_.hidden, sizeof(float)));
    MOTLEY_TRY(ids_, allocate(pairs * launches, sizeof(std::int32_t)));
    MOTLEY_TRY(weights_, allocate(pairs, sizeof(float)));
    tensor::Stream& stream = timer_.stream();
    MOTLEY_TRY_VOID(fill_random(stream, x_.data(), x_.size()));
    const std::vector<std::int32_t> ids = even_choices(max_tokens * launches, problem_);
    MOTLEY_TRY_VOID(stream.copy(ids_.data(), ids.data(), ids_.size()));
    const std::vector<float> weights(static_cast<std::size_t>(pairs),
                                     1.0F / static_cast<float>(problem_.top_k));
    MOTLEY_TRY_VOID(stream.copy(weights_.data(), weights.data(), weights_.size()));
    MOTLEY_TRY_VOID(stream.synchronize());
    MOTLEY_TRY(workspace_,
               backend_.make_workspace(
                   problem_, max_tokens,
                   adapted_ == nullptr ? moe::DeltaLimits() : adapted_->limits(), device_));
    if (adapted_ == nullptr) return {};
    for (const model::MoeBlock* const block : layers_.blocks)
      deltas_.push_back(adapted_->deltas(*block));
    return {};
  }

  moe::ExpertCall call(std::int64_t tokens, int launch) const {
    const tensor::Shape pairs{tokens, problem_.top_k};
    const auto layer = static_cast<std::size_t>(launch) % layers_.blocks.size();
    const auto offset = static_cast<std::size_t>(launch * tokens * problem_.top_k) * 4;
    return {.experts = *layers_.blocks[layer]->prepared,
            .x = x_.view(DType::bf16, {tokens, problem_.hidden}),
            .ids = ids_.view(DType::i32, pairs, offset),
            .routing_weights = weights_.view(DType::f32, pairs),
            .deltas = adapted_ == nullptr ? nullptr : &deltas_[layer],
            .out = out_.view(DType::f32, {tokens, problem_.hidden}),
            .workspace = *workspace_,
            .context = context_};
  }

  Result<std::optional<double>> measure(const moe::ExpertKernel& kernel, std::int64_t tokens,
                                        double limit_us) {
    // Narrow tiles would read each expert's weights again and again.
    constexpr std::int64_t pairs_of_narrow_tiles = 512;
    const int width = kernel.info.tile.rows;
    if (width < 128 && width * pairs_of_narrow_tiles < tokens * problem_.top_k)
      return std::optional<double>();
    if (adapted_ != nullptr && placed_ != tokens) {
      MOTLEY_TRY_VOID(adapted_->place(tokens, timer_.stream()));
      placed_ = tokens;
    }
    const std::int32_t* const labels = adapted_ == nullptr ? nullptr : adapted_->labels();
    const auto begin = [&](StreamHandle stream) { workspace_->begin_step(tokens, labels, stream); };
    begin(timer_.handle());
    if (kernel.supports != nullptr && !kernel.supports(call(tokens, 0), kernel))
      return std::optional<double>();
    MOTLEY_TRY(const double us,
               timer_.time(
                   launches, begin,
                   [&](int i, StreamHandle) { kernel.run(call(tokens, i), kernel); }, limit_us));
    return std::optional(us);
  }

  tensor::Device& device_;
  GraphTimer& timer_;
  const Layers& layers_;
  AdaptedRows* const adapted_;
  std::int64_t placed_ = 0;                 // tokens
  std::vector<lora::ExpertDeltas> deltas_;  // by layer
  const moe::Problem& problem_;
  const moe::Backend& backend_;
  ops::Context context_;
  tensor::Buffer x_;
  tensor::Buffer out_;
  tensor::Buffer ids_;
  tensor::Buffer weights_;
  std::unique_ptr<moe::Workspace> workspace_;
};

}  // namespace

Result<std::vector<kernels::TunedExperts>> tune_experts(
    const model::Model& model, tensor::Device& device, GraphTimer& timer,
    FunctionRef<void(const kernels::TunedExperts&)> done) {
  std::vector<kernels::TunedExperts> tuned;
  const auto tune = [&](const Layers& layers, AdaptedRows* adapted) -> Result<void> {
    MOTLEY_TRY(kernels::TunedExperts one,
               ExpertTuner(model, device, timer, layers, adapted).tune());
    done(one);
    tuned.push_back(std::move(one));
    return {};
  };
  const std::vector<Layers> all = layers_of(model);
  for (const Layers& layers : all) MOTLEY_TRY_VOID(tune(layers, nullptr));
  if (all.empty()) return tuned;
  auto made = AdaptedRows::create(model, device);
  if (!made.ok() && made.error().code() == ErrorCode::out_of_memory) {
    log::warning("tuning.no_adapters", {{"reason", made.error().message()}});
    return tuned;
  }
  MOTLEY_TRY(const std::unique_ptr<AdaptedRows> adapted, std::move(made));
  for (const Layers& layers : all) MOTLEY_TRY_VOID(tune(layers, adapted.get()));
  // The adapters may go before the table.
  MOTLEY_TRY_VOID(adapted->place(0, timer.stream()));
  return tuned;
}

}  // namespace motley::cli
