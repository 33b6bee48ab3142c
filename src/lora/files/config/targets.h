#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "text/name_pattern.h"

namespace motley::lora {

// Module names as in PEFT's lists: an entry names a module if it equals the module's name, or its
// end after a dot.
class NameList {
 public:
  NameList() = default;
  explicit NameList(const std::vector<std::string>& names) : names_(names.begin(), names.end()) {}

  bool empty() const { return names_.empty(); }
  // Whether an entry equals the whole name.
  bool holds(std::string_view name) const { return names_.contains(name); }
  bool names(std::string_view module) const;

 private:
  std::set<std::string, std::less<>> names_;
};

// A module's layer and expert numbers; negative: its name has no such number.
struct ModulePlace {
  std::int32_t layer = -1;
  std::int32_t expert = -1;
};

// The modules that adapter_config.json names, by PEFT's rules: target_modules, less exclude_modules
// and modules_to_save, in the layers of layers_to_transform.
class Targets {
 public:
  enum class Kind : std::uint8_t {
    none,        // no list at all: a file of another tool, or one that adapts only parameters
    all_linear,  // "all-linear"
    list,
    pattern,
    unknown,  // a regular expression that motley cannot run, so the modules are unknown
  };

  // `members` is the configuration's object. The cost of names() is counted in the budget, if there
  // is one; it must outlive the targets.
  static Result<Targets> parse(const json::Object& members, std::string_view where,
                               text::MatchBudget* budget = nullptr);

  Kind kind() const { return kind_; }
  bool names(std::string_view module, ModulePlace place) const;
  // Whether layers_to_transform chooses layers.
  bool selects_layers() const { return by_layer_; }
  // Whether the list names the module only by its last word, as it names every module of that word.
  bool names_by_last_word(std::string_view module) const;

 private:
  bool matches(const text::NamePattern& pattern, std::string_view name,
               std::string_view field) const;
  Result<void> parse_modules(const json::Object& members, std::string_view where);
  Result<void> parse_layers(const json::Object& members, std::string_view where);
  bool excludes(std::string_view module) const;
  bool in_layers(std::string_view module, ModulePlace place) const;

  Kind kind_ = Kind::none;
  NameList modules_;
  std::optional<text::NamePattern> pattern_;
  NameList excluded_;
  std::optional<text::NamePattern> excluded_pattern_;
  std::vector<std::string> saved_;
  bool by_layer_ = false;
  std::set<std::int64_t> layers_;
  std::vector<text::NamePattern> layer_words_;  // what precedes a layer's number; empty: any word
  text::MatchBudget* budget_ = nullptr;
};

}  // namespace motley::lora
