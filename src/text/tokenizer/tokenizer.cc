#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/files.h"
#include "text/json_file.h"
#include "text/stream_decoder.h"
#include "text/tokenizer/config_tokens.h"
#include "text/tokenizer/parts.h"

namespace motley::text {
namespace {

// Fields for other programs are accepted: texts are neither truncated nor padded here.
constexpr std::string_view known_sections[] = {"version",        "truncation", "padding",
                                               "added_tokens",   "normalizer", "pre_tokenizer",
                                               "post_processor", "decoder",    "model"};

Result<void> check_sections(const json::Object& file, std::string_view where) {
  for (const json::Member& member : file.members()) {
    if (std::ranges::find(known_sections, member.key) != std::end(known_sections)) continue;
    return Error(ErrorCode::unsupported, cat("has the unknown section ", quote(member.key)),
                 std::string(where), "remove it if it means nothing");
  }
  const json::Value* version = file.find("version");
  const std::string* text = version == nullptr ? nullptr : version->if_string();
  if (version != nullptr && (text == nullptr || *text != "1.0"))
    return Error(ErrorCode::unsupported, cat("has the version ", printable(json::write(*version))),
                 std::string(where), "motley reads version 1.0");
  return {};
}

Error no_tokenizer(const std::filesystem::path& folder) {
  const auto ranks = path_kind(folder / "tiktoken.model");
  // Their pattern and special tokens are in the release's Python.
  const bool has_ranks = ranks.ok() && *ranks == PathKind::file;
  return {ErrorCode::bad_file,
          has_ranks ? "has no tokenizer.json, but tiktoken.model" : "has no tokenizer.json",
          printable(folder.string()),
          has_ranks
              ? "make one with convert_tiktoken_to_fast of transformers, as "
                "docs/guide/serving.md shows"
              : "copy it from where the model came from, or save the tokenizer as a fast one"};
}

}  // namespace

std::unique_ptr<EncodeWorkspace> WorkspacePool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto workspace = std::move(idle_.back());
      idle_.pop_back();
      return workspace;
    }
  }
  return std::make_unique<EncodeWorkspace>();
}

void WorkspacePool::give_back(std::unique_ptr<EncodeWorkspace> workspace) {
  const std::lock_guard lock(mutex_);
  if (idle_.size() < max_kept) idle_.push_back(std::move(workspace));
}

const AddedToken* TokenizerParts::added_token(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= added_by_id.size()) return nullptr;
  const std::int32_t place = added_by_id[static_cast<std::size_t>(id)];
  return place < 0 ? nullptr : &added.tokens()[static_cast<std::size_t>(place)];
}

std::optional<std::string_view> TokenizerParts::token_to_decode(std::int32_t id,
                                                                bool skip_special) const {
  const AddedToken* token = added_token(id);
  if (token == nullptr) return model.vocabulary().token(id);
  if (skip_special) {
    // Whether it is special depends on the token that its normalized text spells.
    const AddedToken* read_as = added.find(token->normalized_content);
    if (read_as != nullptr && read_as->special) return std::nullopt;
  }
  return token->normalized_content;
}

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::parse(std::string_view text, std::string_view where) {
  MOTLEY_TRY(const json::Value value, json::parse(text, where));
  MOTLEY_TRY(const json::Object* file, value.as_object(where));
  return read(*file, file->find("added_tokens"), where);
}

