#include "cli/options/foreign/foreign_options.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/cat.h"
#include "base/json/json.h"

namespace motley::cli {
namespace {

// Of llama-server: advice alone.
struct LlamaOption {
  std::string_view name;
  std::string_view here;  // after "is"
};

constexpr std::string_view is_model = "the first word here: motley serve MODEL";

constexpr std::array llama_options = {
    LlamaOption{"-m", is_model},
    LlamaOption{"--lora", "--adapter NAME=PATH here"},
    LlamaOption{"--alias", "--name ID here"},
    LlamaOption{"--ctx-size", "--max-model-len N here"},
    LlamaOption{"-c", "--max-model-len N here"},
    LlamaOption{"--n-gpu-layers", "--device cuda here, for all layers"},
    LlamaOption{"-ngl", "--device cuda here, for all layers"},
    LlamaOption{"-p", "the last word of motley ask URL PROMPT here"},
};

const ForeignOption* find_name(std::string_view name) {
  const auto options = foreign_options();
  const auto at = std::ranges::find_if(options, [&](const ForeignOption& option) {
    return option.name == name || (!option.short_name.empty() && option.short_name == name);
  });
  return at == options.end() ? nullptr : &*at;
}

bool is_same_path(std::string_view one, std::string_view other) {
  namespace fs = std::filesystem;
  const auto plain = [](std::string_view path) {
    const fs::path normal = fs::path(path).lexically_normal();
    return normal.has_filename() ? normal : normal.parent_path();
  };
  return plain(one) == plain(other);
}

const ForeignValue* find_value(const GivenForeign& given, std::string_view model) {
  const ForeignOption& option = *given.name.option;
  if (given.values.size() != 1) return nullptr;
  const auto at = std::ranges::find_if(option.values, [&](const ForeignValue& each) {
    if (each.value == model_itself) return is_same_path(given.values.front(), model);
    return each.value == given.values.front();
  });
  return at == option.values.end() ? nullptr : &*at;
}

Error refusal(const GivenForeign& given, std::string_view why, std::string_view fix) {
  const ForeignOption& option = *given.name.option;
  std::string what = given.written;
  if (option.arity == ForeignArity::one && !option.values.empty() && !given.values.empty())
    what += cat(" ", printable(given.values.front()));
  return {ErrorCode::invalid_argument, cat(what, " ", why), given.where, std::string(fix)};
}

// "--tool-form hermes", or an option alone.
ForeignMeaning mapped_words(std::string_view words) {
  const std::size_t space = words.find(' ');
  ForeignMeaning meaning{.use = ForeignUse::mapped, .option = words.substr(0, space)};
  if (space != std::string_view::npos) meaning.values.emplace_back(words.substr(space + 1));
  return meaning;
}

// The strings of a list in JSON; nothing for other text.
std::optional<std::vector<std::string>> strings_of_json(const std::string& text) {
  if (!text.starts_with('[')) return std::nullopt;
  const auto parsed = json::parse(text, "list");
  const json::Array* const list = parsed.ok() ? parsed->if_array() : nullptr;
  if (list == nullptr) return std::nullopt;
  std::vector<std::string> strings;
  for (const json::Value& each : *list) {
    const std::string* const string = each.if_string();
    if (string == nullptr) return std::nullopt;
    strings.push_back(*string);
  }
  return strings;
}

// vLLM writes some lists as JSON: --allowed-origins '["*"]'.
std::vector<std::string> unfold(const std::vector<std::string>& values) {
  std::vector<std::string> all;
  for (const std::string& value : values) {
    std::vector<std::string> strings = strings_of_json(value).value_or(std::vector{value});
    all.insert(all.end(), strings.begin(), strings.end());
  }
  return all;
}

}  // namespace

std::optional<ForeignName> find_foreign(std::string_view name) {
  const std::string_view whole = name.substr(0, name.find('.'));
  const bool dotted = whole.size() < name.size();
  if (const ForeignOption* const option = find_name(whole); option != nullptr) {
    const bool has_parts = option->arity == ForeignArity::one && option->use != ForeignUse::mapped;
    if (dotted && !has_parts) return std::nullopt;
    return ForeignName{.option = option, .dotted = dotted};
  }
  constexpr std::string_view no = "--no-";
  if (dotted || !name.starts_with(no)) return std::nullopt;
  const ForeignOption* const option = find_name(cat("--", name.substr(no.size())));
  if (option == nullptr || option->arity != ForeignArity::none) return std::nullopt;
  return ForeignName{.option = option, .negated = true};
}

Result<ForeignMeaning> meaning_of(const GivenForeign& given, std::string_view model) {
  const ForeignOption& option = *given.name.option;
  const bool is_switch = option.arity == ForeignArity::none;
  const bool off = is_switch && given.values.front() == "false";
  if (const ForeignValue* const value = find_value(given, model); value != nullptr) {
    if (value->use == ForeignUse::refused) return refusal(given, value->here, option.fix);
    if (value->use == ForeignUse::mapped) return mapped_words(value->here);
    return ForeignMeaning{.reason = value->here};
  }
  switch (option.use) {
    case ForeignUse::refused:
      if (off) return ForeignMeaning{.reason = "it is so already"};
      return refusal(given, option.here, option.fix);
    case ForeignUse::ignored:
      return ForeignMeaning{.reason = option.here};
    case ForeignUse::mapped:
      break;
  }
  if (off) return ForeignMeaning{.use = ForeignUse::mapped};
  ForeignMeaning meaning{.use = ForeignUse::mapped, .option = option.here};
  if (option.arity == ForeignArity::several)
    meaning.values = unfold(given.values);
  else if (!is_switch)
    meaning.values = given.values;
  return meaning;
}

std::string foreign_option_advice(std::string_view option) {
  if (const auto found = find_foreign(option); found) {
    const ForeignOption& row = *found->option;
    const std::string name = cat("vLLM's ", row.name);
    switch (row.use) {
      case ForeignUse::mapped:
        return cat(name, " is ", row.here, " here");
      case ForeignUse::ignored:
        return cat(name, " has no effect here: ", row.here);
      case ForeignUse::refused:
        return cat(name, " ", row.here, ": ", row.fix);
    }
  }
  const auto llama = std::ranges::find(llama_options, option, &LlamaOption::name);
  if (llama == llama_options.end()) return {};
  return cat("llama-server's ", llama->name, " is ", llama->here);
}

}  // namespace motley::cli
