#include "cli/inspect/model.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/system/cpu.h"
#include "base/units.h"
#include "cli/inspect/fits.h"
#include "dist/thread_ranks.h"
#include "model/dense_groups.h"
#include "moe/select.h"
#include "quant/config.h"
#include "runner/kv_memory.h"
#include "runner/state_memory.h"
#include "serving/forms/chat_format.h"
#include "serving/load_model.h"
#include "text/model_text.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;

void add_experts(const model::Config& config, Findings& findings) {
  const auto moe_layers = std::ranges::count(config.moe_layers, true);
  if (moe_layers == 0) {
    findings.add("experts", json::Value(nullptr), "none");
    return;
  }
  const model::MoeConfig& moe = config.moe;
  json::Object experts;
  experts.add("count", std::int64_t{moe.router.experts});
  experts.add("top_k", std::int64_t{moe.router.top_k});
  experts.add("intermediate", moe.intermediate);
  experts.add("layers", std::int64_t{moe_layers});
  findings.add("experts", std::move(experts),
               cat(moe.router.experts, " x top ", moe.router.top_k, ", intermediate ",
                   moe.intermediate, ", in ", moe_layers, " of ", config.layers, " layers"));
  if (moe.shared_intermediate == 0) {
    findings.add("shared_experts", json::Value(nullptr), "none");
    return;
  }
  json::Object shared;
  shared.add("intermediate", moe.shared_intermediate);
  shared.add("gate", moe.shared_gate);
  findings.add(
      "shared_experts", std::move(shared),
      cat("intermediate ", moe.shared_intermediate, moe.shared_gate ? ", behind a gate" : ""));
}

// How a mixer is described.
struct AttentionFinding {
  json::Object json;
  std::string text;
  std::int64_t windowed = 0;

  void operator()(const model::LatentConfig& attention) {
    json.add("kind", "latent");
    json.add("heads", attention.heads);
    json.add("q_rank", attention.q_rank);
    json.add("kv_rank", attention.kv_rank);
    json.add("rope_dim", attention.rope_dim);
    text = cat("latent, ", attention.heads, " heads, ",
               attention.q_rank == 0 ? "" : cat("query rank ", attention.q_rank, ", "),
               "key and value rank ", attention.kv_rank, " + ", attention.rope_dim, " rotated");
  }
  void operator()(const model::DeltaNetConfig& net) {
    json.add("kind", "gated_delta_net");
    json.add("key_heads", net.key_heads);
    json.add("value_heads", net.value_heads);
    json.add("key_width", net.key_width);
    json.add("value_width", net.value_width);
    json.add("taps", net.taps);
    text = cat("gated delta net, ", net.value_heads, " value heads on ", net.key_heads, ", state ",
               net.key_width, " x ", net.value_width, ", convolution of ", net.taps);
  }
  void operator()(const model::GroupedConfig& attention) {
    json.add("kind", "grouped");
    json.add("heads", attention.heads);
    json.add("kv_heads", attention.kv_heads);
    json.add("head_dim", attention.head_dim);
    json.add("windowed_layers", windowed);
    json.add("sinks", attention.sinks);
    text = cat(
        "grouped-query, ", attention.heads, " heads on ", attention.kv_heads, ", head dimension ",
        attention.head_dim,
        windowed == 0 ? "" : cat(", windows in ", windowed, windowed == 1 ? " layer" : " layers"),
        attention.sinks ? ", with sinks" : "");
  }
};

// Layers whose attention differs in its window alone are one finding.
model::MixerConfig without_window(model::MixerConfig mixer) {
  if (auto* const grouped = std::get_if<model::GroupedConfig>(&mixer)) grouped->window = 0;
  return mixer;
}