Result<Tokenizer> Tokenizer::read(const json::Object& file, const json::Value* added_tokens,
                                  std::string_view where) {
  MOTLEY_TRY_VOID(check_sections(file, where));
  const auto place = [&](std::string_view section) { return cat(where, ", ", section); };
  const json::Value* model = file.find("model");
  if (model == nullptr)
    return Error(ErrorCode::bad_file, "has no section model", std::string(where),
                 "save the tokenizer again with a current version of its library");

  auto parts = std::make_unique<TokenizerParts>();
  MOTLEY_TRY(parts->normalizer, Normalizer::parse(file.find("normalizer"), place("normalizer")));
  MOTLEY_TRY(parts->pre_tokenizer,
             PreTokenizer::parse(file.find("pre_tokenizer"), place("pre_tokenizer")));
  MOTLEY_TRY(parts->model, Bpe::parse(*model, parts->pre_tokenizer.leaves_bytes(), place("model")));
  MOTLEY_TRY(parts->added, AddedTokens::parse(added_tokens, parts->model.vocabulary(),
                                              parts->normalizer, place("added_tokens")));
  MOTLEY_TRY(parts->post_processor,
             PostProcessor::parse(file.find("post_processor"), place("post_processor")));
  MOTLEY_TRY(parts->decoder, Decoder::parse(file.find("decoder"), place("decoder")));

  std::int32_t end = parts->model.vocabulary().end();
  for (const AddedToken& token : parts->added.tokens()) end = std::max(end, token.id + 1);
  if (parts->post_processor.largest_id() >= end)
    return Error(
        ErrorCode::bad_file,
        cat("adds the token ", parts->post_processor.largest_id(), ", and there are ", end),
        place("post_processor"), "add the token to added_tokens");
  parts->words_are_tokens = parts->pre_tokenizer.keeps_all() && parts->model.knows_all_bytes();
  parts->added_by_id.assign(static_cast<std::size_t>(end), -1);
  parts->special.assign(static_cast<std::size_t>(end), false);
  for (std::size_t i = 0; i < parts->added.tokens().size(); ++i) {
    const AddedToken& token = parts->added.tokens()[i];
    const auto id = static_cast<std::size_t>(token.id);
    parts->added_by_id[id] = static_cast<std::int32_t>(i);
    parts->special[id] = token.special;
    if (token.special && parts->model.vocabulary().token(token.id)) parts->model_has_special = true;
  }
  return Tokenizer(std::move(parts));
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  MOTLEY_TRY(const PathKind standing, path_kind(folder));
  if (standing != PathKind::folder)
    return Error(ErrorCode::bad_file, "no such folder", printable(folder.string()),
                 "name a model's folder");
  const std::filesystem::path path = folder / "tokenizer.json";
  MOTLEY_TRY(const PathKind kind, path_kind(path));
  if (kind == PathKind::missing) return no_tokenizer(folder);
  MOTLEY_TRY(const MappedFile mapped, MappedFile::open(path, FileAccess::copied));
  const std::string where = printable(path.string());
  MOTLEY_TRY(const json::Value value, json::parse(mapped.text(), where));
  MOTLEY_TRY(const json::Object* file, value.as_object(where));
  const json::Value* added_tokens = file->find("added_tokens");
  MOTLEY_TRY(const auto config, read_json_file(folder / "tokenizer_config.json"));
  if (!config) return read(*file, added_tokens, where);
  MOTLEY_TRY(const json::Value merged,
             with_config_tokens(added_tokens, *config,
                                printable((folder / "tokenizer_config.json").string())));
  return read(*file, &merged, where);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  for (const std::int32_t id : ids) decoder.take(id);
  return decoder.finish();
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  if (const AddedToken* added = parts_->added.find(token)) return added->id;
  return parts_->model.vocabulary().find(token);
}

std::optional<std::string_view> Tokenizer::token_of(std::int32_t id) const {
  if (const AddedToken* added = parts_->added_token(id)) return added->content;
  return parts_->model.vocabulary().token(id);
}

std::string Tokenizer::bytes_of(std::int32_t id) const {
  const auto token = parts_->token_to_decode(id, false);
  return token ? parts_->decoder.bytes_of(*token) : std::string();
}

bool Tokenizer::is_added(std::int32_t id) const { return parts_->added_token(id) != nullptr; }

bool Tokenizer::is_special(std::int32_t id) const {
  const AddedToken* added = parts_->added_token(id);
  return added != nullptr && added->special;
}

std::int32_t Tokenizer::size() const {
  return static_cast<std::int32_t>(parts_->added_by_id.size());
}

}  // namespace motley::text
