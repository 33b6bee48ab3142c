#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/experts/grouped.h"
#include "moe/select.h"
#include "quant/formats.h"

// Which problems the backends of a GPU support. Needs no GPU.
namespace motley::moe {
namespace {

using testing::HasSubstr;
using Scales = quant::Format::Scales;

constexpr quant::Format bf16_format{.element = DType::bf16, .bits = 16};
constexpr quant::Format f32_format{.element = DType::f32, .bits = 32};
constexpr quant::Format int4_format{.element = DType::i8,
                                    .bits = 4,
                                    .scales = Scales::group,
                                    .block_rows = 1,
                                    .block_columns = 128,
                                    .scale_type = DType::bf16};
// Columns in an order of their own.
constexpr quant::Format ordered_format = [] {
  quant::Format format = int4_format;
  format.input_order = true;
  return format;
}();
constexpr quant::Format fp8_format{.element = DType::f8_e4m3,
                                   .bits = 8,
                                   .scales = Scales::block,
                                   .block_rows = 128,
                                   .block_columns = 128};

Problem qwen3(auto change) {
  Problem problem{.gate_up = bf16_format,
                  .down = bf16_format,
                  .hidden = 2048,
                  .intermediate = 768,
                  .experts = 128,
                  .top_k = 8,
                  .lora = true,
                  .factors = DType::bf16,
                  .device = tensor::DeviceKind::cuda};
  change(problem);
  return problem;
}

TEST(SelectOnGpu, ChoosesByProblem) {
  struct Row {
    Problem problem;
    std::string chosen;                // empty: none supports it
    std::vector<std::string> reasons;  // of the backends before it, or of all
  };
  const std::string f32 = "it computes in bf16, not in f32";
  const Row table[] = {
      {qwen3([](Problem&) {}), "cuda_grouped", {}},
      {qwen3([](Problem& p) { p.gate_up = p.down = int4_format; }), "cuda_grouped", {}},
      {qwen3([](Problem& p) { p.factors = DType::f8_e4m3; }), "cuda_grouped", {}},
      {qwen3([](Problem& p) {
         p.activation = ActivationKind::clamped_swiglu;
         p.expert_biases = true;
         p.hidden = p.intermediate = 2880;
       }),
       "cuda_grouped",
       {}},
      {qwen3([](Problem& p) { p.gate_up = p.down = fp8_format; }), "cuda_grouped", {}},
      {qwen3([](Problem& p) { p.gate_up = p.down = ordered_format; }), "cuda_grouped", {}},
      {qwen3([](Problem& p) {
         p.gate_up = p.down = ordered_format;
         p.shared_inputs = false;
       }),
       "cuda_exact",
       {"gate and up of an expert take their inputs in two ways",
        "gate and up of an expert take their inputs in two ways"}},
      {qwen3([](Problem& p) { p.gate_up = f32_format; }),
       "cuda_grouped_decoded",
       {"it has no packed layout for weights in f32"}},
      {qwen3([](Problem& p) { p.down = int4_format; }),
       "cuda_grouped_decoded",
       {"its packed weights have one format"}},
      {qwen3([](Problem& p) {
         p.exact = true;
         p.factors = DType::f32;
       }),
       "cuda_exact",
       {f32, f32}},
      {qwen3([](Problem& p) { p.factors = DType::f32; }),
       "cuda_exact",
       {"it reads adapters in bf16 or FP8, not in F32", "it reads adapters in bf16 or FP8"}},
      {qwen3([](Problem& p) { p.hidden = 2052; }),
       "cuda_exact",
       {"needs a hidden size that 8 divides, not 2052", "needs a hidden size"}},
      {qwen3([](Problem& p) { p.experts = 513; }),
       "",
       {"at most 512 experts", "at most 512 experts", "at most 512 experts"}},
      {qwen3([](Problem& p) { p.device = tensor::DeviceKind::cpu; }),
       "",
       {"it runs on a GPU only", "it runs on a GPU only", "it runs on a GPU only"}},
  };
  for (const Row& row : table) {
    SCOPED_TRACE(to_string(row.problem));
    const auto backends = backends_of(tensor::DeviceKind::cuda);
    const auto chosen = select(row.problem, backends);
    ASSERT_EQ(chosen.ok(), !row.chosen.empty());
    if (chosen.ok()) {
      EXPECT_EQ((*chosen)->name(), row.chosen);
    }
    for (std::size_t i = 0; i < row.reasons.size(); ++i)
      EXPECT_THAT(backends[i]->supports(row.problem).reason(), HasSubstr(row.reasons[i]));
    if (chosen.ok()) {
      EXPECT_EQ(passed_over(row.problem, **chosen).size(), row.reasons.size());
    }
  }
}

TEST(SelectOnGpu, ForcedTakesASlowerOne) {
  const Problem problem = qwen3([](Problem&) {});
  const auto backends = backends_of(tensor::DeviceKind::cuda);
  EXPECT_EQ(select(problem, backends, "cuda_exact").value()->name(), "cuda_exact");
  EXPECT_TRUE(passed_over(problem, *backends[2]).empty());
}

// Only what has no codes is decoded at load.
TEST(SelectOnGpu, CodesOfFilesStayCodes) {
  for (const quant::KnownFormat& known : quant::known_formats()) {
    if (known.files.empty()) continue;
    SCOPED_TRACE(to_string(known.format));
    const bool has_codes = known.format.scales != Scales::none;
    const bool is_bf16 = known.format.element == DType::bf16;
    const Problem problem = qwen3([&](Problem& p) { p.gate_up = p.down = known.format; });
    const auto chosen = select(problem, backends_of(tensor::DeviceKind::cuda));
    ASSERT_TRUE(chosen.ok());
    EXPECT_EQ((*chosen)->name(), has_codes || is_bf16 ? "cuda_grouped" : "cuda_grouped_decoded");
  }
}

// Ranks that cut groups of down have smaller ones than of gate and up, which are whole.
TEST(SelectOnGpu, GroupsOfTwoSizesHaveOneLayout) {
  const quant::Format format{.element = DType::i8,
                             .bits = 4,
                             .scales = Scales::group,
                             .block_columns = 128,
                             .scale_type = DType::bf16};
  for (const std::int64_t columns : {64, 32}) {
    for (const bool ordered : {false, true}) {
      const Problem problem = qwen3([&](Problem& p) {
        p.gate_up = p.down = format;
        p.down.block_columns = columns;
        p.down.input_order = ordered;
      });
      EXPECT_EQ(select(problem, backends_of(tensor::DeviceKind::cuda)).value()->name(),
                "cuda_grouped");
    }
  }
}

// Groups of 32 and 64 and zero points have packed layouts, groups of other sizes have none.
TEST(SelectOnGpu, GroupsOfCodesOf8Bits) {
  struct Row {
    quant::Format format;
    std::string_view chosen;
  };
  const auto codes = [](DType element, std::int64_t columns, DType scale_type,
                        bool zero_points = false) {
    return quant::Format{.element = element,
                         .bits = 8,
                         .scales = columns == 0 ? Scales::channel : Scales::group,
                         .block_columns = columns,
                         .scale_type = scale_type,
                         .zero_points = zero_points};
  };
  const Row rows[] = {
      {codes(DType::i8, 32, DType::bf16), "cuda_grouped"},
      {codes(DType::i8, 64, DType::f32), "cuda_grouped"},
      {codes(DType::i8, 32, DType::f16, true), "cuda_grouped"},
      {codes(DType::i8, 128, DType::f16, true), "cuda_grouped"},
      {codes(DType::i8, 0, DType::bf16, true), "cuda_grouped"},
      {codes(DType::f8_e4m3, 32, DType::f8_e8m0), "cuda_grouped"},
      {codes(DType::f8_e4m3, 64, DType::f32), "cuda_grouped"},
      {codes(DType::i8, 16, DType::bf16), "cuda_grouped_decoded"},
      {codes(DType::f8_e4m3, 48, DType::f32), "cuda_grouped_decoded"},
  };
  for (const Row& row : rows) {
    for (const bool ordered : {false, true}) {
      quant::Format format = row.format;
      if (ordered && (format.element != DType::i8 || format.scales != Scales::group)) continue;
      format.input_order = ordered;
      SCOPED_TRACE(to_string(format));
      const Problem problem = qwen3([&](Problem& p) { p.gate_up = p.down = format; });
      const auto chosen = select(problem, backends_of(tensor::DeviceKind::cuda));
      ASSERT_TRUE(chosen.ok());
      EXPECT_EQ((*chosen)->name(), row.chosen);
    }
  }
}

// One pool serves all layers of a model, whichever backend each has.
TEST(SelectOnGpu, BackendsOfOneComputeTypeWantOneLayoutOfFactors) {
  const auto backends = backends_of(tensor::DeviceKind::cuda);
  EXPECT_EQ(backends[0]->factor_layout(), lora::Layout::packed);
  EXPECT_EQ(backends[1]->factor_layout(), lora::Layout::packed);
  EXPECT_EQ(backends[2]->factor_layout(), lora::Layout::rows);
}

// The two backends in bf16 have the same kernels: which arithmetic one has depends on the layout of
// the layer's weights. ExpertSelection in kernels/ looks at the arithmetic of each layout.
TEST(SelectOnGpu, GroupedKernelsClaimNoArithmeticOfOneLayout) {
  for (const Backend* const backend : backends_of(tensor::DeviceKind::cuda).first(2)) {
    ASSERT_EQ(backend->kernels().size(), kernels::cuda::all_grouped_tiles.size());
    for (const ExpertKernel& kernel : backend->kernels()) {
      EXPECT_NE(kernel.info.arithmetic, kernels::cuda::grouped_arithmetic);
      EXPECT_NE(kernel.info.arithmetic, kernels::cuda::coded_arithmetic);
      EXPECT_EQ(kernel.info.arithmetic, backend->kernels().front().info.arithmetic);
    }
  }
}

}  // namespace
}  // namespace motley::moe
