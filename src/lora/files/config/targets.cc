#include "lora/files/config/targets.h"

#include <algorithm>
#include <charconv>

#include "base/cat.h"

namespace motley::lora {

namespace {

constexpr std::size_t max_saved = 1024;
constexpr std::size_t max_layer_patterns = 64;
constexpr std::size_t steps_a_saved_name = 8;  // the cost of a search for its words

Error bad(std::string_view where, std::string_view key, std::string_view what) {
  return {ErrorCode::bad_file, std::string(what), cat(where, ", ", key)};
}

// A string, or an array of them.
struct Names {
  std::optional<std::string> text;
  std::vector<std::string> list;
};

Result<std::optional<Names>> read_names(const json::Object& members, std::string_view key,
                                        std::string_view where) {
  const json::Value* value = members.find_set(key);
  if (value == nullptr) return std::optional<Names>();
  Names names;
  if (const std::string* text = value->if_string()) {
    names.text = *text;
    return std::optional(std::move(names));
  }
  const json::Array* array = value->if_array();
  if (array == nullptr) return bad(where, key, "neither a string nor a list of strings");
  for (const json::Value& item : *array) {
    const std::string* text = item.if_string();
    if (text == nullptr) return bad(where, key, "holds something that is no string");
    names.list.push_back(*text);
  }
  return std::optional(std::move(names));
}

// Matches whole names; nothing if motley cannot run the expression.
std::optional<text::NamePattern> whole(std::string_view text) {
  auto pattern = text::NamePattern::compile(cat("^(?:", text, ")$"));
  if (!pattern.ok()) return std::nullopt;
  return *std::move(pattern);
}

std::optional<std::int64_t> number(std::string_view word) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < 0) return std::nullopt;
  return value;
}

bool is_all_linear(std::string_view text) {
  return std::ranges::equal(text, std::string_view("all-linear"), [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
  });
}

