#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/options/arguments/arguments.h"
#include "cli/options/arguments/config_file.h"
#include "cli/options/foreign/foreign_options.h"

namespace motley::cli {

// Reads a command's arguments from its words and from a configuration file.
class ArgumentReader {
 public:
  // The command must outlive the reader.
  explicit ArgumentReader(const CommandSpec& command) : command_(command) {}

  Result<void> read_words(std::span<const std::string> words);
  // The value of --config among the words, or null.
  const std::string* config_file() const;
  Result<void> read_file(std::span<const FileOption> options);
  // Both together, with other servers' options in the form of ours.
  Result<Arguments> finish();

 private:
  using Options = std::map<std::string, std::vector<std::string>, std::less<>>;

  struct Source {
    std::vector<std::string> positionals;
    Options options;
    std::vector<GivenForeign> foreign;
  };

  // The words that are still to be read.
  struct Words {
    std::span<const std::string> words;
    std::size_t next = 0;

    bool empty() const { return next == words.size(); }
    const std::string& peek() const { return words[next]; }
    const std::string& take() { return words[next++]; }
  };

  const OptionSpec* find(std::string_view name) const;
  // Nothing if the command does not take it.
  std::optional<ForeignName> find_others(std::string_view name) const;
  std::size_t max_positionals() const;
  Error wrong_call(std::string what, std::string fix) const;
  Error unknown_option(std::string_view name, std::string where) const;

  Result<void> read_option(Words& words);
  Result<void> read_own(const OptionSpec& option, std::optional<std::string> value, Words& words);
  Result<void> read_others(GivenForeign given, std::optional<std::string> value, Words& words);
  Result<void> read_entry(const FileOption& entry);
  Result<void> add_positional(Source& source, std::string value, const std::string& where);
  static Result<void> add(Source& source, const OptionSpec& option, std::string value,
                          const std::string& where);
  Result<void> translate(Source& source, std::string_view model);

  const CommandSpec& command_;
  Source line_;
  Source file_;
  std::vector<IgnoredOption> ignored_;
  std::string list_before_end_;  // an option whose values were the last words
};

}  // namespace motley::cli
