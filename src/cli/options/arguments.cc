#include "cli/options/arguments.h"

#include <algorithm>

#include "base/cat.h"
#include "base/spelling.h"
#include "cli/options/foreign_options.h"

namespace motley::cli {
namespace {

Error wrong_call(std::string what, const CommandSpec& command, std::string fix) {
  return {ErrorCode::invalid_argument, std::move(what), cat("motley ", command.name),
          std::move(fix)};
}

std::string see_help(const CommandSpec& command) {
  return cat("see motley ", command.name, " --help");
}

const OptionSpec* find(const CommandSpec& command, std::string_view name) {
  const auto at = std::ranges::find(command.options, name, &OptionSpec::name);
  return at == command.options.end() ? nullptr : &*at;
}

Error unknown_option(const CommandSpec& command, std::string_view name) {
  if (std::string advice = foreign_option_advice(name); !advice.empty())
    return wrong_call(cat("unknown option ", quote(name)), command, std::move(advice));
  std::vector<std::string_view> names;
  names.reserve(command.options.size());
  for (const OptionSpec& option : command.options) names.push_back(option.name);
  const auto meant = closest(name, names);
  return wrong_call(cat("unknown option ", quote(name)), command,
                    meant ? cat("did you mean ", *meant, "?") : see_help(command));
}

}  // namespace

Result<Arguments> Arguments::parse(const CommandSpec& command, std::span<const std::string> words) {
  Arguments arguments;
  arguments.command_ = command.name;
  const std::size_t most =
      command.positionals.size() + (command.optional_positional.empty() ? 0 : 1);
  bool only_positionals = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--" && !only_positionals) {
      only_positionals = true;
      continue;
    }
    if (only_positionals || !word.starts_with("-") || word == "-") {
      if (arguments.positionals_.size() == most)
        return wrong_call(cat("one argument too many, ", quote(word)), command, see_help(command));
      arguments.positionals_.emplace_back(word);
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const OptionSpec* const option = find(command, name);
    if (option == nullptr) return unknown_option(command, name);
    std::string value;
    if (option->value.empty()) {
      if (equals != std::string_view::npos)
        return wrong_call(cat(name, " takes no value"), command, cat("write ", name, " alone"));
    } else if (equals != std::string_view::npos) {
      value = word.substr(equals + 1);
    } else if (i + 1 < words.size()) {
      value = words[++i];
    } else {
      return wrong_call(cat(name, " needs a value"), command,
                        cat("write ", name, " ", option->value));
    }
    std::vector<std::string>& given = arguments.options_[std::string(name)];
    if (!given.empty() && !option->repeated)
      return wrong_call(cat(name, " is given twice"), command, "keep one of them");
    given.push_back(std::move(value));
  }
  if (arguments.positionals_.size() < command.positionals.size())
    return wrong_call(cat("no ", command.positionals[arguments.positionals_.size()]), command,
                      see_help(command));
  arguments.positionals_.resize(most);
  return arguments;
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
