#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "text/name_pattern.h"

namespace motley::quant {

// Modules that a quantisation_config names: which are quantised, and which are not.
class ModuleList {
 public:
  // How a method writes its lists.
  enum class Dialect : std::uint8_t {
    compressed_tensors,  // a name, "re:" and a pattern from the start, or a class of modules
    names,               // a name, or the start of one up to a dot
    wildcards,           // as a shell has them, "*" for any characters
    substrings,
  };
  // Of several entries that match a module the least one counts: a name before a pattern before a
  // class, patterns by their text.
  struct Match {
    enum class Kind : std::uint8_t { name, pattern, linear };
    Kind kind;
    std::string_view text;

    friend auto operator<=>(const Match&, const Match&) = default;
  };

  ModuleList() = default;
  // `list` may be null: nothing is named. `where` is its key, for errors.
  static Result<ModuleList> read(const json::Value* list, Dialect dialect, std::string_view where);
  // Every Linear.
  static ModuleList all();

  std::optional<Match> match(std::string_view module) const;
  bool has(std::string_view module) const { return match(module).has_value(); }

 private:
  struct Entry {
    Dialect dialect;
    Match::Kind kind;
    std::string text;
    text::NamePattern pattern = {};

    bool matches(std::string_view module) const;
  };

  static Result<Entry> read_entry(const std::string& text, Dialect dialect, std::string_view where);

  // Shared, because patterns are compiled and lists are copied freely.
  std::shared_ptr<const std::vector<Entry>> entries_;
};

}  // namespace motley::quant
