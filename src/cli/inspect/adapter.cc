#include "cli/inspect/adapter.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "base/system/files.h"
#include "base/units.h"
#include "cli/inspect/model.h"
#include "lora/files/config/config.h"
#include "lora/files/conventions/tensor_names.h"
#include "lora/files/load.h"
#include "lora/pages/pool.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_config = 64'000'000;

std::string_view name(lora::Config::Bias bias) {
  switch (bias) {
    case lora::Config::Bias::none:
      return "none";
    case lora::Config::Bias::all:
      return "all";
    case lora::Config::Bias::lora_only:
      return "lora_only";
  }
  return "";
}

void add_list(std::string key, const std::vector<std::string>& names, Findings& findings) {
  if (names.empty()) return;
  json::Array array;
  for (const std::string& each : names) array.emplace_back(each);
  findings.add(std::move(key), std::move(array), printable(join(names)));
}

void add_config(const lora::Config& config, Findings& findings) {
  findings.add("rank", config.rank);
  findings.add("alpha", config.alpha, cat(config.alpha));
  findings.add("scaling", config.rslora ? "alpha / sqrt(rank)" : "alpha / rank");
  findings.add("dora", config.dora, config.dora ? "yes" : "no");
  findings.add("bias", name(config.bias));
  if (config.lora_bias) findings.add("lora_bias", true, "yes");
  if (!config.rank_pattern.empty())
    findings.add("rank_patterns", static_cast<std::int64_t>(config.rank_pattern.size()));
  if (!config.alpha_pattern.empty())
    findings.add("alpha_patterns", static_cast<std::int64_t>(config.alpha_pattern.size()));
  add_list("target_parameters", config.target_parameters, findings);
  add_list("modules_to_save", config.modules_to_save, findings);
  if (!config.peft_version.empty()) findings.add("peft_version", config.peft_version);
}

// The convention of expert factors by names alone; the base decides about ambiguous names.
Result<lora::Convention> convention_of(const tensor::Checkpoint& checkpoint) {
  using lora::Convention;
  auto convention = Convention::none;
  for (const auto& item : checkpoint.items()) {
    MOTLEY_TRY(const lora::TensorName tensor, lora::parse_tensor_name(item.name()));
    switch (tensor.module.form) {
      case lora::Form::plain:
      case lora::Form::some_rows:
        break;
      case lora::Form::expert:
        if (convention == Convention::none) convention = Convention::per_expert;
        break;
      case lora::Form::linear:
        convention = Convention::linears;
        break;
      case lora::Form::outer:
      case lora::Form::outer_gate_up:
        convention = Convention::shared_outer;
        break;
      case lora::Form::packed:
      case lora::Form::packed_inner:
        convention = Convention::packed;
        break;
    }
  }
  return convention;
}

void add_sites(const lora::Adapter& adapter, Findings& findings) {
  struct Adapted {
    std::set<lora::Projection> projections;
    std::set<std::int32_t> layers;
  };
  std::vector<std::string_view> order;
  std::map<std::string_view, Adapted> parts;
  for (const lora::SiteDelta& delta : adapter.sites) {
    const std::string_view part = lora::info(delta.site.projection).part;
    if (!parts.contains(part)) order.push_back(part);
    Adapted& adapted = parts[part];
    adapted.projections.insert(delta.site.projection);
    if (delta.site.layer >= 0) adapted.layers.insert(delta.site.layer);
  }
  json::Array sites;
  std::vector<std::string> texts;
  for (const std::string_view part : order) {
    const Adapted& adapted = parts[part];
    json::Array projections;
    std::string text(part);
    for (const lora::Projection projection : adapted.projections) {
      projections.emplace_back(lora::name(projection));
      const std::string_view own = lora::info(projection).map;
      if (!own.empty()) text += cat(" ", own);
    }
    if (!adapted.layers.empty())
      text += cat(" in ", adapted.layers.size(), adapted.layers.size() == 1 ? " layer" : " layers");
    json::Array layers;
    for (const std::int32_t layer : adapted.layers) layers.emplace_back(std::int64_t{layer});
    json::Object site;
    site.add("part", part);
    site.add("projections", std::move(projections));
    site.add("layers", std::move(layers));
    sites.emplace_back(std::move(site));
    texts.push_back(std::move(text));
  }
  findings.add("adapts", std::move(sites), texts.empty() ? "nothing" : join(texts, "; "));
}

