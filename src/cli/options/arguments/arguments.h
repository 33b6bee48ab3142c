#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/options/arguments/environment.h"

namespace motley::cli {

struct OptionSpec {
  std::string_view name;   // "--device"
  std::string_view value;  // the name of its value in the help; "" for a switch
  std::string_view help;
  bool repeated = false;
};

// Which options of other servers (foreign_options.h) a command takes, beside its own.
enum class OthersOptions : std::uint8_t {
  advised,  // none: an error says what they are here
  mapped,   // those that are mapped onto one of its own
  all
};

// A command's arguments, for parsing and for its help.
struct CommandSpec {
  std::string_view name;
  std::string_view summary;
  std::vector<std::string_view> positionals;  // all required
  std::string_view optional_positional = {};  // after these; optional
  std::vector<OptionSpec> options;
  std::vector<std::string_view> examples = {};  // calls of the program
  OthersOptions others = OthersOptions::advised;
};

// An option of another server that has no effect.
struct IgnoredOption {
  std::string written;
  std::string_view reason;
};

class Arguments {
 public:
  // Options may be anywhere, as "--name value" or "--name=value"; nothing after "--" is an option.
  // Names may have '_' for '-'. Refuses unknown, missing and duplicate arguments. If the command
  // has the option --config, reads that file (config_file.h): what the words name replaces what the
  // file names.
  static Result<Arguments> parse(const CommandSpec& command, std::span<const std::string> words);

  // The name of the command that was called.
  std::string_view command() const { return command_; }
  // Empty if the optional one is absent.
  const std::string& positional(std::size_t index) const { return positionals_[index]; }
  bool has(std::string_view option) const { return options_.contains(option); }
  // The value, or null if the option is absent.
  const std::string* value(std::string_view option) const;
  std::span<const std::string> values(std::string_view option) const;
  // What the environment says beside the command line; nothing until it is set.
  const Environment& environment() const { return environment_; }
  void set_environment(const Environment& environment) { environment_ = environment; }
  std::span<const IgnoredOption> ignored() const { return ignored_; }

 private:
  friend class ArgumentReader;

  std::string_view command_;
  std::vector<std::string> positionals_;
  std::map<std::string, std::vector<std::string>, std::less<>> options_;
  Environment environment_;
  std::vector<IgnoredOption> ignored_;
};

// "usage: motley inspect PATH [options]" and a line for each option.
std::string usage(const CommandSpec& command);

}  // namespace motley::cli
