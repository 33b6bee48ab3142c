#include "cli/adapter_text.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <utility>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/files.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view tokenizer_name = "tokenizer.json";
// Beyond this a file is not compared; tokenizers have up to 40 MB.
constexpr std::size_t longest_tokenizer = std::size_t{128} << 20;

// The meaning of a tokenizer's file: how a trainer padded and cut its examples is none of it.
Result<json::Value> read_tokenizer(std::string_view text) {
  MOTLEY_TRY(json::Value value, json::parse(text, tokenizer_name));
  const json::Object* const object = value.if_object();
  if (object == nullptr) return value;
  json::Object kept;
  for (const json::Member& member : object->members()) {
    if (member.key != "padding" && member.key != "truncation") kept.add(member.key, member.value);
  }
  return json::Value(std::move(kept));
}

// Tokens that begin and end answers; trainers choose others for padding.
bool is_other_token(const text::TokenizerConfig& adapter, const text::TokenizerConfig& base) {
  return std::ranges::any_of(std::array{"bos_token", "eos_token"}, [&](const char* name) {
    const std::string* const own = adapter.special_token(name);
    const std::string* const served = base.special_token(name);
    return own != nullptr && (served == nullptr || *own != *served);
  });
}

bool is_other_template(const text::TokenizerConfig& adapter, const text::TokenizerConfig& base) {
  return std::ranges::any_of(adapter.templates, [&](const text::TemplateSource& own) {
    const auto served = std::ranges::find(base.templates, own.name, &text::TemplateSource::name);
    return served == base.templates.end() || served->source != own.source;
  });
}

}  // namespace

bool is_same_json(const json::Value& one, const json::Value& other) {
  if (one.kind() != other.kind()) return false;
  if (const json::Array* const array = one.if_array())
    return std::ranges::equal(*array, *other.if_array(), is_same_json);
  const json::Object* const object = one.if_object();
  if (object == nullptr) return json::write(one) == json::write(other);
  const json::Object& others = *other.if_object();
  if (object->size() != others.size()) return false;
  const auto members = object->members();
  for (std::size_t i = 0; i < members.size(); ++i) {
    // Mostly they are in the same order.
    const json::Member& opposite = others.members()[i];
    const json::Value* const value =
        opposite.key == members[i].key ? &opposite.value : others.find(members[i].key);
    if (value == nullptr || !is_same_json(members[i].value, *value)) return false;
  }
  return true;
}

AdapterText::AdapterText(fs::path base, text::TokenizerConfig served,
                         std::set<std::string> with_templates)
    : base_(std::move(base)),
      served_(std::move(served)),
      with_templates_(std::move(with_templates)) {}

bool AdapterText::tokenizer_differs(const fs::path& folder) {
  const auto own = MappedFile::open(folder / tokenizer_name, FileAccess::copied);
  const auto served = MappedFile::open(base_ / tokenizer_name);
  if (!own.ok() || !served.ok() || own->text() == served->text()) return false;
  const std::size_t content = std::hash<std::string_view>{}(own->text());
  const std::lock_guard held(lock_);
  if (const auto known = known_.find(content); known != known_.end()) return known->second;
  if (!base_tokenizer_) {
    auto read = read_tokenizer(served->text());
    base_tokenizer_ = read.ok() ? *std::move(read) : json::Value();
  }
  const auto read = read_tokenizer(own->text());
  const bool differs = !read.ok() || !is_same_json(*read, *base_tokenizer_);
  known_.emplace(content, differs);
  return differs;
}

std::vector<std::string> AdapterText::differences(const std::string& adapter,
                                                  const fs::path& folder) {
  std::vector<std::string> found;
  const auto opened = OpenFile::open(folder / tokenizer_name);
  if (opened.ok() && opened->size() <= longest_tokenizer && tokenizer_differs(folder))
    found.emplace_back(tokenizer_name);
  const auto config = text::load_tokenizer_config(folder);
  if (!config.ok()) return found;
  if (is_other_token(*config, served_)) found.emplace_back("bos_token or eos_token");
  if (!with_templates_.contains(adapter) && is_other_template(*config, served_))
    found.emplace_back("the chat template");
  return found;
}

void AdapterText::warn(const std::string& adapter, const fs::path& folder) {
  const std::vector<std::string> found = differences(adapter, folder);
  if (found.empty()) return;
  log::warning("adapter.files_ignored",
               {{"adapter", adapter},
                {"path", folder.string()},
                {"differs", join(found)},
                {"effect", "the base's are used"},
                {"advice", "--chat-template NAME=FILE serves an adapter's template"}});
}

}  // namespace motley::cli
