// Loads every adapter of every golden: equal spellings give equal deltas, and the refused ones are
// refused for the reason in the golden.

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/files.h"
#include "lora/files/conventions/tensor_names.h"
#include "lora/files/load.h"
#include "lora/test_base.h"
#include "tensor/convert.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::lora {
namespace {

namespace fs = std::filesystem;

const fs::path goldens = MOTLEY_GOLDENS;

json::Object read_json(const fs::path& path) {
  return *json::parse(read_text(path, 64 << 20).value(), path.string()).value().if_object();
}

std::string text_of(const json::Object& object, std::string_view key) {
  const json::Value* value = object.find(key);
  return value == nullptr || value->if_string() == nullptr ? "" : *value->if_string();
}

std::vector<float> numbers_of(const tensor::ConstTensor& tensor) {
  std::vector<float> numbers(static_cast<std::size_t>(tensor.elements()));
  tensor::widen(tensor.dtype(), tensor.bytes(), 0, numbers);
  return numbers;
}

// A golden's model as adapters see it, from the names and shapes of its checkpoint.
test::FakeBase open_base(const fs::path& model) {
  test::FakeBase base;
  const json::Object config = read_json(model / "config.json");
  const auto checkpoint = tensor::Checkpoint::open(model, "model").value();
  const std::string type = text_of(config, "model_type");
  const bool gpt_oss = type == "gpt_oss";
  // Only as it is released: PEFT's factors are those of [out, in].
  const bool inputs_first = gpt_oss || type == "qwen3_vl_moe";
  base.transposed = gpt_oss;
  base.interleaved = gpt_oss;
  const json::Value* tied = config.find("tie_word_embeddings");
  base.tied = tied != nullptr && *tied->if_boolean();

  std::map<Site, std::pair<SiteSpec, std::vector<float>>> sites;
  const auto add = [&](Site site, std::int64_t in, std::int64_t out, int expert,
                       const std::vector<float>& numbers) {
    auto& [spec, weight] = sites[site];
    spec = {site, in, out, std::max(spec.experts, expert + 1)};
    const auto at = static_cast<std::size_t>(std::max(expert, 0)) * numbers.size();
    weight.resize(std::max(weight.size(), at + numbers.size()));
    std::ranges::copy(numbers, weight.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (const auto& item : checkpoint.items()) {
    const tensor::ConstTensor view = item.tensor();
    const std::size_t fused = item.name().find(".mlp.experts.");
    if (fused != std::string::npos && view.shape().rank() == 3) {
      // DoRA is never on experts, so the shapes are enough.
      const auto layer = static_cast<std::int32_t>(
          std::stol(item.name().substr(item.name().find(".layers.") + 8)));
      const auto in = view.dim(inputs_first ? 1 : 2);
      const auto out = view.dim(inputs_first ? 2 : 1);
      const int last = static_cast<int>(view.dim(0)) - 1;
      if (item.name().ends_with("gate_up_proj")) {
        add({layer, Projection::expert_gate}, in, out / 2, last, {});
        add({layer, Projection::expert_up}, in, out / 2, last, {});
      } else {
        add({layer, Projection::expert_down}, in, out, last, {});
      }
      continue;
    }
    const auto name = parse_tensor_name(item.name());
    if (!name.ok() || name->part != Part::weight) continue;
    const bool expert = name->module.form == Form::expert;
    const bool table = name->module.site.projection == Projection::embed;
    add(name->module.site, view.dim(table ? 0 : 1), view.dim(table ? 1 : 0),
        expert ? name->module.expert : -1, numbers_of(view));
  }
  if (base.tied) {
    auto [spec, weight] = sites.at({-1, Projection::embed});
    std::swap(spec.in, spec.out);
    spec.site.projection = Projection::lm_head;
    sites[spec.site] = {spec, weight};
  }
  for (auto& [site, pair] : sites) {
    base.add(pair.first);
    if (!pair.second.empty()) base.set(site, std::move(pair.second));
  }
  return base;
}

LoadOptions options_of(const json::Object& entry) {
  LoadOptions options;
  const json::Value* load = entry.find("load");
  if (load == nullptr || load->if_object() == nullptr) return options;
  for (const json::Member& member : load->if_object()->members()) {
    const std::string& value = *member.value.if_string();
    if (member.key.starts_with("b")) {
      options.b_columns = parse_b_columns(value).value();
    } else {
      options.orientation = parse_orientation(value).value();
    }
  }
  return options;
}

// scale * B A of each site and expert.
std::map<std::pair<Site, int>, std::vector<double>> products(const Adapter& adapter) {
  std::map<std::pair<Site, int>, std::vector<double>> result;
  for (const SiteDelta& delta : adapter.sites) {
    for (std::size_t e = 0; e < delta.factors.size(); ++e) {
      const Factors& factors = delta.factors[e];
      if (!factors.present()) continue;
      const Matrix& a = adapter.matrices[static_cast<std::size_t>(factors.a)];
      const Matrix& b = adapter.matrices[static_cast<std::size_t>(factors.b)];
      std::vector<double> product(static_cast<std::size_t>(b.rows * a.columns));
      if (delta.site.projection != Projection::embed) {
        for (std::int64_t o = 0; o < b.rows; ++o) {
          for (std::int64_t r = 0; r < a.rows; ++r) {
            for (std::int64_t k = 0; k < a.columns; ++k)
              product[static_cast<std::size_t>(o * a.columns + k)] +=
                  double{factors.scale} * double{b.at(o, r)} * double{a.at(r, k)};
          }
        }
      }
      result[{delta.site, static_cast<int>(e)}] = std::move(product);
    }
  }
  return result;
}

// Quantised weights are read by modules above this one; the score tests load adapters over those
// models.
std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const std::string& name : list_folder(goldens).value()) {
    if (!fs::is_directory(goldens / name)) continue;
    if (!read_json(goldens / name / "golden.json").contains("quantised")) names.push_back(name);
  }
  return names;
}

class LoadGoldens : public testing::TestWithParam<std::string> {
 protected:
  fs::path model_ = goldens / GetParam();
  json::Object golden_ = read_json(model_ / "golden.json");
  test::FakeBase base_ = open_base(model_);
};

TEST_P(LoadGoldens, EveryAdapterOfACaseLoads) {
  for (const json::Value& value : *golden_.find("cases")->if_array()) {
    const json::Object& entry = *value.if_object();
    const std::string adapter = text_of(entry, "adapter");
    if (adapter.empty()) continue;
    const auto loaded = load_adapter(model_ / "adapters" / adapter, options_of(entry), base_);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message();
    EXPECT_FALSE(loaded->sites.empty()) << adapter;
    const json::Value* convention = entry.find("convention");
    const std::string spelled = *convention->if_string();
    EXPECT_EQ(spelled == "peft-swapped" || spelled == "megatron-packed", loaded->swapped)
        << adapter;
  }
}

TEST_P(LoadGoldens, OtherSpellingsHaveTheSameDeltas) {
  std::map<std::string, json::Object> entries;
  for (const json::Value& value : *golden_.find("cases")->if_array())
    entries[text_of(*value.if_object(), "name")] = *value.if_object();
  for (const auto& [name, entry] : entries) {
    const std::string same = text_of(entry, "same_as");
    const std::string adapter = text_of(entry, "adapter");
    if (same.empty() || adapter.empty()) continue;
    const fs::path other_model = goldens / same.substr(0, same.find('/'));
    const json::Object other_golden = read_json(other_model / "golden.json");
    json::Object other;
    for (const json::Value& value : *other_golden.find("cases")->if_array()) {
      if (text_of(*value.if_object(), "name") == same.substr(same.find('/') + 1))
        other = *value.if_object();
    }
    const auto left = load_adapter(model_ / "adapters" / adapter, options_of(entry), base_);
    const auto right = load_adapter(other_model / "adapters" / text_of(other, "adapter"),
                                    options_of(other), open_base(other_model));
    ASSERT_TRUE(left.ok()) << left.error().message();
    ASSERT_TRUE(right.ok()) << right.error().message();
    const auto left_products = products(*left);
    const auto right_products = products(*right);
    ASSERT_EQ(left_products.size(), right_products.size()) << name;
    for (const auto& [site, product] : left_products) {
      const auto found = right_products.find(site);
      ASSERT_NE(found, right_products.end()) << name << " " << to_string(site.first);
      ASSERT_EQ(product.size(), found->second.size());
      double difference = 0;
      for (std::size_t i = 0; i < product.size(); ++i)
        difference = std::max(difference, std::abs(product[i] - found->second[i]));
      // Rewritten with other factors; the maker of the goldens reads them back within this.
      EXPECT_LE(difference, 1e-6) << name << " " << to_string(site.first) << " " << site.second;
    }
  }
}

TEST_P(LoadGoldens, RefusalsSayWhy) {
  std::set<std::string> listed;
  for (const json::Value& value : *golden_.find("refused")->if_array()) {
    const json::Object& entry = *value.if_object();
    const std::string adapter = text_of(entry, "adapter");
    listed.insert(adapter);
    const auto loaded = load_adapter(model_ / "adapters" / adapter, options_of(entry), base_);
    ASSERT_FALSE(loaded.ok()) << adapter;
    const std::string message = loaded.error().message();
    EXPECT_EQ(name(loaded.error().code()), text_of(entry, "code")) << message;
    EXPECT_FALSE(loaded.error().fix().empty()) << "it does not say what to do: " << message;
    // The folder's own name contains many of the words.
    std::string without_path = message;
    const std::size_t at = without_path.find((model_ / "adapters" / adapter).string());
    if (at != std::string::npos)
      without_path.erase(at, (model_ / "adapters" / adapter).string().size());
    for (const json::Value& word : *entry.find("words")->if_array())
      EXPECT_NE(without_path.find(*word.if_string()), std::string::npos)
          << adapter << ": '" << *word.if_string() << "' is not in: " << message;
  }
  for (const std::string& adapter : list_folder(model_ / "adapters").value()) {
    EXPECT_EQ(adapter.starts_with("refused_"), listed.contains(adapter)) << adapter;
  }
}

// Of an adapter whose weights are one file.
std::optional<Result<void>> header_checked(const fs::path& folder, const LoadOptions& options,
                                           const BaseView& base) {
  const auto config = read_adapter_config(folder);
  const auto weights = tensor::Checkpoint::open(folder, "adapter_model");
  if (!config.ok() || !weights.ok() || weights->files().size() != 1) return std::nullopt;
  return check_header(weights->files().front().header(), *config, options, base);
}

// Faults that no number is needed for.
constexpr std::array<std::string_view, 12> faults_of_headers = {
    "refused_a_without_b",      "refused_b_without_a",
    "refused_embedding_rows",   "refused_expert_out_of_range",
    "refused_fused_width",      "refused_head_rows",
    "refused_height",           "refused_layer_out_of_range",
    "refused_rank_of_factors",  "refused_unknown_tensor",
    "refused_shared_outer_dim", "refused_width"};

TEST_P(LoadGoldens, HeadersAreRefusedAsTheirFilesAre) {
  for (const json::Value& value : *golden_.find("cases")->if_array()) {
    const json::Object& entry = *value.if_object();
    const std::string adapter = text_of(entry, "adapter");
    if (adapter.empty()) continue;
    const auto checked = header_checked(model_ / "adapters" / adapter, options_of(entry), base_);
    EXPECT_TRUE(!checked || checked->ok()) << adapter << ": " << checked->error().message();
  }
  for (const json::Value& value : *golden_.find("refused")->if_array()) {
    const json::Object& entry = *value.if_object();
    const std::string adapter = text_of(entry, "adapter");
    const fs::path folder = model_ / "adapters" / adapter;
    const auto checked = header_checked(folder, options_of(entry), base_);
    const bool refused = checked && !checked->ok();
    EXPECT_TRUE(refused || std::ranges::count(faults_of_headers, adapter) == 0) << adapter;
    if (!refused) continue;
    const Error loaded = load_adapter(folder, options_of(entry), base_).error();
    EXPECT_EQ(checked->error().code(), loaded.code()) << adapter;
    EXPECT_EQ(checked->error().what(), loaded.what()) << adapter;
    EXPECT_EQ(checked->error().fix(), loaded.fix()) << adapter;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LoadGoldens, testing::ValuesIn(model_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace motley::lora
