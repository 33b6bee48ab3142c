#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

// What stands beside a tokenizer: names of its special tokens, and chat templates.
namespace motley::text {

struct TemplateSource {
  std::string name;  // "default", "tool_use", ...
  std::string source;
  std::string where;  // what messages call it
};

struct TokenizerConfig {
  // "bos_token" and its like, by ascending name.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  // One of each name.
  std::vector<TemplateSource> templates;
  // All of tokenizer_config.json.
  json::Object file;

  // The text of a special token, or null.
  const std::string* special_token(std::string_view name) const;

  // The template for a conversation: "tool_use" where tools are given and there is one, else the
  // default.
  Result<const TemplateSource*> template_for(bool has_tools) const;
};

// From a model's folder: tokenizer_config.json and special_tokens_map.json for the tokens;
// chat_template.jinja, then tokenizer_config.json, then chat_template.json for the default
// template, additional_chat_templates/NAME.jinja for more. All of them may be absent.
Result<TokenizerConfig> load_tokenizer_config(const std::filesystem::path& folder);

// Reads what a tokenizer_config.json, special_tokens_map.json or chat_template.json holds of this.
// What `into` has already stays.
Result<void> read_tokenizer_config(const json::Value& value, std::string_view where,
                                   TokenizerConfig& into);

}  // namespace motley::text
