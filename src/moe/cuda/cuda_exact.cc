#include "moe/cuda/cuda_exact.h"

#include <array>
#include <utility>

#include "base/cat.h"
#include "kernels/cuda/experts/plan.h"
#include "lora/apply/step_table.h"
#include "moe/formats.h"

namespace motley::moe {
namespace {

namespace cuda = kernels::cuda;
using cuda::ExactExperts;
using cuda::ExpertPlan;

class ExactWeights final : public PreparedExperts {
 public:
  ExactWeights(const ExpertWeights& source, DeviceWeights placed, DeviceBiases placed_biases)
      : PreparedExperts(source), weights_(std::move(placed)), biases_(std::move(placed_biases)) {}

  void put(ExactExperts& params) const {
    params.gate = weights_.gate;
    params.up = weights_.up;
    params.down = weights_.down;
    params.gate_up_inputs = weights().gate[0].view().inputs;
    params.down_inputs = weights().down[0].view().inputs;
    params.gate_up_ordered =
        common_format(weights().gate).input_order || common_format(weights().up).input_order;
    params.down_ordered = common_format(weights().down).input_order;
    params.gate_bias = biases_.gate;
    params.up_bias = biases_.up;
    params.down_bias = biases_.down;
  }

 private:
  DeviceWeights weights_;
  DeviceBiases biases_;
};

// Sizes for the plan and the kernels, for this many tokens.
ExactExperts sizes_of(const Problem& problem, std::int64_t tokens, const DeltaLimits& limits) {
  ExactExperts params{
      .tokens = tokens,
      .experts_per_token = problem.top_k,
      .experts = problem.experts,
      .hidden = problem.hidden,
      .intermediate = problem.intermediate,
      .more_columns = problem.more_columns,
  };
  params.deltas.max_terms = limits.terms;
  params.deltas.max_rank = limits.rank;
  return params;
}

class ExactWorkspace final : public Workspace {
 public:
  static Result<std::unique_ptr<Workspace>> create(const Problem& problem, std::int64_t max_tokens,
                                                   const DeltaLimits& limits,
                                                   tensor::Device& device) {
    const std::int64_t pairs = max_tokens * problem.top_k;
    const int experts = problem.experts;
    const std::int64_t tiles = cuda::max_tiles(pairs, experts, cuda::exact_tile_places);
    std::unique_ptr<ExactWorkspace> made(new ExactWorkspace(limits));
    const auto take = [&](auto*& array, std::int64_t count) -> Result<void> {
      const auto bytes = static_cast<std::size_t>(count) * sizeof(*array);
      MOTLEY_TRY(tensor::Buffer memory, device.allocate(bytes));
      array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(memory.data());
      made->memory_.push_back(std::move(memory));
      return {};
    };
    ExpertPlan& plan = made->plan_;
    MOTLEY_TRY_VOID(take(plan.order, pairs));
    MOTLEY_TRY_VOID(take(plan.tokens, pairs));
    MOTLEY_TRY_VOID(take(plan.places, pairs));
    MOTLEY_TRY_VOID(take(plan.expert_begin, experts + 1));
    MOTLEY_TRY_VOID(take(plan.tile_begin, experts + 1));
    MOTLEY_TRY_VOID(take(plan.tiles, tiles));
    MOTLEY_TRY_VOID(take(plan.block_counts, cuda::plan_scratch_numbers(pairs, experts)));
    if (limits.labels > 0) {
      MOTLEY_TRY_VOID(take(plan.piece_begin, tiles + 1));
      MOTLEY_TRY_VOID(take(plan.pieces, pairs));
      MOTLEY_TRY_VOID(take(made->tokens_by_label_, max_tokens));
    }
    const std::size_t bytes = cuda::exact_scratch_bytes(sizes_of(problem, max_tokens, limits));
    MOTLEY_TRY_VOID(take(made->scratch_, static_cast<std::int64_t>(bytes / sizeof(float))));
    return std::unique_ptr<Workspace>(std::move(made));
  }

  void begin_step(std::int64_t tokens, const std::int32_t* labels, StreamHandle stream) override {
    labels_ = labels;
    if (labels == nullptr) return;
    MOTLEY_CHECK(limits_.labels > 0, "labels where the limits foresee some");
    cuda::sort_tokens_by_label(labels, tokens, limits_.labels, tokens_by_label_, stream);
  }

