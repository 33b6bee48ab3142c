#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options/adapters/adapter_dir.h"
#include "cli/options/adapters/adapter_option.h"
#include "cli/options/arguments/arguments.h"
#include "cli/options/settings/compute_settings.h"
#include "serving/engine_settings.h"
#include "text/model_text.h"

namespace motley::cli {

// --chat-template [NAME=]FILE
struct TemplateOption {
  std::string adapter;  // empty: the base's
  std::filesystem::path file;
};

// The model and its adapters, as set by the options of commands that run an engine.
struct ModelSettings {
  std::filesystem::path model;
  std::string name;  // --name, or else the folder's name
  // Other names of the base in requests: of vLLM's --served-model-name all but the first.
  std::vector<std::string> aliases = {};
  std::vector<std::string> names() const {
    std::vector<std::string> all = {name};
    all.insert(all.end(), aliases.begin(), aliases.end());
    return all;
  }
  std::optional<AdapterDir> adapter_dir = {};  // its adapters are among the engine's
  std::vector<TemplateOption> templates = {};
  bool special_in_untrusted = false;
  serving::EngineSettings engine = {};
};

// The options that set them.
std::vector<OptionSpec> model_option_specs();

// --chat-template, of the commands that hold conversations.
OptionSpec template_option_spec();

Result<ModelSettings> read_model_settings(const Arguments& arguments);

// The value of --max-model-len: a number, 32K (1024) or 32k (1000); "auto" and -1: nothing.
Result<std::optional<std::int64_t>> parse_max_model_len(std::string_view text);

// The model's text, with the templates that the settings name.
Result<text::ModelText> load_text(const ModelSettings& settings);

// An integer option, or the default if it is absent.
Result<std::int64_t> integer_option(const Arguments& arguments, std::string_view option,
                                    std::int64_t least, std::int64_t most, std::int64_t otherwise);

}  // namespace motley::cli