void add_replaced(const lora::Adapter& adapter, Findings& findings) {
  std::vector<std::string> names;
  for (const lora::SiteDelta& delta : adapter.sites) {
    if (delta.replaced >= 0) names.push_back(cat(lora::to_string(delta.site), ".weight"));
    if (delta.replaced_bias >= 0) names.push_back(cat(lora::to_string(delta.site), ".bias"));
  }
  add_list("replaces", names, findings);
}

void add_ranks(const lora::Adapter& adapter, Findings& findings) {
  int smallest = lora::max_rank;
  int largest = 0;
  for (const lora::SiteDelta& delta : adapter.sites) {
    for (const lora::Factors& factors : delta.factors) {
      if (!factors.present()) continue;
      smallest = std::min(smallest, factors.rank);
      largest = std::max(largest, factors.rank);
    }
  }
  if (largest == 0) {
    findings.add("ranks", json::Value(nullptr), "no factors");
    return;
  }
  json::Object ranks;
  ranks.add("smallest", smallest);
  ranks.add("largest", largest);
  findings.add("ranks", std::move(ranks),
               smallest == largest ? cat(largest) : cat(smallest, " to ", largest));
}

void add_adapter(const lora::Adapter& adapter, Findings& findings) {
  findings.add("convention", lora::name(adapter.convention));
  if (adapter.convention == lora::Convention::packed) {
    findings.add("orientation", adapter.swapped ? "swapped" : "standard");
    findings.add("b_columns", adapter.expert_major ? "expert-major" : "rank-major");
  }
  add_ranks(adapter, findings);
  add_sites(adapter, findings);
  add_replaced(adapter, findings);
  if (const std::string_view reason = lora::exclusive_reason(adapter); !reason.empty())
    findings.add("alone_because", reason);
  findings.add("content_version", lora::to_string(adapter.version));
  const lora::Pool::Options options{.dtype = DType::bf16};
  const std::uint64_t pages = lora::Pool::pages_of(adapter, options);
  findings.add("pages", static_cast<std::int64_t>(pages));
  findings.add_bytes("device_bytes", static_cast<std::int64_t>(pages * options.page_bytes));
}

}  // namespace

Result<Findings> inspect_adapter(const fs::path& folder, const tensor::Checkpoint& checkpoint,
                                 const std::optional<InspectedBase>& base) {
  Findings findings;
  const fs::path config_path = folder / "adapter_config.json";
  MOTLEY_TRY(const std::string text, read_text(config_path, longest_config));
  const auto config = lora::parse_adapter_config(text, printable(config_path.string()));
  if (!config.ok()) {
    findings.refusal = config.error().message();
    return findings;
  }
  add_config(*config, findings);
  if (!base) {
    findings.add("base", json::Value(nullptr), "not asked; --model MODEL checks the adapter on it");
    const auto convention = convention_of(checkpoint);
    if (convention.ok()) {
      findings.add("convention", lora::name(*convention));
    } else {
      findings.refusal = convention.error().message();
    }
    return findings;
  }
  findings.add("base", base->folder.string());
  const std::string named = base_of_adapter(folder, {});
  if (!named.empty() && !base->names.is_named(named))
    findings.add("trained_on", named, cat(printable(named), ", which is no name of this base"));
  const auto adapter = lora::load_adapter(folder, {}, base->loaded.model->base_view());
  if (!adapter.ok()) {
    findings.refusal = adapter.error().message();
    return findings;
  }
  add_adapter(*adapter, findings);
  if (!base->trial) return findings;
  if (base->trial->ok())
    (**base->trial)->describe(folder, findings);
  else
    describe_no_trial(base->trial->error(), findings);
  return findings;
}

}  // namespace motley::cli