  const DeltaLimits& limits() const { return limits_; }

  // Plans the call's pairs, and sets all addresses.
  void put(ExactExperts& params, const ExpertCall& call) const {
    const bool adapted = call.deltas != nullptr;
    if (adapted) {
      MOTLEY_CHECK(labels_ != nullptr, "a step that began with labels");
      params.deltas.labels = labels_;
    }
    cuda::plan_experts({.tokens = params.tokens,
                        .experts_per_token = params.experts_per_token,
                        .experts = params.experts,
                        .ids = call.ids.data<std::int32_t>(),
                        .labels = adapted ? labels_ : nullptr,
                        .tokens_by_label = adapted ? tokens_by_label_ : nullptr,
                        .tile_places = cuda::exact_tile_places,
                        .plan = plan_},
                       call.context.stream);
    params.plan = plan_;
    params.scratch = scratch_;
  }

 private:
  explicit ExactWorkspace(const DeltaLimits& limits) : limits_(limits) {}

  DeltaLimits limits_;
  std::vector<tensor::Buffer> memory_;
  ExpertPlan plan_;
  std::int32_t* tokens_by_label_ = nullptr;
  float* scratch_ = nullptr;
  const std::int32_t* labels_ = nullptr;
};

}  // namespace

Support CudaExact::supports(const Problem& problem) const {
  Support support = supports_on_gpu(problem);
  if (!support) return support;
  for (const quant::Format* format : {&problem.gate_up, &problem.down}) {
    if (!quant::is_known(*format))
      return Support::no(cat("it has no loops for weights in ", to_string(*format)));
  }
  return Support::yes();
}

Result<std::unique_ptr<PreparedExperts>> CudaExact::prepare(const ExpertWeights& weights,
                                                            quant::Uploader* uploader) const {
  MOTLEY_TRY(DeviceWeights placed, place_weights(weights, *uploader));
  MOTLEY_TRY(DeviceBiases biases, place_biases(weights, *uploader));
  return std::unique_ptr<PreparedExperts>(
      std::make_unique<ExactWeights>(weights, std::move(placed), std::move(biases)));
}

Result<std::unique_ptr<Workspace>> CudaExact::make_workspace(const Problem& problem,
                                                             std::int64_t max_tokens,
                                                             const DeltaLimits& limits,
                                                             tensor::Device& device) const {
  MOTLEY_TRY_VOID(check_limits(limits));
  return ExactWorkspace::create(problem, max_tokens, limits, device);
}

namespace {

void run(const ExpertCall& call, const ExpertKernel&) {
  if (call.x.dim(0) == 0) return;
  const ExpertWeights& weights = call.experts.weights();
  const auto& workspace = own<ExactWorkspace>(call.workspace);
  const Problem sizes{.hidden = weights.hidden,
                      .intermediate = weights.intermediate,
                      .more_columns = weights.down[0].columns() - weights.intermediate,
                      .experts = weights.experts,
                      .top_k = static_cast<int>(call.ids.dim(1))};
  ExactExperts params = sizes_of(sizes, call.x.dim(0), workspace.limits());
  own<const ExactWeights>(call.experts).put(params);
  workspace.put(params, call);
  params.activation = CudaBackend::activation_of(weights);
  params.swiglu_limit = weights.swiglu_limit;
  params.swiglu_alpha = weights.swiglu_alpha;
  params.round_h = !call.context.exact;
  params.x = call.x.bytes();
  params.x_type = call.x.dtype();
  params.routing_weights = call.routing_weights.data<float>();
  if (call.deltas != nullptr) {
    const lora::StepTable& table = *call.deltas->table;
    params.deltas.term_begin = table.term_begin();
    params.deltas.terms = table.terms();
    params.deltas.layer = call.deltas->layer;
    params.deltas.factor_type = table.format().dtype;
  }
  params.out = call.out.data<float>();
  CudaBackend::with_cut_rows(call, [&](const cuda::CutRows& cut) {
    params.cut = cut;
    cuda::run_exact_experts(params, call.context.stream);
  });
}

constexpr std::array<ExpertKernel, 1> all_kernels{
    {{.info = {.name = "cuda_exact", .arithmetic = {"float32, k ascending"}}, .run = run}}};

}  // namespace

std::span<const ExpertKernel> CudaExact::kernels() const { return all_kernels; }

}  // namespace motley::moe
