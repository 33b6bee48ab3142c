#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace motley::cli {

struct OptionSpec {
  std::string_view name;   // "--device"
  std::string_view value;  // what stands for its value in the help, "" for a switch
  std::string_view help;
  bool repeated = false;
};

// What a command takes, for parsing and for its help.
struct CommandSpec {
  std::string_view name;
  std::string_view summary;
  std::vector<std::string_view> positionals;  // all of them required
  std::string_view optional_positional = {};  // after these, if the command takes one
  std::vector<OptionSpec> options;
  std::vector<std::string_view> examples = {};  // calls of the program
};

class Arguments {
 public:
  // Options may stand anywhere, as "--name value" or "--name=value"; after "--" nothing is an
  // option. Refuses what the command does not take, what is missing, and options given twice.
  static Result<Arguments> parse(const CommandSpec& command, std::span<const std::string> words);

  // Empty where the optional one is not given.
  const std::string& positional(std::size_t index) const { return positionals_[index]; }
  bool has(std::string_view option) const { return options_.contains(option); }
  // The value, or null where the option is not given.
  const std::string* value(std::string_view option) const;
  std::span<const std::string> values(std::string_view option) const;

 private:
  std::vector<std::string> positionals_;
  std::map<std::string, std::vector<std::string>, std::less<>> options_;
};

// "usage: motley inspect PATH [options]" and a line for each option.
std::string usage(const CommandSpec& command);

// The candidate that a mistyped word most likely meant, if one is close.
std::optional<std::string_view> closest(std::string_view word,
                                        std::span<const std::string_view> candidates);

}  // namespace motley::cli
