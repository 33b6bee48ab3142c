#include "moe/cuda/cuda_grouped.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "base/cat.h"
#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/experts/grouped.h"
#include "kernels/cuda/primitives/device.h"
#include "kernels/cuda/tuned_thresholds.h"
#include "lora/apply/step_table.h"
#include "moe/formats.h"
#include "ops/over_ranks.h"

namespace motley::moe {
namespace {

namespace cuda = kernels::cuda;

using kernels::cuda::ExpertFormat;
using kernels::cuda::ExpertShape;
using kernels::cuda::GroupedExperts;
using kernels::cuda::GroupedTiles;
using kernels::cuda::PackedExperts;

ExpertShape shape_of(const Problem& problem) {
  return {.experts = problem.experts,
          .hidden = static_cast<int>(problem.hidden),
          .intermediate = static_cast<int>(problem.intermediate),
          .more_columns = static_cast<int>(problem.more_columns)};
}

bool is_half(DType type) { return type == DType::f16 || type == DType::bf16; }

// How many inputs share a scale: whole rows are wide groups.
enum class Groups : std::uint8_t { none, fine, wide };
Groups groups_of(const quant::Format& format) {
  using Scales = quant::Format::Scales;
  if (format.scales == Scales::none) return Groups::none;
  const std::int64_t columns = format.block_columns;
  if (format.scales == Scales::tensor || format.scales == Scales::channel || columns % 128 == 0)
    return Groups::wide;
  return columns == 32 || columns == 64 ? Groups::fine : Groups::none;
}

std::optional<ExpertFormat> int4_format(const quant::Format& format, Groups groups) {
  if (!is_half(format.scale_type)) return {};
  const bool fine = groups == Groups::fine;
  if (format.scale_type == DType::bf16 && !format.zero_points)
    return fine ? ExpertFormat::int4_fine : ExpertFormat::int4;
  return fine ? ExpertFormat::int4_any_fine : ExpertFormat::int4_any;
}

// The packed layout of a format; none: there is no such layout.
std::optional<ExpertFormat> packed_format(const quant::Format& format) {
  if (format.scales == quant::Format::Scales::none && format.element == DType::bf16)
    return ExpertFormat::bf16;
  if (format.element == DType::f4)
    return format.block_columns == 16 ? ExpertFormat::nvfp4 : ExpertFormat::mxfp4;
  const Groups groups = groups_of(format);
  if (groups == Groups::none) return {};
  if (format.element == DType::i8 && format.bits == 4) return int4_format(format, groups);
  const bool fine = groups == Groups::fine;
  if (format.element == DType::i8)
    return fine || format.zero_points ? ExpertFormat::int8_any_fine : ExpertFormat::int8;
  if (format.element != DType::f8_e4m3 || format.zero_points) return {};
  if (!fine) return ExpertFormat::fp8;
  return format.scale_type == DType::f8_e8m0 ? ExpertFormat::mxfp8 : ExpertFormat::fp8_fine;
}

// Gate and up, and down, have one layout: that of the smaller groups, where ranks cut groups or
// blocks, and with zero points if either has some.
std::optional<ExpertFormat> packed_format(quant::Format gate_up, quant::Format down) {
  using Scales = quant::Format::Scales;
  const auto has_blocks = [](const quant::Format& format) {
    return format.scales == Scales::group || format.scales == Scales::block;
  };
  if (has_blocks(gate_up) && has_blocks(down)) {
    gate_up.block_columns = down.block_columns =
        std::min(gate_up.block_columns, down.block_columns);
    gate_up.block_rows = down.block_rows;
  }
  gate_up.zero_points = down.zero_points = gate_up.zero_points || down.zero_points;
  gate_up.input_order = down.input_order = false;
  return gate_up == down ? packed_format(gate_up) : std::nullopt;
}

// Scales that take decoded numbers out of bf16's range.
Result<void> check_scales(const ExpertWeights& source, ExpertFormat format) {
  if (format != ExpertFormat::mxfp4) return {};
  for (const auto* const projection : {&source.gate, &source.up, &source.down}) {
    for (const quant::Weight& weight : *projection) {
      const std::span scales(static_cast<const std::uint8_t*>(weight.view().scales),
                             weight.scale_count());
      if (std::ranges::max(scales) > cuda::max_mxfp4_scale)
        return Error(ErrorCode::unsupported, "an expert's scale is above 2^65", "cuda_grouped",
                     "use --experts-backend cuda_grouped_decoded");
    }
  }
  return {};
}

// Whether every row has one scale for all its inputs.
bool has_scales_of_rows(const ExpertWeights& source) {
  const auto of_rows = [](const quant::Weight& weight) {
    return weight.view().block_columns >= weight.columns();
  };
  return std::ranges::all_of(source.gate, of_rows) && std::ranges::all_of(source.up, of_rows) &&
         std::ranges::all_of(source.down, of_rows);
}

// Whether the rows of a tile have one scale for the same inputs.
bool has_scales_of_tiles(const ExpertWeights& source) {
  const auto of = [](bool down) {
    return [down](const quant::Weight& weight) {
      const kernels::WeightView view = weight.view();
      return cuda::shares_scales_in_tiles(view.out, view.block_rows, down);
    };
  };
  return std::ranges::all_of(source.gate, of(false)) && std::ranges::all_of(source.up, of(false)) &&
         std::ranges::all_of(source.down, of(true));
}

class GroupedWeights final : public PreparedExperts {
 public:
  static Result<std::unique_ptr<PreparedExperts>> create(const ExpertWeights& source,
                                                         ExpertFormat format, quant::Uploader& to) {
    MOTLEY_TRY_VOID(check_scales(source, format));
    std::unique_ptr<GroupedWeights> made(new GroupedWeights(source));
    const ExpertShape shape = shape_of(problem_of(source, {}));
    PackedExperts& packed = made->packed_;
    packed.format = format;
    if (source.gate[0].format().scale_type == DType::f16) packed.scales = cuda::HalfType::f16;
    packed.scales_of_rows = has_scales_of_rows(source);
    packed.scales_of_tiles = has_scales_of_tiles(source);
    MOTLEY_TRY_VOID(made->take_inputs(0, source.gate, to));
    MOTLEY_TRY_VOID(made->take_inputs(1, source.down, to));
    format = packed.format = cuda::format_for_inputs(packed, made->inputs_, shape);
    const auto allocate = [&](int rows, int columns) {
      return to.device().allocate(cuda::packed_expert_bytes(format, shape.experts, rows, columns));
    };
    MOTLEY_TRY(made->gate_up_, allocate(2 * shape.intermediate, shape.hidden));
    MOTLEY_TRY(made->down_, allocate(shape.hidden, shape.down_columns()));
    packed.gate_up = made->gate_up_.data();
    packed.down = made->down_.data();
    if (cuda::blob_layout(format).row_scales) MOTLEY_TRY_VOID(made->take_row_scales(shape, to));
    MOTLEY_TRY(made->biases_, place_biases(source, to));

    // The copy in the layout of the files is freed once the weights are packed.
    MOTLEY_TRY(const DeviceWeights placed, place_weights(source, to));
    MOTLEY_TRY_VOID(cuda::pack_experts({.shape = shape,
                                        .format = format,
                                        .gate = placed.gate,
                                        .up = placed.up,
                                        .down = placed.down,
                                        .packed_gate_up = made->gate_up_.data(),
                                        .packed_down = made->down_.data(),
                                        .gate_up_rows = numbers(made->gate_up_rows_),
                                        .down_rows = numbers(made->down_rows_)},
                                       to.stream().handle()));
    MOTLEY_TRY_VOID(to.finish());
    return std::unique_ptr<PreparedExperts>(std::move(made));
  }

