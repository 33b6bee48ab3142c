#include "cli/options/settings/model_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "base/ascii.h"
#include "base/cat.h"
#include "base/log.h"
#include "base/system/files.h"
#include "base/units.h"
#include "cli/options/arguments/option_values.h"
#include "cli/options/folders/adapter_base.h"
#include "cli/options/folders/named_folder.h"
#include "engine/adapter_name.h"
#include "model/config/config.h"

namespace motley::cli {
namespace {

constexpr std::int64_t max_batch_tokens = 65536;
constexpr std::int64_t max_queue = 1'000'000;
constexpr std::int64_t max_adapters = 1'000'000;
constexpr std::int64_t min_model_len = 16;  // a page of keys and values
constexpr std::int64_t max_model_len = std::int64_t{1} << 40;
constexpr std::string_view state_snapshots_option = "--state-snapshots";

Result<std::vector<serving::StartAdapter>> read_adapters(const Arguments& arguments,
                                                         const ModelSettings& settings) {
  MOTLEY_TRY(std::vector<serving::StartAdapter> adapters, read_adapter_options(arguments));
  for (const serving::StartAdapter& adapter : adapters) {
    if (adapter.name == settings.name ||
        std::ranges::find(settings.aliases, adapter.name) != settings.aliases.end())
      return wrong_option(cat("adapter ", quote(adapter.name), " has the base's name"), "--adapter",
                          "give it another, or the base with --name");
  }
  return adapters;
}

// --adapter-dir: adds what is in it to the adapters that the command line names.
Result<void> read_adapter_dir(const Arguments& arguments, ModelSettings& settings) {
  const std::string* const folder = arguments.value("--adapter-dir");
  if (folder == nullptr) return {};
  AdapterDir::FitsBase fits_base;
  if (!arguments.has("--any-base"))
    fits_base = [base = ServedBase(settings.model, settings.names())](const auto& adapter,
                                                                      const auto& beneath) {
      return base.check(adapter, beneath);
    };
  MOTLEY_TRY(settings.adapter_dir, AdapterDir::open(*folder, std::move(fits_base)));
  MOTLEY_TRY(std::vector<serving::StartAdapter> found, settings.adapter_dir->list());
  const std::vector<std::string> names = settings.names();
  for (serving::StartAdapter& adapter : found) {
    const bool named =
        std::ranges::find(settings.engine.adapters, adapter.name, &serving::StartAdapter::name) !=
        settings.engine.adapters.end();
    if (named) continue;
    if (std::ranges::find(names, adapter.name) != names.end())
      log::warning("adapter.left_out",
                   {{"adapter", adapter.name}, {"reason", "the base has that name"}});
    else
      settings.engine.adapters.push_back(std::move(adapter));
  }
  return {};
}

constexpr std::string_view template_option = "--chat-template";
constexpr std::string_view max_model_len_option = "--max-model-len";

// NAME= is read as such if the base or an adapter has that name: a path may hold '=' too.
Result<TemplateOption> read_template(std::string_view text, const ModelSettings& settings) {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  TemplateOption option{.file = text};
  if (equals != std::string_view::npos) {
    const bool base = name == settings.name;
    const bool adapter =
        std::ranges::find(settings.engine.adapters, name, &serving::StartAdapter::name) !=
        settings.engine.adapters.end();
    if (base || adapter) option.file = text.substr(equals + 1);
    if (adapter) option.adapter = name;
  }
  if (text.find("{{") != std::string_view::npos || text.find("{%") != std::string_view::npos)
    return wrong_option("a template's text", template_option, "write it to a file, and name that");
  MOTLEY_TRY(const PathKind kind, path_kind(option.file));
  if (kind != PathKind::missing) return option;
  if (equals != std::string_view::npos && option.file == text && engine::is_adapter_name(name))
    return wrong_option(cat("no adapter ", quote(name), ", and no file ", quote(text)),
                        template_option, "write NAME=FILE with the NAME of an --adapter");
  return wrong_option(cat("no such file ", quote(option.file.native())), template_option,
                      "check the path");
}

Result<std::vector<TemplateOption>> read_templates(const Arguments& arguments,
                                                   const ModelSettings& settings) {
  std::vector<TemplateOption> templates;
  for (const std::string& text : arguments.values(template_option)) {
    MOTLEY_TRY(TemplateOption option, read_template(text, settings));
    if (std::ranges::find(templates, option.adapter, &TemplateOption::adapter) != templates.end())
      return wrong_option(option.adapter.empty()
                              ? std::string("two templates for the base")
                              : cat("two templates for adapter ", quote(option.adapter)),
                          template_option, "keep one of them; NAME=FILE is an adapter's");
    templates.push_back(std::move(option));
  }
  return templates;
}

Result<std::optional<std::uint64_t>> read_size(const Arguments& arguments,
                                               std::string_view option) {
  const std::string* const text = arguments.value(option);
  if (text == nullptr) return std::optional<std::uint64_t>();
  auto size = parse_size(*text);
  if (!size.ok()) return std::move(size).error().within(option);
  return std::optional(*size);
}

constexpr std::string_view name_option = "--name";

// --name has one; vLLM's --served-model-name, which is mapped onto it, may have more.
Result<void> read_names(const Arguments& arguments, ModelSettings& settings) {
  const std::span<const std::string> names = arguments.values(name_option);
  settings.name = names.empty() ? folder_name(settings.model) : names.front();
  for (const std::string& name : names) {
    if (name.empty()) return wrong_option("an empty name", name_option, "give one");
    if (name == settings.name) continue;
    if (std::ranges::find(settings.aliases, name) == settings.aliases.end())
      settings.aliases.push_back(name);
  }
  if (settings.name.empty()) return wrong_option("an empty name", name_option, "give one");
  return {};
}

// Before the weights are read, which may take minutes.
Result<void> read_max_model_len(const Arguments& arguments, ModelSettings& settings) {
  const std::string* const text = arguments.value(max_model_len_option);
  if (text == nullptr) return {};
  MOTLEY_TRY(settings.engine.memory.max_model_len, parse_max_model_len(*text));
  if (!settings.engine.memory.max_model_len || settings.model.empty()) return {};
  const auto config = model::read_config(settings.model);
  if (!config.ok()) return {};  // loading says why
  return serving::check_max_model_len(settings.engine.memory.max_model_len, config->max_positions);
}

Result<void> read_state_snapshots(const Arguments& arguments, ModelSettings& settings) {
  const std::string* const text = arguments.value(state_snapshots_option);
  if (text == nullptr) return {};
  if (*text == "off") {
    settings.engine.memory.state_snapshots = 0;
    return {};
  }
  MOTLEY_TRY(settings.engine.memory.state_snapshots,
             parse_number(*text, state_snapshots_option, 1, max_model_len));
  return {};
}

}  // namespace

Result<std::optional<std::int64_t>> parse_max_model_len(std::string_view text) {
  if (text == "-1" || ascii::lower(text) == "auto") return std::optional<std::int64_t>();
  constexpr std::string_view letters = "kKmMgG";
  constexpr std::array<std::int64_t, 6> units = {1'000,         std::int64_t{1} << 10,
                                                 1'000'000,     std::int64_t{1} << 20,
                                                 1'000'000'000, std::int64_t{1} << 30};
  const std::size_t letter = text.empty() ? letters.npos : letters.find(text.back());
  const std::int64_t unit = letter == letters.npos ? 1 : units[letter];
  const std::string_view digits = text.substr(0, text.size() - (unit == 1 ? 0 : 1));
  // As in vLLM, decimal units may have fractions: 25.6k.
  const bool decimal = unit % 10 == 0;
  const auto format = decimal ? std::chars_format::fixed : std::chars_format::general;
  const bool valid =
      digits.find_first_not_of(decimal ? "0123456789." : "0123456789") == digits.npos;
  double number = 0;
  const char* const end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, number, format);
  const double tokens = number * static_cast<double>(unit);
  if (!valid || parsed.ec != std::errc() || parsed.ptr != end ||
      !(tokens >= static_cast<double>(min_model_len) &&
        tokens < static_cast<double>(max_model_len)))
    return wrong_option(cat("not a number of tokens: ", quote(text)), max_model_len_option,
                        cat("use ", min_model_len, " or more, as in 32768 or 32K, or auto"));
  return std::optional(static_cast<std::int64_t>(tokens));
}

std::vector<OptionSpec> model_option_specs() {
  std::vector<OptionSpec> options = {
      {"--adapter", "NAME=PATH",
       "an adapter that requests may name (NAME: its folder's name); PATH may be ORG/NAME[@REV]",
       true},
      {max_model_len_option, "N",
       "tokens of a sequence, prompt and answer; 32K, or auto: as many as memory holds (auto)"},
      {"--max-batch-tokens", "N", "tokens of a step, all requests together (512; on a CPU fewer)"},
      {"--adapter-memory", "SIZE", "for adapters that are ready (an eighth of what is free)"},
      {"--adapter-host-memory", "SIZE",
       "for adapters a copy away from a GPU, of all ranks together (twice that)"},
      {"--kv-memory", "SIZE", "for keys and values (at most a quarter of what is free)"},
      {"--state-memory", "SIZE",
       "for states and snapshots of recurrent layers (at most a fifth of what is free)"},
      {"--state-host-memory", "SIZE",
       "for snapshots a copy away from a GPU, of all ranks together (at most 8 GiB of each)"},
      {state_snapshots_option, "N",
       "a snapshot of a sequence's state every N tokens, or off: only where prompts and answers "
       "end "
       "(4096)"},
      {"--name", "ID", "what requests call the base (the folder's name; of a repository ORG/NAME)"},
      {"--max-queue", "N",
       "requests that may wait; 0: what finds no place at once is refused (1024)"},
      {"--max-adapters", "N", "adapters that requests may name, in memory or not (10000)"},
      {"--hf-special-text", "", "take special tokens in messages for real, as Hugging Face does"}};
  const std::vector<OptionSpec> compute = compute_option_specs();
  options.insert(options.end(), compute.begin(), compute.end());
  return options;
}

OptionSpec template_option_spec() {
  return {template_option, "[NAME=]FILE",
          "a chat template in place of the model's, or that of the adapter NAME", true};
}

Result<text::ModelText> load_text(const ModelSettings& settings) {
  MOTLEY_TRY(text::ModelText text, text::ModelText::load(settings.model));
  for (const TemplateOption& option : settings.templates) {
    auto used = option.adapter.empty() ? text.use_template(option.file)
                                       : text.use_template_of_adapter(option.adapter, option.file);
    if (!used.ok()) return std::move(used).error().within(template_option);
  }
  return text;
}

Result<std::int64_t> integer_option(const Arguments& arguments, std::string_view option,
                                    std::int64_t least, std::int64_t most, std::int64_t otherwise) {
  const std::string* const text = arguments.value(option);
  if (text == nullptr) return otherwise;
  return parse_number(*text, option, least, most);
}

Result<ModelSettings> read_model_settings(const Arguments& arguments) {
  ModelSettings settings{.model = arguments.positional(0)};
  // None: a random model of a shape.
  if (!settings.model.empty()) {
    MOTLEY_TRY(settings.model,
               find_model_folder(settings.model, arguments.command(), arguments.environment().hub));
  }
  MOTLEY_TRY_VOID(read_names(arguments, settings));
  MOTLEY_TRY(settings.engine.adapters, read_adapters(arguments, settings));
  MOTLEY_TRY_VOID(read_adapter_dir(arguments, settings));
  MOTLEY_TRY(settings.templates, read_templates(arguments, settings));
  MOTLEY_TRY(settings.engine.compute, read_compute_settings(arguments));
  MOTLEY_TRY_VOID(read_max_model_len(arguments, settings));
  if (arguments.has("--max-batch-tokens")) {
    MOTLEY_TRY(settings.engine.memory.max_batch_tokens,
               integer_option(arguments, "--max-batch-tokens", 1, max_batch_tokens, 0));
  }
  MOTLEY_TRY(settings.engine.memory.adapter_memory, read_size(arguments, "--adapter-memory"));
  MOTLEY_TRY(settings.engine.memory.adapter_host_memory,
             read_size(arguments, "--adapter-host-memory"));
  MOTLEY_TRY(settings.engine.memory.kv_memory, read_size(arguments, "--kv-memory"));
  MOTLEY_TRY(settings.engine.memory.state_memory, read_size(arguments, "--state-memory"));
  MOTLEY_TRY(settings.engine.memory.state_host_memory, read_size(arguments, "--state-host-memory"));
  MOTLEY_TRY_VOID(read_state_snapshots(arguments, settings));
  MOTLEY_TRY(settings.engine.max_queue,
             integer_option(arguments, "--max-queue", 0, max_queue, settings.engine.max_queue));
  MOTLEY_TRY(
      settings.engine.max_adapters,
      integer_option(arguments, "--max-adapters", 1, max_adapters, settings.engine.max_adapters));
  settings.special_in_untrusted = arguments.has("--hf-special-text");
  return settings;
}

}  // namespace motley::cli
