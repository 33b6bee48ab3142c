// An adapter equals the weights it would make if it were merged into the base.

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/temporary_folder.h"
#include "lora/load.h"
#include "score/golden_model.h"
#include "tensor/checkpoint.h"
#include "tensor/convert.h"

namespace motley::score_tests {
namespace {

namespace fs = std::filesystem;

struct Weights {
  tensor::Shape shape;
  std::vector<float> numbers;
};

// All of a model's tensors as float32.
std::map<std::string, Weights> read_weights(const fs::path& folder) {
  const auto checkpoint = tensor::Checkpoint::open(folder, "model").value();
  std::map<std::string, Weights> weights;
  for (const auto& item : checkpoint.items()) {
    Weights& each = weights[item.name()];
    each.shape = item.entry->shape;
    each.numbers.resize(static_cast<std::size_t>(item.entry->shape.elements()));
    tensor::widen(item.entry->dtype, item.tensor().bytes(), 0, each.numbers);
  }
  return weights;
}

// The tensor of a site in qwen3_moe's own names.
std::string tensor_of(lora::Site site, std::size_t expert) {
  using lora::Projection;
  const std::string layer = cat("model.layers.", site.layer, ".");
  const auto routed = [&](std::string_view leaf) {
    return cat(layer, "mlp.experts.", expert, ".", leaf, ".weight");
  };
  switch (site.projection) {
    case Projection::q:
      return layer + "self_attn.q_proj.weight";
    case Projection::k:
      return layer + "self_attn.k_proj.weight";
    case Projection::v:
      return layer + "self_attn.v_proj.weight";
    case Projection::o:
      return layer + "self_attn.o_proj.weight";
    case Projection::router:
      return layer + "mlp.gate.weight";
    case Projection::expert_gate:
      return routed("gate_proj");
    case Projection::expert_up:
      return routed("up_proj");
    case Projection::expert_down:
      return routed("down_proj");
    default:
      MOTLEY_CHECK(false, "a site that these adapters have");
  }
}

void merge(const lora::Adapter& adapter, double scale, std::map<std::string, Weights>& weights) {
  for (const lora::SiteDelta& site : adapter.sites) {
    for (std::size_t expert = 0; expert < site.factors.size(); ++expert) {
      const lora::Factors& factors = site.factors[expert];
      if (!factors.present()) continue;
      std::vector<float>& w = weights.at(tensor_of(site.site, expert)).numbers;
      const lora::Matrix& a = adapter.matrices[static_cast<std::size_t>(factors.a)];
      const lora::Matrix& b = adapter.matrices[static_cast<std::size_t>(factors.b)];
      for (std::int64_t o = 0; o < site.out; ++o) {
        for (std::int64_t k = 0; k < site.in; ++k) {
          double delta = 0;
          for (std::int64_t r = 0; r < factors.rank; ++r)
            delta += double{b.row(o)[r]} * double{a.row(r)[k]};
          float& element = w[static_cast<std::size_t>(o * site.in + k)];
          element = static_cast<float>(element + scale * double{factors.scale} * delta);
        }
      }
    }
  }
}

using Parts = std::vector<runner::ScaledAdapter>;

class Merged : public testing::TestWithParam<Parts> {};

TEST_P(Merged, WeightsSayWhatTheAdaptersSay) {
  GoldenModel golden("qwen3_moe", {});
  std::map<std::string, Weights> weights = read_weights(golden.folder());
  for (const runner::ScaledAdapter& part : GetParam()) {
    const auto adapter = lora::load_adapter(golden.folder() / "adapters" / part.name, {},
                                            golden.model().base_view());
    merge(adapter.value(), part.scale, weights);
  }
  const TemporaryFolder folder;
  fs::copy_file(golden.folder() / "config.json", folder / "config.json");
  std::vector<tensor::NamedTensor> tensors;
  for (const auto& [name, each] : weights)
    tensors.push_back(
        {name, tensor::ConstTensor(reinterpret_cast<const std::byte*>(each.numbers.data()),
                                   DType::f32, each.shape)});
  ASSERT_TRUE(tensor::write_checkpoint(folder.path(), "model", tensors, UINT64_MAX).ok());
  const auto merged = model::Model::load(folder.path(), golden.device(), {.exact = true}).value();
  const auto merged_runner =
      runner::Runner::create(*merged, golden.device(),
                             {.max_rows = 64, .max_sequences = 8, .max_tokens = 64, .pages = 64})
          .value();

  const std::vector<runner::ScoreLine> lines = golden.lines_of(cases_of(golden.golden()).front());
  const auto adapted = golden.score(lines, std::vector(lines.size(), golden.mix(GetParam())));
  const auto plain =
      runner::score(*merged_runner, lines, std::vector<lora::Mix>(lines.size()), {.top = 5})
          .value();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (std::size_t t = 1; t < lines[i].tokens.size(); ++t)
      EXPECT_NEAR(adapted[i].token_logprobs[t], plain[i].token_logprobs[t], 1e-4)
          << "line " << i << ", token " << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Mixes, Merged,
                         testing::Values(Parts{{.name = "attention"}}, Parts{{.name = "experts"}},
                                         Parts{{.name = "all_linear"}},
                                         Parts{{.name = "shared_outer_tinker"}},
                                         Parts{{.name = "experts", .scale = -0.7},
                                               {.name = "attention", .scale = 0.4}}));

}  // namespace
}  // namespace motley::score_tests