  std::optional<float> rank_row_unit() const override { return cuda::decoded_unit(packed_.format); }

  void put(GroupedExperts& params) const {
    params.weights = packed_;
    params.gate_bias = biases_.gate;
    params.up_bias = biases_.up;
    params.down_bias = biases_.down;
    for (int seam = 0; seam < 2; ++seam) params.inputs[seam] = inputs_[seam];
  }

 private:
  explicit GroupedWeights(const ExpertWeights& source) : PreparedExperts(source) {}

  static float* numbers(tensor::Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

  Result<void> take_row_scales(const ExpertShape& shape, quant::Uploader& to) {
    const auto allocate = [&](int rows) {
      return to.device().allocate(static_cast<std::size_t>(shape.experts) *
                                  static_cast<std::size_t>(rows) * sizeof(float));
    };
    MOTLEY_TRY(gate_up_rows_, allocate(2 * shape.intermediate));
    MOTLEY_TRY(down_rows_, allocate(shape.hidden));
    packed_.gate_up_rows = numbers(gate_up_rows_);
    packed_.down_rows = numbers(down_rows_);
    return {};
  }

  Result<void> take_inputs(int seam, const std::vector<quant::Weight>& weights,
                           quant::Uploader& to) {
    const kernels::InputRounding& first = weights[0].view().inputs;
    const bool rounds = first.scales != kernels::InputRounding::Scales::none;
    const bool ordered = common_format(weights).input_order;
    if (!rounds && !ordered) return {};
    const auto columns = static_cast<std::size_t>(weights[0].columns());
    if (ordered) {
      const std::size_t bytes = weights.size() * columns * sizeof(std::int32_t);
      MOTLEY_TRY(orders_[seam], to.device().allocate(bytes));
    }
    auto* at = reinterpret_cast<std::int32_t*>(orders_[seam].data());
    std::vector<cuda::ExpertInputs> all;
    kernels::InputRounding common = first;
    for (const quant::Weight& weight : weights) {
      cuda::ExpertInputs& inputs = all.emplace_back();
      inputs.rounding = weight.view().inputs;
      common.zero = std::max(common.zero, std::abs(inputs.rounding.zero));
      if (weight.input_order() == nullptr) continue;
      inputs.order = at;
      MOTLEY_TRY_VOID(to.copy(at, weight.input_order()->data(), columns * sizeof *at));
      at += columns;
    }
    MOTLEY_TRY(expert_inputs_[seam], to.copy(all.data(), all.size() * sizeof all[0]));
    inputs_[seam] = {
        .each = reinterpret_cast<const cuda::ExpertInputs*>(expert_inputs_[seam].data()),
        .rounding = common,
        .ordered = ordered};
    return {};
  }

  PackedExperts packed_;
  cuda::GroupedInputs inputs_[2];
  tensor::Buffer expert_inputs_[2];
  tensor::Buffer orders_[2];
  tensor::Buffer gate_up_;
  tensor::Buffer down_;
  tensor::Buffer gate_up_rows_;
  tensor::Buffer down_rows_;
  DeviceBiases biases_;
};

class GroupedWorkspace final : public Workspace {
 public:
  static Result<std::unique_ptr<Workspace>> create(const Problem& problem, std::int64_t max_tokens,
                                                   const DeltaLimits& limits,
                                                   tensor::Device& device) {
    std::unique_ptr<GroupedWorkspace> made(new GroupedWorkspace());
    made->label_count_ = limits.labels;
    GroupedExperts& params = made->params_;
    params.shape = shape_of(problem);
    params.experts_per_token = problem.top_k;
    params.max_tokens = max_tokens;
    // The columns of an adapter: its rank up to a multiple of 16, at seam 1 once for gate and once
    // for up. The columns of a mix are also such a multiple, as the kernels' vector loads require.
    const int columns = (limits.rank_sum + 15 * limits.terms) / 16 * 16;
    params.deltas.max_terms = limits.terms;
    params.deltas.max_gate_up_rank = 2 * columns;
    params.deltas.max_down_rank = columns;
    MOTLEY_TRY(made->scratch_, device.allocate(cuda::grouped_scratch_bytes(params)));
    params.scratch = made->scratch_.data();
    if (limits.labels > 0) {
      MOTLEY_TRY(made->tokens_by_label_,
                 device.allocate(static_cast<std::size_t>(max_tokens) * sizeof(std::int32_t)));
    }
    return std::unique_ptr<Workspace>(std::move(made));
  }

