#include "moe/select.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::moe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Scales = quant::Format::Scales;

constexpr quant::Format bf16_format{.element = DType::bf16, .bits = 16};
constexpr quant::Format int4_format{.element = DType::i8,
                                    .bits = 4,
                                    .scales = Scales::group,
                                    .block_rows = 1,
                                    .block_columns = 128};
constexpr quant::Format int3_format{.element = DType::i8,
                                    .bits = 3,
                                    .scales = Scales::group,
                                    .block_rows = 1,
                                    .block_columns = 128};

Problem qwen3() {
  return {.gate_up = bf16_format,
          .down = bf16_format,
          .hidden = 2048,
          .intermediate = 768,
          .experts = 128,
          .top_k = 8,
          .lora = true};
}

Problem with(Problem problem, auto change) {
  change(problem);
  return problem;
}

// A backend that refuses with a reason, or supports everything.
class Scripted final : public Backend {
 public:
  Scripted(std::string name, std::string reason)
      : name_(std::move(name)), reason_(std::move(reason)) {}

  std::string_view name() const override { return name_; }
  tensor::DeviceKind device() const override { return tensor::DeviceKind::cpu; }
  Support supports(const Problem&) const override {
    return reason_.empty() ? Support::yes() : Support::no(reason_);
  }
  lora::Layout factor_layout() const override { return lora::Layout::rows; }
  Result<std::unique_ptr<PreparedExperts>> prepare(const ExpertWeights&,
                                                   quant::Uploader*) const override {
    return std::unique_ptr<PreparedExperts>();
  }
  Result<std::unique_ptr<Workspace>> make_workspace(const Problem&, std::int64_t,
                                                    const DeltaLimits&,
                                                    tensor::Device&) const override {
    return std::unique_ptr<Workspace>();
  }
  std::size_t scratch_bytes(const Problem&, std::int64_t) const override { return 0; }
  std::span<const ExpertKernel> kernels() const override { return {}; }

 private:
  std::string name_;
  std::string reason_;
};

TEST(Select, ListsTheFastestFirst) {
  std::vector<std::string_view> names;
  for (const Backend* backend : backends_of(tensor::DeviceKind::cpu))
    names.push_back(backend->name());
  EXPECT_THAT(names, ElementsAre("cpu_grouped", "reference"));
}

TEST(Select, ChoosesByProblem) {
  struct Row {
    Problem problem;
    // Empty: none supports it.
    std::string chosen;
    // In the error, or of the backends before the chosen one.
    std::vector<std::string> reasons;
  };
  const Row table[] = {
      {qwen3(), "cpu_grouped", {}},
      {with(qwen3(), [](Problem& p) { p.exact = true; }), "cpu_grouped", {}},
      {with(qwen3(), [](Problem& p) { p.gate_up = p.down = int4_format; }), "cpu_grouped", {}},
      {with(qwen3(), [](Problem& p) { p.gate_up = int4_format; }), "cpu_grouped", {}},
      {with(qwen3(),
            [](Problem& p) {
              p.activation = ActivationKind::clamped_swiglu;
              p.expert_biases = true;
              p.hidden = p.intermediate = 2880;
            }),
       "cpu_grouped",
       {}},
      {with(qwen3(), [](Problem& p) { p.down = int3_format; }),
       "",
       {"cpu_grouped: it has no loops for weights in",
        "reference: it has no loops for weights in"}},
      {with(qwen3(), [](Problem& p) { p.device = tensor::DeviceKind::cuda; }),
       "",
       {"cpu_grouped: it runs on the CPU only", "reference: it runs on the CPU only"}},
      {with(qwen3(), [](Problem& p) { p.activation = static_cast<ActivationKind>(77); }),
       "",
       {"cpu_grouped: it does not know the activation", "reference: "}},
  };
  for (const Row& row : table) {
    SCOPED_TRACE(to_string(row.problem));
    const auto chosen = select(row.problem, backends_of(tensor::DeviceKind::cpu));
    ASSERT_EQ(chosen.ok(), !row.chosen.empty());
    if (chosen.ok()) {
      EXPECT_EQ(chosen.value()->name(), row.chosen);
      continue;
    }
    EXPECT_EQ(chosen.error().code(), ErrorCode::unsupported);
    for (const std::string& reason : row.reasons)
      EXPECT_THAT(chosen.error().message(), HasSubstr(reason));
    EXPECT_THAT(chosen.error().message(), HasSubstr(to_string(row.problem)));
  }
}

TEST(Select, TakesTheFirstThatCan) {
  const Scripted a("a", "no int4");
  const Scripted b("b", "");
  const Scripted c("c", "");
  const Backend* const backends[] = {&a, &b, &c};
  EXPECT_EQ(select(qwen3(), backends).value(), &b);
}

TEST(Select, ListsEveryReasonWhereNoneCan) {
  const Scripted a("a", "no int4");
  const Scripted b("b", "no biases");
  const Backend* const backends[] = {&a, &b};
  const auto chosen = select(qwen3(), backends);
  ASSERT_FALSE(chosen.ok());
  EXPECT_THAT(chosen.error().message(), HasSubstr("a: no int4; b: no biases"));
  EXPECT_EQ(chosen.error().code(), ErrorCode::unsupported);
}

TEST(Select, ForcedTakesASlowerOne) {
  EXPECT_EQ(select(qwen3(), backends_of(tensor::DeviceKind::cpu), "reference").value()->name(),
            "reference");
}

TEST(Select, AForcedBackendRefusesWithItsReasonAndNoOtherIsAsked) {
  const Scripted a("a", "");
  const Scripted b("b", "no biases");
  const Backend* const backends[] = {&a, &b};
  const auto chosen = select(qwen3(), backends, "b");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.error().code(), ErrorCode::invalid_argument);
  EXPECT_THAT(chosen.error().message(), HasSubstr("b: no biases"));
  EXPECT_THAT(chosen.error().message(), HasSubstr("--experts-backend"));
}

TEST(Select, TheReferenceLeavesFormatsThatRoundInputsToOthers) {
  const Problem problem = with(qwen3(), [](Problem& p) {
    p.gate_up = {.element = DType::i8,
                 .bits = 8,
                 .scales = Scales::channel,
                 .inputs = kernels::InputRounding::Scales::row};
  });
  const auto backends = backends_of(tensor::DeviceKind::cpu);
  EXPECT_TRUE(select(problem, backends).ok());
  const auto forced = select(problem, backends, "reference");
  ASSERT_FALSE(forced.ok());
  EXPECT_THAT(forced.error().message(), HasSubstr("--activations exact"));
}

TEST(Select, ForcedUnknownNameListsTheNames) {
  const auto chosen = select(qwen3(), backends_of(tensor::DeviceKind::cpu), "triton");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.error().code(), ErrorCode::invalid_argument);
  EXPECT_THAT(chosen.error().message(), HasSubstr("'triton'"));
  EXPECT_THAT(chosen.error().message(), HasSubstr("cpu_grouped, reference"));
}

TEST(Problem, SaysWhatItIs) {
  EXPECT_THAT(to_string(qwen3()),
              HasSubstr("128 experts, top 8, hidden 2048, intermediate 768, gate_up "));
  EXPECT_THAT(to_string(qwen3()), HasSubstr("silu_mul, with LoRA, bf16 compute, cpu"));
}

}  // namespace
}  // namespace motley::moe
