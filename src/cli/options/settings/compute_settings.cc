#include "cli/options/settings/compute_settings.h"

#include <algorithm>
#include <string_view>

#include "base/cat.h"
#include "base/system/files.h"
#include "cli/options/arguments/option_values.h"
#include "kernels/tuning/candidates.h"

namespace motley::cli {
namespace {

constexpr std::int64_t max_ranks = 64;
constexpr std::int64_t max_gpu = 1023;

Result<std::optional<bool>> parse_compute(std::string_view text) {
  if (text == "f32") return std::optional(true);
  if (text == "bf16") return std::optional(false);
  if (text == "auto") return std::optional<bool>();
  return wrong_option(cat("unknown arithmetic ", quote(text)), "--compute",
                      "use auto, f32 or bf16");
}

Result<std::optional<DType>> parse_adapter_dtype(std::string_view text) {
  if (text == "fp8") return std::optional(DType::f8_e4m3);
  if (text == "auto") return std::optional<DType>();
  return wrong_option(cat("unknown type ", quote(text)), "--adapter-dtype", "use auto or fp8");
}

Result<bool> parse_kv_dtype(std::string_view text) {
  if (text == "auto") return false;
  if (text == "fp8") return true;
  return wrong_option(cat("unknown type ", quote(text)), "--kv-dtype", "use auto or fp8");
}

Result<bool> parse_activations(std::string_view text) {
  if (text == "auto") return false;
  if (text == "exact") return true;
  return wrong_option(cat("unknown activations ", quote(text)), "--activations",
                      "use auto or exact");
}

Result<std::shared_ptr<const kernels::Tuning>> read_tuning(const std::string& path) {
  constexpr std::size_t longest = 64'000'000;
  MOTLEY_TRY(const std::string text, read_text(path, longest));
  MOTLEY_TRY(kernels::Tuning tuning, kernels::parse_tuning(text, printable(path)));
  MOTLEY_TRY_VOID(kernels::cuda::check_tuning(tuning));
  return std::make_shared<const kernels::Tuning>(std::move(tuning));
}

Result<std::vector<int>> parse_devices(std::string_view text) {
  std::vector<int> gpus;
  MOTLEY_TRY(const std::vector<std::int64_t> numbers, parse_numbers(text, "--devices", 0, max_gpu));
  for (const std::int64_t number : numbers) {
    const int gpu = static_cast<int>(number);
    if (std::ranges::find(gpus, gpu) != gpus.end())
      return wrong_option(cat("GPU ", gpu, " stands there twice"), "--devices",
                          "name each GPU once: a rank takes one");
    gpus.push_back(gpu);
  }
  return gpus;
}

// Of several ranks each has a device.
Result<void> check_devices(const Arguments& arguments, const serving::ComputeSettings& settings) {
  using Kind = tensor::DeviceChoice::Kind;
  const std::string* const device = arguments.value("--device");
  if (settings.gpus.empty()) {
    const bool numbered = settings.device.kind == Kind::cuda && *device != "cuda";
    if (settings.replicas > 1 && numbered)
      return wrong_option(cat("--dp ", settings.replicas, " takes a GPU for each rank of each ",
                              "replica, not ", *device),
                          "--device", "name them with --devices, as in --devices 0,1");
    if (settings.ranks > 1 && numbered)
      return wrong_option(cat(settings.ranks, " ranks take a GPU each, not ", *device), "--device",
                          "name them with --devices, as in --devices 0,1");
    return {};
  }
  if (device != nullptr && *device != "cuda")
    return wrong_option(cat("names GPUs, beside --device ", *device), "--devices",
                        "leave one of them out");
  if (settings.replicas > 1 &&
      settings.ranks * settings.replicas != static_cast<int>(settings.gpus.size()))
    return wrong_option(
        cat("names ", settings.gpus.size(), " GPUs for --dp ", settings.replicas, ", ",
            settings.ranks, settings.ranks == 1 ? " rank" : " ranks", " each"),
        "--devices", "name one for each rank of each replica");
  if (settings.replicas == 1 && settings.ranks != static_cast<int>(settings.gpus.size()))
    return wrong_option(cat("names ", settings.gpus.size(), " GPUs for ", settings.ranks, " ranks"),
                        "--devices", "name one for each rank of --tp");
  return {};
}

// Groups are equal.
Result<void> check_expert_groups(const serving::ComputeSettings& settings) {
  const int groups = settings.expert_groups;
  if (settings.ranks % groups == 0) return {};
  const int fewer = settings.ranks / groups * groups;
  return wrong_option(
      cat(settings.ranks, settings.ranks == 1 ? " rank does" : " ranks do", " not make ", groups,
          " equal groups"),
      "--ep", cat("use a number that divides the ranks, or --tp ", fewer == 0 ? groups : fewer));
}

Result<int> read_replicas(const Arguments& arguments, int ranks) {
  const std::string* const text = arguments.value("--dp");
  if (text == nullptr) return 1;
  MOTLEY_TRY(const std::int64_t replicas, parse_number(*text, "--dp", 1, max_ranks));
  if (replicas * ranks > max_ranks)
    return wrong_option(
        cat(replicas, " replicas of ", ranks, " ranks are more than ", max_ranks, " ranks"), "--dp",
        "use fewer");
  return static_cast<int>(replicas);
}

}  // namespace

std::vector<OptionSpec> compute_option_specs() {
  return {{"--device", "D", "auto, cpu, cuda or cuda:N"},
          {"--compute", "C", "auto, f32 or bf16"},
          {"--tp", "N", "ranks that compute the model together: GPUs, or threads on a CPU (1)"},
          {"--ep", "E",
           "groups of ranks that share the experts out; alone, it is --tp E too; tp: one for each "
           "rank (1)"},
          {"--devices", "LIST", "GPUs, one for each rank, as in 0,1; --tp may be left out"},
          {"--ranks-over", "W", "what GPUs exchange numbers over: auto, peers or nccl"},
          {"--dp", "D", "of serve: engines behind one front, each of --tp ranks (1)"},
          {"--activations", "A", "auto: quantised where the model's file says so; or exact"},
          {"--batch-invariant", "", "an answer's bits depend on nothing beside it; so on a CPU"},
          {"--adapter-dtype", "T", "auto, or fp8: half of bf16's memory"},
          {"--kv-dtype", "T", "of keys and values: auto, or fp8: half of bf16's memory"},
          {"--experts-backend", "NAME", "auto, or the backend to take"},
          {"--tuning", "F", "thresholds of a GPU's kernels, as bench --tune measures them"},
          {"--no-graphs", "", "launches a GPU's steps one kernel at a time"},
          {"--no-fusion", "", "runs every op of a model by itself; for comparing"},
          {"--copy-weights", "", "reads the model's files into memory, so that they may change"}};
}

Result<serving::ComputeSettings> read_compute_settings(const Arguments& arguments) {
  serving::ComputeSettings settings;
  if (const std::string* const device = arguments.value("--device")) {
    MOTLEY_TRY(settings.device, tensor::parse_device(*device));
  }
  if (const std::string* const compute = arguments.value("--compute")) {
    MOTLEY_TRY(settings.exact, parse_compute(*compute));
  }
  if (const std::string* const activations = arguments.value("--activations")) {
    MOTLEY_TRY(settings.exact_inputs, parse_activations(*activations));
  }
  if (const std::string* const dtype = arguments.value("--adapter-dtype")) {
    MOTLEY_TRY(settings.factors, parse_adapter_dtype(*dtype));
  }
  if (const std::string* const dtype = arguments.value("--kv-dtype")) {
    MOTLEY_TRY(settings.kv_codes, parse_kv_dtype(*dtype));
  }
  if (const std::string* const backend = arguments.value("--experts-backend")) {
    if (*backend != "auto") settings.experts_backend = *backend;
  }
  if (const std::string* const tuning = arguments.value("--tuning")) {
    MOTLEY_TRY(settings.tuning, read_tuning(*tuning));
  }
  if (const std::string* const ranks = arguments.value("--tp")) {
    MOTLEY_TRY(const std::int64_t number, parse_number(*ranks, "--tp", 1, max_ranks));
    settings.ranks = static_cast<int>(number);
  }
  const std::string* const groups = arguments.value("--ep");
  const bool group_each = groups != nullptr && *groups == "tp";
  if (groups != nullptr && !group_each) {
    MOTLEY_TRY(const std::int64_t number, parse_number(*groups, "--ep", 1, max_ranks));
    settings.expert_groups = static_cast<int>(number);
    if (!arguments.has("--tp")) settings.ranks = settings.expert_groups;
  }
  MOTLEY_TRY(settings.replicas, read_replicas(arguments, settings.ranks));
  if (const std::string* const over = arguments.value("--ranks-over")) {
    MOTLEY_TRY(settings.ranks_over, dist::parse_ranks_over(*over));
  }
  if (const std::string* const devices = arguments.value("--devices")) {
    MOTLEY_TRY(settings.gpus, parse_devices(*devices));
    if (!arguments.has("--tp"))
      settings.ranks = std::max(1, static_cast<int>(settings.gpus.size()) / settings.replicas);
  }
  if (group_each) settings.expert_groups = settings.ranks;
  MOTLEY_TRY_VOID(check_devices(arguments, settings));
  MOTLEY_TRY_VOID(check_expert_groups(settings));
  if (!settings.gpus.empty())
    settings.device = {.kind = tensor::DeviceChoice::Kind::cuda, .index = settings.gpus.front()};
  settings.batch_invariant = arguments.has("--batch-invariant");
  settings.graphs = !arguments.has("--no-graphs");
  settings.fusion = !arguments.has("--no-fusion");
  settings.copy_weights = arguments.has("--copy-weights");
  return settings;
}

Result<void> require_one_rank(const serving::ComputeSettings& settings, std::string_view work) {
  if (settings.ranks == 1) return {};
  return Error(ErrorCode::not_implemented, cat(work, " uses one rank so far"),
               settings.expert_groups > 1 ? "--ep" : "--tp", "leave it out");
}

Result<void> require_one_replica(const serving::ComputeSettings& settings, std::string_view work) {
  if (settings.replicas == 1) return {};
  return Error(ErrorCode::not_implemented, cat(work, " uses one replica so far"), "--dp",
               "leave it out, or use serve");
}

}  // namespace motley::cli