  void begin_step(std::int64_t tokens, const std::int32_t* labels, StreamHandle stream) override {
    MOTLEY_CHECK(tokens <= params_.max_tokens, "a step that the workspace was made for");
    params_.turn = 0;
    params_.multiprocessors = cuda::device_of(stream).multiprocessors();
    cuda::prepare_grouped_scratch(params_, stream);
    labels_ = labels;
    if (labels == nullptr) return;
    MOTLEY_CHECK(label_count_ > 0, "labels where the limits foresee some");
    cuda::sort_tokens_by_label(labels, tokens, label_count_, tokens_by_label(), stream);
  }

  // The next layer of the step uses other counters.
  void advance() { ++params_.turn; }
  // The parameters of the current layer.
  GroupedExperts params_for(const ExpertCall& call) const {
    GroupedExperts params = params_;
    if (call.deltas == nullptr) return params;
    MOTLEY_CHECK(labels_ != nullptr, "a step that began with labels");
    const lora::StepTable& table = *call.deltas->table;
    if (table.scope().max_terms == 0) return params;  // no label stands for an adapter
    params.deltas.labels = labels_;
    params.deltas.tokens_by_label = tokens_by_label();
    params.deltas.term_begin = table.term_begin();
    params.deltas.terms = table.terms();
    // Kernels keep entries for the terms that the step provides for, within the bound of the
    // scratch, so that small batches can be sorted inside.
    params.deltas.max_terms = std::min(params.deltas.max_terms, table.scope().max_terms);
    params.deltas.layer = call.deltas->layer;
    params.deltas.factor_type = table.format().dtype;
    return params;
  }

