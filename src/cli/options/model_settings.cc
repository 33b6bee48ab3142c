#include "cli/options/model_settings.h"

#include <system_error>

#include "base/cat.h"
#include "base/units.h"
#include "cli/options/option_values.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t max_batch_tokens = 65536;
constexpr std::int64_t max_queue = 1'000'000;
constexpr std::int64_t max_adapters = 1'000'000;

// The last component of a folder's path, however it is written; "base" if there is none.
std::string folder_name(const fs::path& folder) {
  if (folder.empty()) return "base";
  std::error_code failure;
  const fs::path whole = fs::canonical(folder, failure);
  return (failure ? folder : whole).filename().string();
}

Result<std::vector<AdapterOption>> read_adapters(const Arguments& arguments,
                                                 std::string_view base) {
  std::vector<AdapterOption> adapters;
  for (const std::string& text : arguments.values("--adapter")) {
    MOTLEY_TRY(AdapterOption adapter, parse_adapter_option(text));
    if (adapter.name == base)
      return wrong_option(cat("adapter ", quote(adapter.name), " has the base's name"), "--adapter",
                          "give it another, or the base with --name");
    for (const AdapterOption& other : adapters) {
      if (other.name == adapter.name)
        return wrong_option(cat("adapter ", quote(adapter.name), " twice"), "--adapter",
                            "give each a name of its own");
    }
    adapters.push_back(std::move(adapter));
  }
  return adapters;
}

Result<std::optional<std::uint64_t>> read_size(const Arguments& arguments,
                                               std::string_view option) {
  const std::string* const text = arguments.value(option);
  if (text == nullptr) return std::optional<std::uint64_t>();
  auto size = parse_size(*text);
  if (!size.ok()) return std::move(size).error().within(option);
  return std::optional(*size);
}

}  // namespace

std::vector<OptionSpec> model_option_specs() {
  std::vector<OptionSpec> options = {
      {"--adapter", "NAME=PATH", "an adapter that requests may name", true},
      {"--max-batch-tokens", "N", "tokens of a step, all requests together (512; on a CPU fewer)"},
      {"--adapter-memory", "SIZE", "for adapters that are ready (an eighth of what is free)"},
      {"--adapter-host-memory", "SIZE",
       "for adapters a copy away from a GPU, of all ranks together (twice that)"},
      {"--kv-memory", "SIZE", "for keys and values (at most a quarter of what is free)"},
      {"--name", "ID", "what requests call the base (the folder's name)"},
      {"--max-queue", "N",
       "requests that may wait; 0: what finds no place at once is refused (1024)"},
      {"--max-adapters", "N", "adapters that requests may name, in memory or not (10000)"},
      {"--hf-special-text", "", "take special tokens in messages for real, as Hugging Face does"}};
  const std::vector<OptionSpec> compute = compute_option_specs();
  options.insert(options.end(), compute.begin(), compute.end());
  return options;
}

Result<std::int64_t> integer_option(const Arguments& arguments, std::string_view option,
                                    std::int64_t least, std::int64_t most, std::int64_t otherwise) {
  const std::string* const text = arguments.value(option);
  if (text == nullptr) return otherwise;
  return parse_number(*text, option, least, most);
}

Result<ModelSettings> read_model_settings(const Arguments& arguments) {
  ModelSettings settings{.model = arguments.positional(0)};
  const std::string* const name = arguments.value("--name");
  settings.name = name != nullptr ? *name : folder_name(settings.model);
  if (settings.name.empty()) return wrong_option("an empty name", "--name", "give one");
  MOTLEY_TRY(settings.adapters, read_adapters(arguments, settings.name));
  MOTLEY_TRY(settings.compute, read_compute_settings(arguments));
  if (arguments.has("--max-batch-tokens")) {
    MOTLEY_TRY(settings.max_batch_tokens,
               integer_option(arguments, "--max-batch-tokens", 1, max_batch_tokens, 0));
  }
  MOTLEY_TRY(settings.adapter_memory, read_size(arguments, "--adapter-memory"));
  MOTLEY_TRY(settings.adapter_host_memory, read_size(arguments, "--adapter-host-memory"));
  MOTLEY_TRY(settings.kv_memory, read_size(arguments, "--kv-memory"));
  MOTLEY_TRY(settings.max_queue,
             integer_option(arguments, "--max-queue", 0, max_queue, settings.max_queue));
  MOTLEY_TRY(settings.max_adapters,
             integer_option(arguments, "--max-adapters", 1, max_adapters, settings.max_adapters));
  settings.special_in_untrusted = arguments.has("--hf-special-text");
  return settings;
}

}  // namespace motley::cli
