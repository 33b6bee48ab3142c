#include "text/tokenizer_config.h"

#include <algorithm>
#include <array>

#include "base/cat.h"
#include "base/system/files.h"
#include "text/json_file.h"

namespace motley::text {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_template = 4 << 20;
constexpr std::string_view extra_folder = "additional_chat_templates";
constexpr std::string_view extra_suffix = ".jinja";

// The special tokens that templates refer to.
constexpr std::array<std::string_view, 7> token_names = {
    "bos_token", "cls_token", "eos_token", "mask_token", "pad_token", "sep_token", "unk_token"};

void add_template(TokenizerConfig& config, TemplateSource added) {
  if (std::ranges::find(config.templates, added.name, &TemplateSource::name) ==
      config.templates.end())
    config.templates.push_back(std::move(added));
}

// A string, or an object with a content.
Result<const std::string*> token_text(const json::Value& value, std::string_view where) {
  const json::Object* const object = value.if_object();
  if (object == nullptr) return value.as_string(where);
  const json::Value* const content = object->find("content");
  if (content == nullptr)
    return Error(ErrorCode::bad_file, "a token without content", std::string(where),
                 "write the token's text as content");
  return content->as_string(cat(where, ", content"));
}

// A template, or a list of named ones.
Result<void> read_templates(const json::Value& value, std::string_view where,
                            TokenizerConfig& into) {
  if (const std::string* const source = value.if_string()) {
    add_template(into, {.name = "default", .source = *source, .where = std::string(where)});
    return {};
  }
  MOTLEY_TRY(const json::Array* list, value.as_array(where));
  for (const json::Value& each : *list) {
    MOTLEY_TRY(const json::Object* object, each.as_object(where));
    const json::Value* const name = object->find("name");
    const json::Value* const source = object->find("template");
    if (name == nullptr || source == nullptr)
      return Error(ErrorCode::bad_file, "a template without name or template", std::string(where),
                   "give both");
    MOTLEY_TRY(const std::string* name_text, name->as_string(cat(where, ", name")));
    const std::string place = cat(where, ", ", quote(*name_text));
    MOTLEY_TRY(const std::string* source_text, source->as_string(place));
    add_template(into, {.name = *name_text, .source = *source_text, .where = place});
  }
  return {};
}

Result<void> read_template_file(const fs::path& path, std::string name, TokenizerConfig& into) {
  MOTLEY_TRY(const PathKind kind, path_kind(path));
  if (kind == PathKind::missing) return {};
  auto source = read_text(path, longest_template);
  if (!source.ok()) return inside_folder(std::move(source).error());
  add_template(
      into,
      {.name = std::move(name), .source = *std::move(source), .where = printable(path.string())});
  return {};
}

Result<void> read_extra_templates(const fs::path& folder, TokenizerConfig& into) {
  MOTLEY_TRY(const PathKind kind, path_kind(folder));
  if (kind != PathKind::folder) return {};
  MOTLEY_TRY(const std::vector<std::string> files, list_folder(folder));
  for (const std::string& file : files) {
    if (!file.ends_with(extra_suffix)) continue;
    std::string name = file.substr(0, file.size() - extra_suffix.size());
    MOTLEY_TRY_VOID(read_template_file(folder / file, std::move(name), into));
  }
  return {};
}

}  // namespace

const std::string* TokenizerConfig::special_token(std::string_view name) const {
  const auto at = std::ranges::find(
      special_tokens, name, [](const auto& token) { return std::string_view(token.first); });
  return at == special_tokens.end() ? nullptr : &at->second;
}

Result<const TemplateSource*> TokenizerConfig::template_for(bool has_tools) const {
  const auto named = [&](std::string_view name) -> const TemplateSource* {
    const auto at = std::ranges::find(templates, name, &TemplateSource::name);
    return at == templates.end() ? nullptr : &*at;
  };
  const TemplateSource* chosen = has_tools ? named("tool_use") : nullptr;
  if (chosen == nullptr) chosen = named("default");
  if (chosen != nullptr) return chosen;
  if (templates.empty())
    return Error(ErrorCode::invalid_argument, "the model has no chat template", "",
                 "put one into chat_template.jinja, or send a prompt that needs none");
  std::vector<std::string> names;
  for (const TemplateSource& each : templates) names.push_back(each.name);
  return Error(ErrorCode::invalid_argument,
               cat("none of the model's chat templates is the default; they are ", join(names)), "",
               "put the default into chat_template.jinja");
}

Result<void> read_tokenizer_config(const json::Value& value, std::string_view where,
                                   TokenizerConfig& into) {
  MOTLEY_TRY(const json::Object* object, value.as_object(where));
  for (const std::string_view name : token_names) {
    const json::Value* const token = object->find_set(name);
    if (token == nullptr || into.special_token(name) != nullptr) continue;
    MOTLEY_TRY(const std::string* text, token_text(*token, cat(where, ", ", name)));
    into.special_tokens.emplace_back(name, *text);
  }
  std::ranges::sort(into.special_tokens);
  const json::Value* const templates = object->find_set("chat_template");
  if (templates == nullptr) return {};
  return read_templates(*templates, cat(where, ", chat_template"), into);
}

Result<TemplateSource> read_template_file(const fs::path& path) {
  MOTLEY_TRY(std::string source, read_text(path, longest_template));
  return TemplateSource{
      .name = "default", .source = std::move(source), .where = printable(path.string())};
}

Result<TokenizerConfig> load_tokenizer_config(const fs::path& folder) {
  TokenizerConfig config;
  MOTLEY_TRY_VOID(read_template_file(folder / "chat_template.jinja", "default", config));
  MOTLEY_TRY_VOID(read_extra_templates(folder / extra_folder, config));
  for (const char* file :
       {"tokenizer_config.json", "special_tokens_map.json", "chat_template.json"}) {
    MOTLEY_TRY(const auto value, read_json_file(folder / file));
    if (!value) continue;
    MOTLEY_TRY_VOID(read_tokenizer_config(*value, printable((folder / file).string()), config));
    if (file == std::string_view("tokenizer_config.json")) config.file = *value->if_object();
  }
  return config;
}

}  // namespace motley::text
