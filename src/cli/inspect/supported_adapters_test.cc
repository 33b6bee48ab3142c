// Tests every cell of the table of adapter kinds: loads an adapter of that kind for each kind of
// module of the column, over a base that has all of them.

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/files.h"
#include "base/system/temporary_folder.h"
#include "cli/inspect/model.h"
#include "cli/inspect/supported.h"
#include "lora/files/load.h"
#include "tensor/safetensors/safetensors.h"

namespace motley::cli {
namespace {

using lora::Projection;
using lora::SiteSpec;

// The table's rows by their first cell.
std::map<std::string, std::vector<std::string>, std::less<>> rows_of(const std::string& tables) {
  std::map<std::string, std::vector<std::string>, std::less<>> rows;
  const std::string text = tables.substr(tables.find("### Adapters"));
  for (std::size_t at = text.find("\n| ") + 1; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with("| ") || line.starts_with("| kind")) continue;
    std::vector<std::string> cells;
    for (std::size_t from = 2; from < line.size();) {
      const std::size_t bar = line.find(" |", from);
      cells.push_back(line.substr(from, bar - from));
      from = bar + 3;
    }
    rows[cells.front()] = {cells.begin() + 1, cells.end()};
  }
  return rows;
}

struct Tensor {
  std::string name;
  std::vector<std::int64_t> dims;
};

// The name of a module of the base, and the sizes of its factors.
struct Place {
  std::string path;
  std::int64_t in = 0;
  std::int64_t out = 0;
  int experts = 0;  // of which this is one; 0: not an expert
  bool embedding = false;
};

class AdapterFolder {
 public:
  void add(const std::string& name, const std::vector<std::int64_t>& dims) {
    tensors_.push_back({"base_model.model." + name, dims});
  }
  std::filesystem::path write(const std::string& members) {
    std::vector<float> numbers;
    std::vector<tensor::Shape> shapes;
    std::vector<tensor::NamedTensor> named;
    std::int64_t most = 1;
    for (const Tensor& each : tensors_) {
      shapes.push_back(tensor::Shape::make(each.dims).value());
      most = std::max(most, shapes.back().elements());
    }
    numbers.assign(static_cast<std::size_t>(most), 0.5F);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      named.push_back(
          {tensors_[i].name, tensor::ConstTensor(reinterpret_cast<const std::byte*>(numbers.data()),
                                                 DType::f32, shapes[i])});
    }
    tensor::write_safetensors(folder_.path() / "adapter_model.safetensors", named).value();
    static_cast<void>(folder_.file("adapter_config.json",
                                   cat(R"({"r": 2, "lora_alpha": 1, "peft_version": "0.21.2")",
                                       members.empty() ? "" : ", ", members, "}")));
    return folder_.path();
  }

 private:
  TemporaryFolder folder_;
  std::vector<Tensor> tensors_;
};

void add_factors(AdapterFolder& folder, const Place& place) {
  const std::string a = place.embedding ? ".lora_embedding_A" : ".lora_A.weight";
  const std::string b = place.embedding ? ".lora_embedding_B" : ".lora_B.weight";
  folder.add(place.path + a, {2, place.in});
  folder.add(place.path + b, {place.out, 2});
}

// How an adapter of a kind is written: its configuration, and the tensors of a module.
struct Kind {
  std::vector<std::string> members;  // an adapter for each
  std::function<void(AdapterFolder&, const Place&)> add = add_factors;
};

Kind with_tensor(const std::string& members, const std::string& leaf,
                 const std::function<std::vector<std::int64_t>(const Place&)>& dims) {
  return {{members}, [leaf, dims](AdapterFolder& folder, const Place& place) {
            add_factors(folder, place);
            folder.add(place.path + leaf, dims(place));
          }};
}

std::vector<std::int64_t> outputs(const Place& place) { return {place.out}; }

