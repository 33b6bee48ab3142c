#include "cli/options/arguments/arguments.h"

#include <algorithm>

#include "base/cat.h"
#include "cli/options/arguments/argument_reader.h"
#include "cli/options/arguments/config_file.h"

namespace motley::cli {

Result<Arguments> Arguments::parse(const CommandSpec& command, std::span<const std::string> words) {
  ArgumentReader reader(command);
  MOTLEY_TRY_VOID(reader.read_words(words));
  if (const std::string* const file = reader.config_file(); file != nullptr) {
    MOTLEY_TRY(const std::vector<FileOption> options, read_config_file(*file));
    MOTLEY_TRY_VOID(reader.read_file(options));
  }
  return reader.finish();
}

const std::string* Arguments::value(std::string_view option) const {
  const auto at = options_.find(option);
  return at == options_.end() ? nullptr : &at->second.front();
}

std::span<const std::string> Arguments::values(std::string_view option) const {
  const auto at = options_.find(option);
  if (at == options_.end()) return {};
  return at->second;
}

std::string usage(const CommandSpec& command) {
  std::string text = cat("usage: motley ", command.name);
  for (const std::string_view positional : command.positionals) text += cat(" ", positional);
  if (!command.optional_positional.empty()) text += cat(" [", command.optional_positional, "]");
  if (!command.options.empty()) text += " [options]";
  text += cat("\n\n", command.summary, "\n");
  if (command.options.empty()) return text;

  text += "\noptions:\n";
  std::size_t widest = 0;
  const auto left_side = [](const OptionSpec& option) {
    return option.value.empty() ? std::string(option.name) : cat(option.name, " ", option.value);
  };
  for (const OptionSpec& option : command.options)
    widest = std::max(widest, left_side(option).size());
  for (const OptionSpec& option : command.options) {
    const std::string left = left_side(option);
    text += cat("  ", left, std::string(widest - left.size() + 2, ' '), option.help, "\n");
  }
  if (!command.examples.empty()) text += "\nexamples:\n";
  for (const std::string_view example : command.examples) text += cat("  ", example, "\n");
  return text;
}

}  // namespace motley::cli