void add_attention(const model::Config& config, Findings& findings) {
  std::vector<model::MixerConfig> found;
  std::vector<std::int64_t> windowed;
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    const model::MixerConfig& mixer = config.mixer(layer);
    const model::MixerConfig kind = without_window(mixer);
    const auto known = std::ranges::find(found, kind);
    const auto index = static_cast<std::size_t>(known - found.begin());
    if (known == found.end()) {
      found.push_back(kind);
      windowed.push_back(0);
    }
    if (mixer != kind) ++windowed[index];
  }
  std::vector<std::string> texts;
  json::Object first;
  json::Array others;
  for (std::size_t i = 0; i < found.size(); ++i) {
    AttentionFinding attention{.json = {}, .text = {}, .windowed = windowed[i]};
    std::visit(attention, found[i]);
    texts.push_back(std::move(attention.text));
    if (i == 0) {
      first = std::move(attention.json);
    } else {
      others.emplace_back(std::move(attention.json));
    }
  }
  if (!others.empty()) first.add("others", std::move(others));
  findings.add("attention", std::move(first), join(texts, "; "));
}

void add_config(const model::Config& config, Findings& findings) {
  findings.add("family", config.model_type);
  findings.add("layers", config.layers);
  findings.add("hidden", config.hidden);
  findings.add("vocabulary", config.vocabulary);
  findings.add("max_positions", config.max_positions);
  add_attention(config, findings);
  add_experts(config, findings);
}

// A summary of a model's weights as they are used: a tied head counts once.
struct Weights {
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;                                     // scales included
  std::map<std::string_view, std::set<std::string>> formats;  // by part of the model

  void add(std::string_view part, const quant::Weight& weight) {
    const quant::Format& format = weight.format();
    parameters += weight.out() * weight.in();
    bytes += static_cast<std::int64_t>(weight.stored_bytes());
    formats[part].insert(quant::to_string(format));
  }
  void add(std::span<const float> numbers) {
    parameters += static_cast<std::int64_t>(numbers.size());
    bytes += static_cast<std::int64_t>(numbers.size_bytes());
  }
  void add(const model::Vector& vector) {
    add(std::span(vector.data(), std::size_t(vector.size())));
  }
  void add(std::string_view part, const model::Linear& linear) {
    add(part, linear.weight);
    add(linear.bias);
  }
  void add(const model::Block& block) {
    for (const model::MapGroup& group : block.maps())
      for (const model::Linear* const map : group.maps) add(group.part, *map);
    for (const model::Vector* const vector : block.vectors()) add(*vector);
  }
  void add(const moe::ExpertWeights& experts) {
    for (const auto* const matrices : {&experts.gate, &experts.up, &experts.down}) {
      for (const quant::Weight& weight : *matrices) add("experts", weight);
    }
    for (const auto* const biases : {&experts.gate_bias, &experts.up_bias, &experts.down_bias})
      add(*biases);
  }
};

Weights weights_of(const model::Model& model) {
  Weights weights;
  weights.add("embedding", model.embedding());
  if (model.head().weight.view().data != model.embedding().weight.view().data)
    weights.add("head", model.head());
  model::for_each_norm(model.layers(), [&](const model::Vector& norm) { weights.add(norm); });
  model::for_each_block(model.layers(), [&](const model::Block& block) { weights.add(block); });
  model::for_each_moe(model.layers(), [&](const model::MoeBlock& block, std::size_t) {
    weights.add(*block.experts);
  });
  // The last norm.
  weights.parameters += model.config().hidden;
  weights.bytes += model.config().hidden * static_cast<std::int64_t>(sizeof(float));
  return weights;
}

void add_weights(const model::Model& model, Findings& findings) {
  const Weights weights = weights_of(model);
  findings.add("parameters", weights.parameters);
  json::Object formats;
  std::vector<std::string> texts;
  for (const auto& [part, names] : weights.formats) {
    std::string format = join(names, " and ");
    texts.push_back(cat(part, " ", format));
    formats.add(std::string(part), std::move(format));
  }
  findings.add("weights", std::move(formats), join(texts, "; "));
  if (const std::vector<std::string>& remarks = model.quantization_remarks(); !remarks.empty())
    findings.add("quantization", json::Value(join(remarks)), join(remarks));
  const auto scaled = std::ranges::count_if(
      model.layers(), [](const auto& layer) { return layer.kv_scales.stored; });
  if (scaled > 0)
    findings.add("kv_scales", std::int64_t{scaled},
                 cat(scaled, scaled == 1 ? " layer" : " layers", ", for --kv-dtype fp8"));
  findings.add_bytes("weight_bytes", weights.bytes);
  findings.add_bytes("cache_bytes_a_token",
                     runner::KvMemory::page_bytes(model.token_caches(), model.kv_type()) /
                         runner::KvMemory::page_tokens);
  if (model.keeps_states())
    findings.add_bytes("state_bytes_a_sequence",
                       runner::StateMemory::slot_bytes(model.state_shapes()));
  add_fits(model, weights.bytes, findings);
  add_push_memory(findings);
}

