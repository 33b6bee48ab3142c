#include "score/merged_weights.h"

#include <map>
#include <string>
#include <vector>

#include "base/cat.h"
#include "base/system/temporary_folder.h"
#include "tensor/convert.h"
#include "tensor/safetensors/checkpoint.h"

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
            delta += double{b.at(o, r)} * double{a.at(r, k)};
          float& element = w[static_cast<std::size_t>(o * site.in + k)];
          element = static_cast<float>(element + scale * double{factors.scale} * delta);
        }
      }
    }
  }
}

}  // namespace

std::unique_ptr<model::Model> load_merged(const fs::path& folder,
                                          const std::vector<ScaledFactors>& adapters,
                                          tensor::Device& device) {
  std::map<std::string, Weights> weights = read_weights(folder);
  for (const ScaledFactors& each : adapters) merge(*each.adapter, each.scale, weights);
  const TemporaryFolder merged;
  fs::copy_file(folder / "config.json", merged / "config.json");
  std::vector<tensor::NamedTensor> tensors;
  for (const auto& [name, each] : weights)
    tensors.push_back(
        {name, tensor::ConstTensor(reinterpret_cast<const std::byte*>(each.numbers.data()),
                                   DType::f32, each.shape)});
  tensor::write_checkpoint(merged.path(), "model", tensors, UINT64_MAX).value();
  // What is mapped stays when its folder goes.
  return model::Model::load(merged.path(), device, {.exact = true}).value();
}

}  // namespace motley::score_tests
