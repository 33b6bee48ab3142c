#include "cli/bench/random_model.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/system/clock.h"
#include "base/units.h"
#include "cli/bench/steps/step_cost.h"
#include "cli/options/arguments/option_values.h"
#include "model/config/shapes.h"

namespace motley::cli {
namespace {

using model::RandomWeights;

std::string format_names() {
  std::string names;
  for (const auto& [name, format] : RandomWeights::names) {
    if (!names.empty()) names += name == RandomWeights::names.back().first ? " or " : ", ";
    names += name;
  }
  return names;
}

Result<RandomWeights::Experts> parse_format(std::string_view text) {
  for (const auto& [name, format] : RandomWeights::names)
    if (name == text) return format;
  return wrong_option(cat("unknown format ", quote(text)), "--format", cat("use ", format_names()));
}

// "16", "8,32", or "8-64": powers of two from one to the other.
Result<std::vector<int>> parse_ranks(std::string_view text) {
  constexpr std::string_view option = "--ranks";
  std::vector<int> ranks;
  if (const std::size_t dash = text.find('-'); dash != text.npos) {
    MOTLEY_TRY(std::int64_t rank, parse_number(text.substr(0, dash), option, 1, 256));
    MOTLEY_TRY(const std::int64_t last, parse_number(text.substr(dash + 1), option, rank, 256));
    for (; rank <= last; rank *= 2) ranks.push_back(static_cast<int>(rank));
    return ranks;
  }
  MOTLEY_TRY(const std::vector<std::int64_t> numbers, parse_numbers(text, option, 1, 256));
  if (numbers.empty()) return wrong_option("no rank", option, "use 1 to 256");
  ranks.assign(numbers.begin(), numbers.end());
  return ranks;
}

// "2 ranks of ", before the description of the first one's device.
std::string ranks_of(const serving::ComputeSettings& compute) {
  if (compute.ranks == 1) return "";
  if (compute.expert_groups == 1) return cat(compute.ranks, " ranks of ");
  return cat(compute.ranks, " ranks (experts on ", compute.expert_groups, " groups) of ");
}

}  // namespace

std::string_view RandomModelSettings::format() const {
  const auto* const found = std::ranges::find(RandomWeights::names, experts,
                                              [](const auto& each) { return each.second; });
  return found->first;
}

lora::RandomAdapter RandomModelSettings::adapter(std::size_t number) const {
  return {.rank = ranks[number % ranks.size()], .shared_outer = shared_outer, .seed = number + 1};
}

std::vector<OptionSpec> random_model_option_specs() {
  return {{"--shape", "NAME", "qwen3-30b-a3b, gpt-oss-20b, ..., or tiny: with random weights"},
          {"--layers", "N", "its first layers only"},
          {"--format", "F",
           "of experts: bf16, w4a16 (or -asym, -g32, -actorder), w8a16 (or -g32), mxfp8, mxfp4, "
           "nvfp4; of all maps: fp8-block, w8a8"},
          {"--ranks", "LIST", "of random adapters, cyclically (16); 8-64 is 8,16,32,64"},
          {"--shared-outer", "", "their experts share A of gate and up, and B of down"}};
}

Result<RandomModelSettings> read_random_model_settings(const Arguments& arguments) {
  RandomModelSettings settings{.shape = *arguments.value("--shape"),
                               .shared_outer = arguments.has("--shared-outer")};
  if (const std::string* const format = arguments.value("--format")) {
    MOTLEY_TRY(settings.experts, parse_format(*format));
  }
  if (const std::string* const text = arguments.value("--layers")) {
    MOTLEY_TRY(settings.layers, parse_number(*text, "--layers", 1, 1000));
  }
  if (const std::string* const text = arguments.value("--ranks")) {
    MOTLEY_TRY(settings.ranks, parse_ranks(*text));
  }
  return settings;
}

Result<RandomModel> make_random_model(const RandomModelSettings& settings,
                                      const serving::ComputeSettings& compute,
                                      tensor::Device& device, const serving::ModelRank& rank) {
  MOTLEY_TRY(model::Config config, model::shape_config(settings.shape, settings.layers));
  const std::uint64_t bytes = weight_bytes(config, settings.experts);
  MOTLEY_TRY(const tensor::MemoryInfo memory, device.memory());
  if (bytes > memory.available)
    return Error(ErrorCode::out_of_memory,
                 cat("the weights take ", format_bytes(bytes), ", and ",
                     format_bytes(memory.available), " are left"),
                 device.description(), "use --layers, or --format w4a16");
  const bool exact = compute.exact.value_or(serving::likes_float32(device));
  const SteadyClock clock;
  const TimePoint start = clock.now();
  RandomModel made;
  MOTLEY_TRY(made.model, model::Model::random(std::move(config), settings.experts, device,
                                              {.exact = exact,
                                               .batch_invariant = compute.batch_invariant,
                                               .experts_backend = compute.experts_backend,
                                               .factors = compute.factors,
                                               .kv_codes = compute.kv_codes,
                                               .exact_inputs = compute.exact_inputs,
                                               .fusion = compute.fusion,
                                               .ranks = rank.ranks,
                                               .expert_groups = compute.expert_groups,
                                               .tuning = compute.tuning}));
  serving::check_tuning_suits(*made.model, device);
  made.description =
      cat(settings.shape, ", ", made.model->config().layers, " layers, experts in ",
          settings.format(), ", ", exact ? "f32" : "bf16", " arithmetic, ",
          compute.kv_codes ? "keys and values in fp8, " : "", format_bytes(bytes),
          " of weights made in ", format_seconds(seconds(clock.now() - start)), "; ",
          ranks_of(compute), device.description(), "; ", made.model->describe_backends());
  return made;
}

}  // namespace motley::cli