// "0, 2-5"
std::string ranges(const std::vector<std::int64_t>& ascending) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    parts.push_back(last == i ? cat(ascending[i]) : cat(ascending[i], "-", ascending[last]));
    i = last + 1;
  }
  return join(parts);
}

// Layers with the same backend for the same reasons.
struct Served {
  std::string_view backend;
  std::vector<moe::PassedOver> passed_over;

  friend auto operator<=>(const Served&, const Served&) = default;
};

void add_backends(const model::Model& model, Findings& findings) {
  std::map<Served, std::vector<std::int64_t>> layers_of;
  model::for_each_moe(model.layers(), [&](const model::MoeBlock& block, std::size_t layer) {
    layers_of[{block.backend->name(), moe::passed_over(block.problem, *block.backend)}].push_back(
        static_cast<std::int64_t>(layer));
  });
  if (layers_of.empty()) return;
  json::Array backends;
  std::vector<std::string> texts;
  for (const auto& [served, layers] : layers_of) {
    json::Array numbers;
    for (const std::int64_t layer : layers) numbers.emplace_back(layer);
    json::Object passed_over;
    std::string text = cat(served.backend, " in layers ", ranges(layers));
    for (const auto& [name, reason] : served.passed_over) {
      passed_over.add(std::string(name), printable(reason));
      text += cat(", passed over ", name, " (", printable(reason), ")");
    }
    texts.push_back(std::move(text));
    json::Object backend;
    backend.add("name", served.backend);
    backend.add("layers", std::move(numbers));
    backend.add("passed_over", std::move(passed_over));
    backends.emplace_back(std::move(backend));
  }
  findings.add("compute", model.exact() ? "f32" : "bf16");
  findings.add("experts_backend", std::move(backends), join(texts, "; "));
}

// The kernels that a GPU takes for products outside of experts, by the weights' format.
void add_dense_kernels(const model::Model& model, const kernels::Tuning* tuning,
                       Findings& findings) {
  const std::vector<model::DenseKernels> all = model::dense_kernels(model, {.tuning = tuning});
  if (all.empty()) return;
  const auto array = [](const auto& names) {
    json::Array made;
    for (const auto& name : names) made.emplace_back(name);
    return made;
  };
  json::Array formats;
  std::vector<std::string> texts;
  for (const model::DenseKernels& each : all) {
    json::Object format;
    format.add("format", each.format);
    format.add("few_rows", array(each.few));
    format.add("many_rows", array(each.many));
    format.add("passed_over", array(each.passed_over));
    formats.emplace_back(std::move(format));
    texts.push_back(to_string(each));
  }
  findings.add("dense_kernels_on_a_gpu", std::move(formats), join(texts, "; "));
  findings.add("tuning", serving::tuning_name(tuning));
}

// The forms of calls and reasoning in its template.
void add_forms(const fs::path& folder, Findings& findings) {
  const auto text = text::ModelText::load(folder);
  if (!text.ok()) return;
  const serving::ChatFormat format = serving::find_chat_format(*text);
  findings.add("tool_form",
               format.calls == nullptr ? json::Value() : json::Value(format.calls->name),
               format.calls != nullptr ? std::string(format.calls->name)
               : serving::shows_tools(*text)
                   ? "not known: calls of tools stay text (serve --tool-form names one)"
                   : "none: its template shows no tools");
  findings.add("reasoning_form",
               format.reasoning == nullptr ? json::Value() : json::Value(format.reasoning->name),
               format.reasoning == nullptr ? "none" : std::string(format.reasoning->name));
}