std::map<std::string, Kind, std::less<>> kinds() {
  const auto started = [](const std::string& method) {
    return Kind{{cat(R"("init_lora_weights": ")", method, "\"")}};
  };
  std::map<std::string, Kind, std::less<>> kinds;
  kinds["LoRA, rsLoRA, ranks and alphas by pattern"] = {
      {"", R"("use_rslora": true)", R"("rank_pattern": {".*": 2}, "alpha_pattern": {"x": 3})"}};
  kinds["started by EVA, MiCA, orthogonal or Gaussian"] = {
      {R"("init_lora_weights": "eva")", R"("init_lora_weights": "mica")",
       R"("init_lora_weights": "orthogonal")", R"("init_lora_weights": "gaussian")"}};
  kinds["factors on parameters (target_parameters)"] = {
      {R"("target_parameters": ["none.of.these"])"}, [](AdapterFolder& folder, const Place& place) {
        Place written = place;
        written.embedding = false;
        if (place.embedding) std::swap(written.in, written.out);
        if (place.experts == 0) return add_factors(folder, written);
        const std::size_t at = place.path.find(".experts.");
        if (!place.path.ends_with(".experts.0.down_proj")) return;
        folder.add(place.path.substr(0, at + 8) + ".lora_A.weight", {2 * place.experts, place.in});
        folder.add(place.path.substr(0, at + 8) + ".lora_B.weight", {place.out, 2 * place.experts});
      }};
  kinds["factors that all experts share"] = {
      {""}, [](AdapterFolder& folder, const Place& place) {
        const std::size_t at = place.path.find(".experts.0.");
        if (at == std::string::npos) return;
        const std::string path = place.path.substr(0, at + 9) + place.path.substr(at + 11);
        folder.add(path + ".lora_A.weight", {1, 2, place.in});
        folder.add(path + ".lora_B.weight", {place.experts, place.out, 2});
      }};
  kinds["a tied embedding and head (ensure_weight_tying)"] = {{R"("ensure_weight_tying": true)"}};
  kinds["VeLoRA"] = with_tensor(R"("velora_config": {"num_groups": 4})", ".lora_velora_embed",
                                [](const Place&) { return std::vector<std::int64_t>{4}; });
  kinds["MonteCLoRA"] =
      with_tensor(R"("monteclora_config": {})", ".lora_monteclora_sampler.std_prior",
                  [](const Place&) { return std::vector<std::int64_t>{2}; });
  kinds["a bias behind B (lora_bias)"] =
      with_tensor(R"("lora_bias": true)", ".lora_B.bias", outputs);
  kinds["DoRA"] = with_tensor(R"("use_dora": true)", ".lora_magnitude_vector", outputs);
  kinds["the base's biases (bias=all, lora_only)"] =
      with_tensor(R"("bias": "lora_only")", ".base_layer.bias", outputs);
  kinds["the base's biases (bias=all, lora_only)"].members.emplace_back(R"("bias": "all")");
  kinds["whole weights (modules_to_save)"] = {
      {R"("modules_to_save": ["q_proj", "gate", "gate_proj", "embed_tokens", "lm_head"])"},
      [](AdapterFolder& folder, const Place& place) {
        folder.add(place.path + ".weight", place.embedding
                                               ? std::vector<std::int64_t>{place.in, place.out}
                                               : std::vector<std::int64_t>{place.out, place.in});
      }};
  kinds["rows of tables (trainable_token_indices)"] = {
      {R"("trainable_token_indices": [1])", R"("target_modules": [])"},
      [](AdapterFolder& folder, const Place& place) {
        folder.add(place.path + ".token_adapter.trainable_tokens_delta",
                   {1, place.embedding ? place.out : place.in});
      }};
  kinds["PiSSA, not converted when saved"] = started("pissa");
  kinds["PiSSA, not converted when saved"].members.emplace_back(
      R"("init_lora_weights": "pissa_niter_4")");
  kinds["OLoRA, not converted when saved"] = started("olora");
  kinds["CorDA, not converted when saved"] = started("corda");
  kinds["LoRA-GA, not converted when saved"] = started("lora_ga");
  kinds["LoftQ"] = started("loftq");
  kinds["activated LoRA (alora_invocation_tokens)"] = {{R"("alora_invocation_tokens": [1, 2])"}};
  kinds["QA-LoRA (use_qalora)"] = {{R"("use_qalora": true, "qalora_group_size": 4)"}};
  kinds["BD-LoRA (use_bdlora)"] = {{R"("use_bdlora": {"nblocks": 2})"}};
  kinds["KaSA (kasa_config)"] = {{R"("kasa_config": {"beta": 0.1})"}};
  kinds["Arrow (arrow_config)"] = {{R"("arrow_config": {"top_k": 3})"}};
  kinds["repeated layers (layer_replication)"] = {{R"("layer_replication": [[0, 1], [0, 1]])"}};
  for (const std::string_view type : other_peft_types())
    kinds[cat("peft_type ", type)] = {{cat(R"("peft_type": ")", type, "\"")}};
  return kinds;
}

enum Column { dense, experts, embedding, head, mixed };

