#include "cli/inspect/supported.h"

#include <array>
#include <set>
#include <string_view>
#include <vector>

#include "base/cat.h"
#include "base/check.h"
#include "base/json/json.h"
#include "kernels/tuning/candidates.h"
#include "model/config/config.h"
#include "model/families.h"
#include "moe/select.h"
#include "quant/formats.h"

namespace motley::cli {
namespace {

using quant::Format;

// A config.json that all families accept, each reading its own settings, with usual sizes.
constexpr std::string_view any_config = R"(
    "hidden_size": 2048, "intermediate_size": 1024, "moe_intermediate_size": 1024,
    "vocab_size": 32000, "num_hidden_layers": 2, "num_attention_heads": 16,
    "num_key_value_heads": 16, "head_dim": 128, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "num_experts": 64, "num_local_experts": 64,
    "n_routed_experts": 64, "num_experts_per_tok": 8, "shared_expert_intermediate_size": 1024,
    "n_shared_experts": 1, "first_k_dense_replace": 0, "n_group": 1, "topk_group": 1,
    "norm_topk_prob": false, "routed_scaling_factor": 1.0, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "sliding_window": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128)";

std::string_view layer_types_of(const model::Family& family) {
  return family.model_type == "gpt_oss"
             ? R"(, "layer_types": ["sliding_attention", "full_attention"])"
             : "";
}

model::Config config_of(const model::Family& family) {
  const auto value = json::parse(
      cat("{\"model_type\": \"", family.model_type, "\",", any_config, layer_types_of(family), "}"),
      "family");
  MOTLEY_CHECK(value.ok(), "a config that is JSON");
  auto config = model::parse_config(*value, family.model_type);
  MOTLEY_CHECK(config.ok(), "a config that every family reads");
  return *std::move(config);
}

// The backend that serves experts of a family in a format with adapters on them, or "no".
std::string_view backend_for(const model::Config& config, const Format& format,
                             tensor::DeviceKind device, bool exact) {
  const moe::Problem problem{.gate_up = format,
                             .down = format,
                             .hidden = config.hidden,
                             .intermediate = config.moe.intermediate,
                             .experts = config.moe.router.experts,
                             .top_k = config.moe.router.top_k,
                             .activation = config.moe.activation,
                             .expert_biases = config.moe.expert_biases,
                             .lora = true,
                             .factors = exact ? DType::f32 : DType::bf16,
                             .exact = exact,
                             .device = device};
  const auto backend = moe::select(problem, moe::backends_of(device));
  return backend.ok() ? (*backend)->name() : "no";
}

// The backend of all families that have experts; "no" if one has none.
std::string backend_of_all(const Format& format, tensor::DeviceKind device, bool exact) {
  std::set<std::string_view> names;
  for (const model::Family& family : model::families()) {
    const model::Config config = config_of(family);
    if (config.has_experts()) names.insert(backend_for(config, format, device, exact));
  }
  return names.contains("no") ? "no" : join(names, " or ");
}

// A weight of the format at sizes that suit every kernel. Only what selection reads is there.
kernels::WeightView usual_weight(const Format& format) {
  alignas(256) static constexpr std::array<std::byte, 256> numbers{};
  static constexpr std::uint8_t zero = 0;
  const auto order = std::make_shared<const std::vector<std::int32_t>>(2048);
  const bool scaled = format.scales != Format::Scales::none;
  return quant::Weight({.format = format,
                        .size = {2048, 2048},
                        .data = numbers.data(),
                        .scales = scaled ? numbers.data() : nullptr,
                        .zero_points = format.zero_points ? &zero : nullptr,
                        .input_order = format.input_order ? order : nullptr})
      .view();
}

std::string row(const std::vector<std::string>& cells) {
  return cat("| ", join(cells, " | "), " |\n");
}

std::string ruler(std::size_t columns) {
  std::string text = "|";
  for (std::size_t i = 0; i < columns; ++i) text += "---|";
  return text + "\n";
}

// On a GPU with the kernels of dense products, too; a CPU has one for all.
std::string formats_table(tensor::DeviceKind device) {
  const bool on_gpu = device == tensor::DeviceKind::cuda;
  std::vector<std::string> heads{"format", "files", "experts", "experts in float32"};
  if (on_gpu) heads.insert(heads.end(), {"dense, few tokens", "dense, many tokens"});
  std::string text = row(heads) + ruler(heads.size());
  for (const quant::KnownFormat& known : quant::known_formats()) {
    if (known.files.empty()) continue;
    std::vector<std::string> cells{quant::to_string(known.format), std::string(known.files),
                                   backend_of_all(known.format, device, false),
                                   backend_of_all(known.format, device, true)};
    if (on_gpu) {
      const kernels::WeightView weight = usual_weight(known.format);
      const auto dense = kernels::cuda::describe_dense({.products = {&weight, 1}});
      MOTLEY_CHECK(dense.has_value(), "a build with CUDA");
      cells.insert(cells.end(), {std::string(dense->few), std::string(dense->many)});
    }
    text += row(cells);
  }
  return text;
}

std::string families_table() {
  std::string text = row({"family", "formats of its experts"}) + ruler(2);
  for (const model::Family& family : model::families()) {
    const model::Config config = config_of(family);
    const std::string_view formats = !config.has_experts()              ? "no experts"
                                     : config.naming.experts_transposed ? "bf16, f16, f32, mxfp4"
                                                                        : "all";
    text += row({std::string(family.model_type), std::string(formats)});
  }
  return text;
}

// What is supported in loading, in mixes and with scales.
struct AdapterKind {
  std::string_view kind;
  std::string_view dense;  // attention, dense blocks, shared experts, router
  std::string_view experts;
  std::string_view embedding;
  std::string_view head;
  std::string_view mixed;
};
// A test loads an adapter for each cell.
constexpr std::array adapter_kinds = {
    AdapterKind{"LoRA, rsLoRA, ranks and alphas by pattern", "yes", "yes", "yes", "yes", "yes"},
    AdapterKind{"started by EVA, MiCA, orthogonal or Gaussian", "yes", "yes", "yes", "yes", "yes"},
    AdapterKind{"factors on parameters (target_parameters)", "yes", "yes", "no", "yes", "yes"},
    AdapterKind{"factors that all experts share", "", "yes", "", "", "yes"},
    AdapterKind{"a tied embedding and head (ensure_weight_tying)", "", "", "yes", "yes", "yes"},
    AdapterKind{"VeLoRA", "yes", "yes", "", "yes", "yes"},
    AdapterKind{"MonteCLoRA", "yes", "yes", "", "yes", "yes"},
    AdapterKind{"a bias behind B (lora_bias)", "yes", "no", "no", "yes", "yes"},
    AdapterKind{"DoRA", "yes", "no", "no", "yes", "no"},
    AdapterKind{"the base's biases (bias=all, lora_only)", "yes", "no", "no", "yes", "no"},
    AdapterKind{"whole weights (modules_to_save)", "no", "no", "yes", "yes", "no"},
    AdapterKind{"rows of tables (trainable_token_indices)", "", "", "no", "no", "no"},
    AdapterKind{"PiSSA, not converted when saved", "no", "no", "no", "no", "no"},
    AdapterKind{"OLoRA, not converted when saved", "no", "no", "no", "no", "no"},
    AdapterKind{"CorDA, not converted when saved", "no", "no", "no", "no", "no"},
    AdapterKind{"LoRA-GA, not converted when saved", "no", "no", "no", "no", "no"},
    AdapterKind{"LoftQ", "no", "no", "no", "no", "no"},
    AdapterKind{"activated LoRA (alora_invocation_tokens)", "no", "no", "no", "no", "no"},
    AdapterKind{"QA-LoRA (use_qalora)", "no", "no", "no", "no", "no"},
    AdapterKind{"BD-LoRA (use_bdlora)", "no", "no", "no", "no", "no"},
    AdapterKind{"KaSA (kasa_config)", "no", "no", "no", "no", "no"},
    AdapterKind{"Arrow (arrow_config)", "no", "no", "no", "no", "no"},
    AdapterKind{"repeated layers (layer_replication)", "no", "no", "no", "no", "no"}};

std::string adapters_table() {
  std::string text = row({"kind", "attention, dense blocks, shared experts, router", "experts",
                          "embedding", "head", "mixed with others, or scaled"}) +
                     ruler(6);
  for (const AdapterKind& each : adapter_kinds)
    text += row({std::string(each.kind), std::string(each.dense), std::string(each.experts),
                 std::string(each.embedding), std::string(each.head), std::string(each.mixed)});
  for (const std::string_view type : other_peft_types())
    text += row({cat("peft_type ", type), "no", "no", "no", "no", "no"});
  return text;
}

}  // namespace