// The config's quantisation method, if the weights did not load.
void add_method(const json::Value& config, Findings& findings) {
  const json::Object* const object = config.if_object();
  if (object == nullptr) return;
  const auto quantization = quant::Config::read(*object);
  if (quantization.ok() && quantization->method() != "none")
    findings.add("quantization", quantization->method());
}

// What each rank of several would hold: its shard is loaded, one after the other.
Result<void> add_ranks(const fs::path& folder, const serving::ComputeSettings& settings,
                       Findings& findings) {
  const int ranks = settings.ranks;
  dist::ThreadRanks group({.ranks = ranks});
  MOTLEY_TRY(const std::unique_ptr<tensor::Device> device,
             tensor::open_device({.kind = tensor::DeviceChoice::Kind::cpu}, {.threads = 1}));
  for (int rank = 0; rank < ranks; ++rank) {
    MOTLEY_TRY(const std::unique_ptr<model::Model> model,
               model::Model::load(folder, *device,
                                  {.exact = !cpu_features().avx512_bf16,
                                   .experts_backend = {},
                                   .kv_codes = settings.kv_codes,
                                   .exact_inputs = settings.exact_inputs,
                                   .ranks = &group.rank(rank),
                                   .expert_groups = settings.expert_groups,
                                   .progress = {}}));
    const std::int64_t bytes = weights_of(*model).bytes;
    const std::int64_t token =
        runner::KvMemory::page_bytes(model->token_caches(), model->kv_type()) /
        runner::KvMemory::page_tokens;
    const std::string parts = model::describe(model->shard(), model->config());
    json::Object fields;
    fields.add("holds", parts);
    fields.add("weight_bytes", bytes);
    fields.add("cache_bytes_a_token", token);
    const std::int64_t state = runner::StateMemory::slot_bytes(model->state_shapes());
    if (model->keeps_states()) fields.add("state_bytes_a_sequence", state);
    findings.add(
        cat("rank_", rank), std::move(fields),
        cat(parts, "; ", format_bytes(static_cast<std::uint64_t>(bytes)), " of weights, ", token,
            " bytes a token", model->keeps_states() ? cat(", ", state, " bytes a sequence") : ""));
  }
  return {};
}

}  // namespace

Result<LoadedModel> load_to_inspect(const fs::path& folder, bool kv_codes) {
  LoadedModel loaded;
  MOTLEY_TRY(loaded.device,
             tensor::open_device({.kind = tensor::DeviceChoice::Kind::cpu}, {.threads = 1}));
  MOTLEY_TRY(loaded.model, model::Model::load(folder, *loaded.device,
                                              {.exact = !cpu_features().avx512_bf16,
                                               .experts_backend = {},
                                               .kv_codes = kv_codes,
                                               .progress = {}}));
  return loaded;
}

Result<Findings> inspect_model(const fs::path& folder, const json::Value& config,
                               const serving::ComputeSettings& settings) {
  Findings findings;
  const auto parsed = model::parse_config(config, printable((folder / "config.json").string()));
  if (!parsed.ok()) {
    add_method(config, findings);
    findings.refusal = parsed.error().message();
    return findings;
  }
  add_config(*parsed, findings);
  const auto loaded = load_to_inspect(folder, settings.kv_codes);
  if (!loaded.ok()) {
    // Lack of memory on this machine is no finding about the folder.
    if (loaded.error().code() == ErrorCode::out_of_memory) return loaded.error();
    add_method(config, findings);
    findings.refusal = loaded.error().message();
    return findings;
  }
  add_weights(*loaded->model, findings);
  add_backends(*loaded->model, findings);
  add_dense_kernels(*loaded->model, settings.tuning.get(), findings);
  add_forms(folder, findings);
  if (settings.ranks > 1) {
    if (auto added = add_ranks(folder, settings, findings); !added.ok()) {
      if (added.error().code() == ErrorCode::out_of_memory) return std::move(added).error();
      findings.refusal = added.error().message();
    }
  }
  return findings;
}

}  // namespace motley::cli