Column column_of(Projection projection) {
  switch (projection) {
    case Projection::expert_gate:
    case Projection::expert_up:
    case Projection::expert_down:
      return experts;
    case Projection::embed:
      return embedding;
    case Projection::lm_head:
      return head;
    default:
      return dense;
  }
}

std::vector<Place> places_of(const SiteSpec& spec) {
  const bool table = spec.site.projection == Projection::embed;
  std::string path = spec.site.layer < 0 ? std::string(lora::name(spec.site.projection))
                                         : cat("model.", lora::to_string(spec.site));
  if (table) path = "model." + path;
  if (spec.experts == 0) return {{path, spec.in, spec.out, 0, table}};
  std::vector<Place> places;
  const std::size_t at = path.find("experts.") + 8;
  for (int e = 0; e < spec.experts; ++e)
    places.push_back(
        {cat(path.substr(0, at), e, ".", path.substr(at)), spec.in, spec.out, spec.experts, false});
  return places;
}

class SupportedAdapters : public testing::Test {
 protected:
  // GLM-4.5 has attention with biases, a dense layer, shared experts and a router.
  static void SetUpTestSuite() {
    plain_base = load_to_inspect(cat(MOTLEY_GOLDENS, "/glm4_moe")).value();
    tied_base = load_to_inspect(cat(MOTLEY_GOLDENS, "/qwen3")).value();
  }
  static void TearDownTestSuite() {
    plain_base.reset();
    tied_base.reset();
  }

  // The same kind of module in all layers.
  static Result<lora::Adapter> load(const Kind& kind, const std::string& members,
                                    const std::vector<Projection>& projections,
                                    const lora::BaseView& base) {
    AdapterFolder folder;
    for (const SiteSpec& spec : base.sites()) {
      if (std::ranges::find(projections, spec.site.projection) == projections.end()) continue;
      for (const Place& place : places_of(spec)) kind.add(folder, place);
    }
    return lora::load_adapter(folder.write(members), {}, base);
  }

  static std::vector<std::vector<Projection>> groups(bool tied) {
    if (tied) return {{Projection::embed, Projection::lm_head}};
    std::vector<std::vector<Projection>> groups;
    std::set<Projection> seen;
    for (const SiteSpec& spec : plain_base->model->base_view().sites()) {
      if (seen.insert(spec.site.projection).second) groups.push_back({spec.site.projection});
    }
    return groups;
  }

  static inline std::optional<LoadedModel> plain_base;
  static inline std::optional<LoadedModel> tied_base;
};

TEST_F(SupportedAdapters, EveryCellIsTrue) {
  const auto rows = rows_of(supported_tables());
  const auto all = kinds();
  ASSERT_EQ(rows.size(), all.size());
  for (const auto& [name, cells] : rows) {
    const auto kind = all.find(name);
    ASSERT_NE(kind, all.end()) << name;
    ASSERT_EQ(cells.size(), 5U) << name;
    const bool tied = name.starts_with("a tied embedding");
    const lora::BaseView& base = (tied ? tied_base : plain_base)->model->base_view();
    // Other types are refused for any module: one module of each column suffices.
    const bool other_type = name.starts_with("peft_type");
    std::set<Column> asked;
    bool alone = false;
    bool taken = false;
    for (const auto& projections : groups(tied)) {
      const std::string& cell = cells[column_of(projections.front())];
      // conventions_test tests the only other fused parameter, gate_up_proj.
      const bool fused = projections.front() == Projection::expert_gate ||
                         projections.front() == Projection::expert_up;
      const bool again = !asked.insert(column_of(projections.front())).second;
      if (cell.empty() || (other_type && again) ||
          (fused && name.starts_with("factors on parameters")))
        continue;
      for (const std::string& members : kind->second.members) {
        const auto loaded = load(kind->second, members, projections, base);
        const std::string where = cat(name, ", ", members, ", ", lora::name(projections.front()),
                                      ": ", loaded.ok() ? "taken" : loaded.error().message());
        EXPECT_EQ(cell, loaded.ok() ? "yes" : "no") << where;
        if (!loaded.ok()) {
          EXPECT_FALSE(loaded.error().fix().empty()) << where;
          continue;
        }
        EXPECT_FALSE(loaded->sites.empty()) << where;
        taken = true;
        alone = alone || !lora::exclusive_reason(*loaded).empty();
      }
    }
    EXPECT_EQ(cells[mixed], taken && !alone ? "yes" : "no") << name;
  }
}

}  // namespace
}  // namespace motley::cli