std::span<const std::string_view> other_peft_types() {
  static constexpr std::string_view types[] = {"ADALORA",
                                               "ADAMSS",
                                               "ADAPTION_PROMPT",
                                               "BEFT",
                                               "BOFT",
                                               "C3A",
                                               "CARTRIDGE",
                                               "CPT",
                                               "DEFT",
                                               "DELORA",
                                               "FOURIERFT",
                                               "FROD",
                                               "GLORA",
                                               "GRALORA",
                                               "HIRA",
                                               "HRA",
                                               "IA3",
                                               "LILY",
                                               "LN_TUNING",
                                               "LOHA",
                                               "LOKR",
                                               "MISS",
                                               "MULTITASK_PROMPT_TUNING",
                                               "OFT",
                                               "OSF",
                                               "PEANUT",
                                               "POLY",
                                               "PREFIX_TUNING",
                                               "PROMPT_TUNING",
                                               "PSOFT",
                                               "PVERA",
                                               "P_TUNING",
                                               "RANDLORA",
                                               "ROAD",
                                               "SHADOW",
                                               "SHIRA",
                                               "SUPERTUNING",
                                               "TINYLORA",
                                               "TRAINABLE_TOKENS",
                                               "UNILORA",
                                               "VBLORA",
                                               "VERA",
                                               "WAVEFT",
                                               "XLORA"};
  return types;
}

std::string supported_tables() {
  using tensor::DeviceKind;
  const bool has_gpu = !moe::backends_of(DeviceKind::cuda).empty();
  return cat("### Weight formats on the CPU\n\n", formats_table(DeviceKind::cpu),
             "\n### Weight formats on a GPU\n\n",
             has_gpu ? formats_table(DeviceKind::cuda) : "This build has no CUDA.\n",
             "\n### Families\n\n", families_table(),
             "\n### Adapters, on every device and over every format\n\n", adapters_table());
}

}  // namespace motley::cli
