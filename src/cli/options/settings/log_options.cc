#include "cli/options/settings/log_options.h"

#include <utility>

#include "base/cat.h"
#include "base/log.h"

namespace motley::cli {

std::vector<OptionSpec> log_option_specs() {
  return {{"--log-level", "L", "debug, info, warning, error or off (info)"},
          {"--log-format", "F", "text, or json: one object a line (text)"}};
}

void prepare_log(std::span<const std::string> words) {
  constexpr std::string_view option = "--log-format";
  bool json = false;
  for (std::size_t i = 0; i < words.size(); ++i)
    json = json || words[i] == "--log-format=json" ||
           (words[i] == option && i + 1 < words.size() && words[i + 1] == "json");
  log::Settings settings = log::settings();
  settings.format = json ? log::Format::json : log::Format::text;
  log::configure(std::move(settings));
}

Result<void> configure_log(const Arguments& arguments) {
  log::Settings settings = log::settings();
  settings.level = log::Level::info;
  settings.format = log::Format::text;
  if (const std::string* const name = arguments.value("--log-level")) {
    auto level = log::parse_level(*name);
    if (!level.ok()) return std::move(level).error().within("--log-level");
    settings.level = *level;
  }
  if (const std::string* const name = arguments.value("--log-format")) {
    auto format = log::parse_format(*name);
    if (!format.ok()) return std::move(format).error().within("--log-format");
    settings.format = *format;
  }
  log::configure(std::move(settings));
  return {};
}

void log_ignored(const Arguments& arguments) {
  if (arguments.ignored().empty()) return;
  std::string options;
  for (const IgnoredOption& each : arguments.ignored())
    options += cat(options.empty() ? "" : "; ", each.written, ": ", each.reason);
  log::info("serve.options_ignored", {{"options", options}});
}

}  // namespace motley::cli
