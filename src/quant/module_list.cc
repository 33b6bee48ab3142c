#include "quant/module_list.h"

#include <utility>

#include "base/cat.h"

namespace motley::quant {
namespace {

// As fnmatch without sets: "*" stands for any characters, "?" for one.
bool matches_wildcards(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t behind_star = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      behind_star = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++behind_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace

bool ModuleList::Entry::matches(std::string_view module) const {
  switch (kind) {
    case Match::Kind::linear:
      return true;
    case Match::Kind::pattern:
      if (dialect == Dialect::wildcards) return matches_wildcards(text, module);
      if (dialect == Dialect::substrings) return module.find(text) != std::string_view::npos;
      return pattern.matches_start(module);
    case Match::Kind::name:
      break;
  }
  if (module == text) return true;
  // "model.layers.0.self_attn" stands for its parts.
  return dialect == Dialect::names && module.starts_with(text) && module[text.size()] == '.';
}

Result<ModuleList::Entry> ModuleList::read_entry(const std::string& text, Dialect dialect,
                                                 std::string_view where) {
  using Kind = Match::Kind;
  if (dialect == Dialect::wildcards || dialect == Dialect::substrings)
    return Entry{.dialect = dialect, .kind = Kind::pattern, .text = text};
  if (dialect == Dialect::names || !text.starts_with("re:")) {
    const bool is_class = dialect == Dialect::compressed_tensors && text == "Linear";
    return Entry{.dialect = dialect, .kind = is_class ? Kind::linear : Kind::name, .text = text};
  }
  auto pattern = text::NamePattern::compile(std::string_view(text).substr(3));
  if (!pattern.ok()) return std::move(pattern).error().within(cat("quantization_config, ", where));
  return Entry{
      .dialect = dialect, .kind = Kind::pattern, .text = text, .pattern = *std::move(pattern)};
}

Result<ModuleList> ModuleList::read(const json::Value* list, Dialect dialect,
                                    std::string_view where) {
  ModuleList read;
  if (list == nullptr) return read;
  MOTLEY_TRY(const json::Array* entries, list->as_array(where));
  std::vector<Entry> all;
  for (const json::Value& value : *entries) {
    MOTLEY_TRY(const std::string* text, value.as_string(where));
    MOTLEY_TRY(Entry entry, read_entry(*text, dialect, where));
    all.push_back(std::move(entry));
  }
  read.entries_ = std::make_shared<const std::vector<Entry>>(std::move(all));
  return read;
}

ModuleList ModuleList::all() {
  ModuleList list;
  std::vector<Entry> entries;
  entries.push_back(
      {.dialect = Dialect::compressed_tensors, .kind = Match::Kind::linear, .text = "Linear"});
  list.entries_ = std::make_shared<const std::vector<Entry>>(std::move(entries));
  return list;
}

std::optional<ModuleList::Match> ModuleList::match(std::string_view module) const {
  std::optional<Match> best;
  if (entries_ == nullptr) return best;
  for (const Entry& entry : *entries_) {
    const Match match{entry.kind, entry.text};
    if (entry.matches(module) && (!best || match < *best)) best = match;
  }
  return best;
}

}  // namespace motley::quant
