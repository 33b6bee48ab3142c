#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

// Names of special tokens, and chat templates, from the files beside a tokenizer.
namespace motley::text {

struct TemplateSource {
  std::string name;  // "default", "tool_use", ...
  std::string source;
  std::string where;  // its name in messages
};

struct TokenizerConfig {
  // "bos_token" and so on, by ascending name.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  // At most one of each name.
  std::vector<TemplateSource> templates;
  // The contents of tokenizer_config.json.
  json::Object file;

  // The text of a special token, or null.
  const std::string* special_token(std::string_view name) const;

  // The template for a conversation: "tool_use" if there are tools and such a template, else the
  // default.
  Result<const TemplateSource*> template_for(bool has_tools) const;
};

// From a model's folder. Tokens: tokenizer_config.json and special_tokens_map.json. The default
// template: chat_template.jinja, else tokenizer_config.json, else chat_template.json; further ones:
// additional_chat_templates/NAME.jinja. All may be absent.
Result<TokenizerConfig> load_tokenizer_config(const std::filesystem::path& folder);

// A template in a file of its own, as the default one.
Result<TemplateSource> read_template_file(const std::filesystem::path& path);

// Reads the relevant parts of a tokenizer_config.json, special_tokens_map.json or
// chat_template.json. Does not override what `into` has.
Result<void> read_tokenizer_config(const json::Value& value, std::string_view where,
                                   TokenizerConfig& into);

}  // namespace motley::text