 private:
  GroupedWorkspace() = default;

  std::int32_t* tokens_by_label() const {
    return reinterpret_cast<std::int32_t*>(tokens_by_label_.data());
  }

  GroupedExperts params_;
  int label_count_ = 0;
  tensor::Buffer scratch_;
  tensor::Buffer tokens_by_label_;
  const std::int32_t* labels_ = nullptr;
};

}  // namespace

Support CudaGrouped::supports(const Problem& problem) const {
  Support support = supports_on_gpu(problem);
  if (!support) return support;
  if (problem.exact) return Support::no("it computes in bf16, not in f32");
  if (!problem.shared_inputs)
    return Support::no("gate and up of an expert take their inputs in two ways");
  if (problem.lora && problem.factors != DType::bf16 && problem.factors != DType::f8_e4m3) {
    return Support::no(
        cat("it reads adapters in bf16 or FP8, not in ", motley::name(problem.factors)));
  }
  if (weights_ == Weights::native) {
    for (const quant::Format* each : {&problem.gate_up, &problem.down}) {
      if (!packed_format(*each))
        return Support::no(cat("it has no packed layout for weights in ", to_string(*each)));
    }
    if (!packed_format(problem.gate_up, problem.down))
      return Support::no("its packed weights have one format, and gate_up and down have two");
  } else {
    for (const quant::Format* each : {&problem.gate_up, &problem.down}) {
      if (!quant::is_known(*each))
        return Support::no(cat("it can't decode weights in ", to_string(*each)));
    }
  }
  return cuda::grouped_supports(shape_of(problem), problem.top_k);
}

Result<std::unique_ptr<PreparedExperts>> CudaGrouped::prepare(const ExpertWeights& weights,
                                                              quant::Uploader* uploader) const {
  const Problem problem = problem_of(weights, {});
  const ExpertFormat format = weights_ == Weights::native
                                  ? packed_format(problem.gate_up, problem.down).value()
                                  : ExpertFormat::bf16;
  return GroupedWeights::create(weights, format, *uploader);
}

Result<std::unique_ptr<Workspace>> CudaGrouped::make_workspace(const Problem& problem,
                                                               std::int64_t max_tokens,
                                                               const DeltaLimits& limits,
                                                               tensor::Device& device) const {
  MOTLEY_TRY_VOID(check_limits(limits));
  const std::int64_t limit = cuda::grouped_max_tokens(shape_of(problem), problem.top_k);
  if (max_tokens > limit)
    return Error(
        ErrorCode::invalid_argument,
        cat("steps of ", max_tokens, " tokens, where its kernels take ", limit, " of this model"),
        std::string(name()), "use smaller steps (--max-batch-tokens)");
  return GroupedWorkspace::create(problem, max_tokens, limits, device);
}

namespace {

// Decided alike on all ranks: they have the same pairs and mixes. Which tiles a rank takes follows.
cuda::SharedShrink shared_shrink(const ExpertCall& call, int max_columns) {
  const ops::SharedShrinks& shared = call.context.shared_shrinks;
  if (!shared.experts || call.deltas == nullptr) return {};
  const lora::StepTable& table = *call.deltas->table;
  const auto touches = [&](lora::Projection projection) {
    return table.touches({call.deltas->layer, projection});
  };
  if (!touches(lora::Projection::expert_gate) && !touches(lora::Projection::expert_up)) return {};
  // Of gate and of up each term's ranks, rounded up to 16; the scope rounds them up to 8.
  const lora::LaunchScope& scope = table.scope();
  const int columns =
      std::min(2 * ((scope.max_ranks + 8 * scope.max_terms) / 16 * 16), max_columns);
  const std::int64_t from = shared.from_rows.value_or(cuda::min_shared_shrink_pairs(columns));
  if (columns == 0 || call.ids.elements() < from) return {};
  const dist::Communicator& ranks = *call.context.ranks;
  return {.rank = ranks.rank(), .ranks = ranks.ranks(), .columns = columns};
}

GroupedExperts params_of(const ExpertCall& call) {
  const ExpertWeights& weights = call.experts.weights();
  GroupedExperts params = own<GroupedWorkspace>(call.workspace).params_for(call);
  own<const GroupedWeights>(call.experts).put(params);
  params.tokens = call.x.dim(0);
  params.activation = CudaBackend::activation_of(weights);
  params.swiglu_limit = weights.swiglu_limit;
  params.swiglu_alpha = weights.swiglu_alpha;
  params.x = call.x.bytes();
  params.ids = call.ids.data<std::int32_t>();
  params.routing_weights = call.routing_weights.data<float>();
  params.out = call.out.data<float>();
  params.out_type = DType::f32;
  params.next = call.next;
  params.shared_shrink = shared_shrink(call, params.deltas.max_gate_up_rank);
  return params;
}

GroupedTiles tiles_of(const ExpertKernel& kernel) {
  return cuda::all_grouped_tiles[static_cast<std::size_t>(kernel.number)];
}

Support takes(const ExpertCall& call, const ExpertKernel& kernel) {
  return cuda::grouped_supports(tiles_of(kernel), params_of(call));
}

bool sums_next(const ExpertCall& call, const ExpertKernel& kernel) {
  return cuda::grouped_sums_into(*call.next, tiles_of(kernel));
}

void run(const ExpertCall& call, const ExpertKernel& kernel) {
  MOTLEY_CHECK(call.x.dtype() == DType::bf16, "x in bf16");
  GroupedExperts params = params_of(call);
  own<GroupedWorkspace>(call.workspace).advance();
  const auto gather = [&](void* parts, std::int64_t bytes) {
    ops::gather_parts_over_ranks(call.context, static_cast<std::byte*>(parts), bytes);
  };
  const FunctionRef<void(void*, std::int64_t)> gather_parts = gather;
  params.shared_shrink.gather = &gather_parts;
  CudaBackend::with_cut_rows(call, [&](const cuda::CutRows& cut) {
    params.cut = cut;
    cuda::run_grouped_experts(params, tiles_of(kernel), call.context.stream);
  });
}

// Over token rows in bf16 or over rows of codes (grouped_kernel_of()), as a layer's layout has it:
// all kernels that support a call have the same bits.
constexpr kernels::Arithmetic arithmetic_of_layout{"grouped: that of the layer's packed layout"};

constexpr auto all_kernels = [] {
  std::array<ExpertKernel, cuda::all_grouped_tiles.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const GroupedTiles& tiles = cuda::all_grouped_tiles[i];
    all[i] = {.info = {.name = "cuda_grouped",
                       .architecture = kernels::Architecture::sm_90a,
                       .layout = kernels::WeightLayout::packed,
                       .arithmetic = arithmetic_of_layout,
                       .tile = {.outputs = cuda::count_rows(tiles.rows), .rows = tiles.width}},
              .run = run,
              .supports = takes,
              .sums_into = sums_next,
              .number = static_cast<int>(i)};
  }
  return all;
}();

}  // namespace

std::span<const ExpertKernel> CudaGrouped::kernels() const { return all_kernels; }

const ExpertKernel& CudaGrouped::choose(const ExpertCall& call) const {
  const GroupedTiles tiles = cuda::choose_grouped_tiles(
      params_of(call), cuda::device_of(call.context.stream).thresholds().experts());
  const auto* const at = std::ranges::find(cuda::all_grouped_tiles, tiles);
  MOTLEY_CHECK(at != cuda::all_grouped_tiles.end(), "tiles that there is a kernel for");
  return all_kernels[static_cast<std::size_t>(at - cuda::all_grouped_tiles.begin())];
}

}  // namespace motley::moe