// Whether the dotted words occur in a name, one after the other.
bool holds_words(std::string_view name, std::string_view words) {
  for (std::size_t at = name.find(words); at != std::string_view::npos;
       at = name.find(words, at + 1)) {
    const std::size_t end = at + words.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

}  // namespace

bool NameList::names(std::string_view module) const {
  while (true) {
    if (names_.contains(module)) return true;
    const std::size_t dot = module.find('.');
    if (dot == std::string_view::npos) return false;
    module.remove_prefix(dot + 1);
  }
}

Result<Targets> Targets::parse(const json::Object& members, std::string_view where,
                               text::MatchBudget* budget) {
  Targets targets;
  targets.budget_ = budget;
  MOTLEY_TRY_VOID(targets.parse_modules(members, where));
  MOTLEY_TRY_VOID(targets.parse_layers(members, where));
  return targets;
}

Result<void> Targets::parse_modules(const json::Object& members, std::string_view where) {
  MOTLEY_TRY(const auto modules, read_names(members, "target_modules", where));
  if (modules && modules->text) {
    if (is_all_linear(*modules->text)) {
      kind_ = Kind::all_linear;
    } else {
      pattern_ = whole(*modules->text);
      kind_ = pattern_ ? Kind::pattern : Kind::unknown;
    }
  } else if (modules) {
    kind_ = Kind::list;
    modules_ = NameList(modules->list);
  }
  MOTLEY_TRY(const auto excluded, read_names(members, "exclude_modules", where));
  if (excluded && excluded->text && !excluded->text->empty()) {
    excluded_pattern_ = whole(*excluded->text);
    if (!excluded_pattern_) kind_ = Kind::unknown;
  } else if (excluded) {
    excluded_ = NameList(excluded->list);
  }
  MOTLEY_TRY(auto saved, read_names(members, "modules_to_save", where));
  if (saved) saved_ = std::move(saved->list);
  if (saved_.size() > max_saved)
    return bad(where, "modules_to_save", cat("more than ", max_saved, " names"));
  return {};
}

bool Targets::matches(const text::NamePattern& pattern, std::string_view name,
                      std::string_view field) const {
  if (budget_ != nullptr) budget_->charge(field);
  return pattern.matches_end(name, budget_);
}

Result<void> Targets::parse_layers(const json::Object& members, std::string_view where) {
  constexpr std::string_view key = "layers_to_transform";
  const json::Value* value = members.find_set(key);
  if (value == nullptr) return {};
  const auto take = [&](const json::Value& item) -> Result<void> {
    auto layer = item.as_integer(cat(where, ", ", key));
    if (!layer.ok()) return std::move(layer).error().as(ErrorCode::bad_file);
    layers_.insert(*layer);
    return {};
  };
  if (const json::Array* array = value->if_array()) {
    for (const json::Value& item : *array) MOTLEY_TRY_VOID(take(item));
  } else {
    MOTLEY_TRY_VOID(take(*value));
  }
  by_layer_ = !layers_.empty();

  MOTLEY_TRY(const auto words, read_names(members, "layers_pattern", where));
  if (!words) return {};
  std::vector<std::string> texts = words->list;
  if (words->text && !words->text->empty()) texts.push_back(*words->text);
  if (texts.size() > max_layer_patterns)
    return bad(where, "layers_pattern", cat("more than ", max_layer_patterns, " patterns"));
  for (const std::string& text : texts) {
    auto pattern = whole(text);
    if (pattern) {
      layer_words_.push_back(*std::move(pattern));
    } else {
      kind_ = Kind::unknown;
    }
  }
  return {};
}

bool Targets::excludes(std::string_view module) const {
  if (excluded_.names(module)) return true;
  if (excluded_pattern_ && matches(*excluded_pattern_, module, "exclude_modules")) return true;
  if (budget_ != nullptr && !saved_.empty()) {
    budget_->charge("modules_to_save");
    if (!budget_->take(steps_a_saved_name * saved_.size())) return true;
  }
  return std::ranges::any_of(saved_,
                             [&](const std::string& saved) { return holds_words(module, saved); });
}

// PEFT up to 0.19 takes the last number of a name for its layer, which is the expert's number if
// experts are modules; later releases take the first. Both are accepted.
bool Targets::in_layers(std::string_view module, ModulePlace place) const {
  if (!by_layer_) return true;
  if (layer_words_.empty()) return layers_.contains(place.layer) || layers_.contains(place.expert);
  // The first pattern that is followed by a number decides.
  for (const text::NamePattern& pattern : layer_words_) {
    bool decides = false;
    std::string_view before;
    std::string_view left = module;
    for (std::size_t dot = left.find('.'); dot != std::string_view::npos; dot = left.find('.')) {
      const std::string_view word = left.substr(0, dot);
      const auto layer = number(word);
      if (layer && matches(pattern, before, "layers_pattern")) {
        if (layers_.contains(*layer)) return true;
        decides = true;
      }
      before = word;
      left.remove_prefix(dot + 1);
    }
    if (decides) return false;
  }
  return false;
}

bool Targets::names(std::string_view module, ModulePlace place) const {
  if (excludes(module)) return false;
  switch (kind_) {
    case Kind::none:
    case Kind::all_linear:
      return in_layers(module, place);
    case Kind::list:
      // Names that are given whole are not restricted to layers.
      return modules_.holds(module) || (modules_.names(module) && in_layers(module, place));
    case Kind::pattern:
      return matches(*pattern_, module, "target_modules");
    case Kind::unknown:
      break;
  }
  return false;
}

bool Targets::names_by_last_word(std::string_view module) const {
  if (kind_ != Kind::list) return false;
  while (true) {
    const std::size_t dot = module.find('.');
    if (dot == std::string_view::npos) return modules_.holds(module);
    if (modules_.holds(module)) return false;
    module.remove_prefix(dot + 1);
  }
}

}  // namespace motley::lora
