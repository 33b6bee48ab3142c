#include "cli/options/named_folder.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/ascii.h"
#include "base/cat.h"
#include "base/json/json.h"
#include "base/spelling.h"
#include "base/system/files.h"
#include "cli/options/adapter_option.h"
#include "cli/options/arguments.h"
#include "lora/files/load.h"
#include "tensor/safetensors/checkpoint.h"
#include "tensor/safetensors/other_files.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_reference = 4096;
constexpr std::size_t longest_adapter_config = std::size_t{16} << 20;
constexpr std::string_view model_config = "config.json";
constexpr std::string_view adapter_config = "adapter_config.json";
constexpr std::string_view hub_prefix = "models--";

Error about(const fs::path& path, ErrorCode code, std::string what, std::string fix) {
  return {code, std::move(what), printable(path.native()), std::move(fix)};
}

bool is_there(const fs::path& path) {
  const auto kind = path_kind(path);
  return kind.ok() && *kind != PathKind::missing;
}

bool is_folder(const fs::path& path) {
  const auto kind = path_kind(path);
  return kind.ok() && *kind == PathKind::folder;
}

// "models--ORG--NAME" -> "ORG/NAME"; empty for other names.
std::string repository_of(std::string_view folder) {
  if (!folder.starts_with(hub_prefix)) return {};
  std::string name(folder.substr(hub_prefix.size()));
  if (const std::size_t dashes = name.find("--"); dashes != std::string::npos)
    name.replace(dashes, 2, "/");
  return name;
}

Error no_folder(const fs::path& path) {
  if (is_repository_name(path))
    return about(path, ErrorCode::not_found, "no such folder",
                 cat("motley downloads nothing: hf download ", printable(path.native()),
                     " --local-dir DIR, and name DIR"));
  return about(path, ErrorCode::not_found, "no such folder", "check the path");
}

Error file_for_folder(const fs::path& path) {
  const auto other = tensor::describe_other_file(path);
  if (other && other->code() == ErrorCode::unsupported) return *other;
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  return about(path, ErrorCode::invalid_argument, "a file, and a folder is needed",
               cat("name its folder, ", printable(parent.native())));
}

// The snapshot of a repository in a cache; nothing if the folder is no such repository.
Result<std::optional<fs::path>> snapshot_of(const fs::path& folder) {
  std::error_code failure;
  const fs::path whole = fs::canonical(folder, failure);
  const std::string name = repository_of(whole.filename().native());
  if (failure || name.empty() || !is_folder(whole / "snapshots")) return std::optional<fs::path>();
  if (const auto main = read_text(whole / "refs/main", longest_reference); main.ok()) {
    const fs::path snapshot = whole / "snapshots" / main->substr(0, main->find_first_of("\r\n "));
    if (is_folder(snapshot)) return std::optional(snapshot);
  }
  MOTLEY_TRY(const std::vector<std::string> snapshots, list_folder(whole / "snapshots"));
  if (snapshots.size() == 1) return std::optional(whole / "snapshots" / snapshots.front());
  return about(folder, ErrorCode::bad_file,
               cat("a cache of ", printable(name), " without the snapshot of its branch main"),
               snapshots.empty() ? cat("fetch it: hf download ", printable(name))
                                 : cat("name one of snapshots/: ", printable(join(snapshots))));
}

// A folder that is there and can be read, with its contents.
struct Listed {
  fs::path folder;
  std::vector<std::string> names;

  bool has(std::string_view name) const { return std::ranges::find(names, name) != names.end(); }
};

Result<Listed> list(const fs::path& path) {
  MOTLEY_TRY(const PathKind kind, path_kind(path));
  if (kind == PathKind::missing) return no_folder(path);
  if (kind == PathKind::file) return file_for_folder(path);
  if (kind == PathKind::other)
    return about(path, ErrorCode::invalid_argument, "neither a file nor a folder", "name a folder");
  MOTLEY_TRY(const auto snapshot, snapshot_of(path));
  Listed listed{.folder = snapshot.value_or(path)};
  MOTLEY_TRY(listed.names, list_folder(listed.folder));
  return listed;
}

// A clone without Git LFS has small texts in place of large files.
Result<void> refuse_pointers(const Listed& listed) {
  for (const std::string& name : listed.names) {
    if (!name.ends_with(".safetensors") && !name.ends_with(".json")) continue;
    if (auto pointer = tensor::describe_pointer(listed.folder / name)) return *pointer;
  }
  return {};
}

// Folders in this one that hold a file of that name, in the order in which trainers number them.
std::vector<std::string> folders_with(const Listed& listed, std::string_view file) {
  std::vector<std::string> found;
  for (const std::string& name : listed.names) {
    if (is_there(listed.folder / name / file)) found.push_back(name);
  }
  std::ranges::sort(found, {}, [](const std::string& name) {
    return std::pair(name.size(), std::string_view(name));
  });
  return found;
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  if (names.size() <= most) return printable(join(names));
  const std::vector<std::string> some(names.begin(), names.begin() + most);
  return cat(printable(join(some)), " and ", names.size() - most, " more");
}

// The base that an adapter's configuration names.
std::string base_of_adapter(const fs::path& folder) {
  const auto text = read_text(folder / adapter_config, longest_adapter_config);
  if (!text.ok()) return {};
  const auto config = json::parse(*text, adapter_config);
  const json::Object* const object = config.ok() ? config->if_object() : nullptr;
  const json::Value* const base =
      object == nullptr ? nullptr : object->find("base_model_name_or_path");
  const std::string* const name = base == nullptr ? nullptr : base->if_string();
  return name == nullptr ? std::string() : *name;
}

Error adapter_for_model(const fs::path& path, const fs::path& folder, std::string_view command) {
  const std::string base = base_of_adapter(folder);
  std::string name = folder_name(folder);
  if (!is_adapter_name(name)) name = "NAME";
  return about(path, ErrorCode::invalid_argument,
               base.empty() ? std::string("an adapter, not a model")
                            : cat("an adapter of ", quote(base), ", not a model"),
               cat("name its base's folder: motley ", command, " BASE --adapter ", name, "=",
                   printable(path.native())));
}

// Why a folder without config.json is no model, as far as that can be seen.
std::optional<Error> explain_no_model(const fs::path& path, const Listed& listed,
                                      std::string_view command) {
  if (listed.has(adapter_config)) return adapter_for_model(path, listed.folder, command);
  if (const auto models = folders_with(listed, model_config); !models.empty())
    return about(path, ErrorCode::invalid_argument, "no model, but its folders hold some",
                 cat("name one: ", some_of(models)));
  if (const auto adapters = folders_with(listed, adapter_config); !adapters.empty())
    return about(path, ErrorCode::invalid_argument, "no model, but its folders hold adapters",
                 cat("name their base, and with --adapter one of ", some_of(adapters)));
  for (const std::string& name : listed.names) {
    if (!name.ends_with(".gguf")) continue;
    if (auto other = tensor::describe_other_file(listed.folder / name)) return other;
  }
  return std::nullopt;
}

// "PATH,pined": the part before a comma is a folder, and what follows no option.
std::optional<Error> explain_option(const fs::path& path, std::string_view option) {
  const std::string& text = path.native();
  for (std::size_t comma = text.find(','); comma != std::string::npos;
       comma = text.find(',', comma + 1)) {
    if (!is_folder(text.substr(0, comma))) continue;
    const std::string word = text.substr(comma + 1, text.find(',', comma + 1) - comma - 1);
    const auto meant = closest(word, adapter_option_words());
    return Error(ErrorCode::invalid_argument, cat(quote(word), " is no option of an adapter"),
                 std::string(option),
                 meant ? cat("did you mean ", *meant, "?")
                       : cat("options after the path are ", join(adapter_option_words())));
  }
  return std::nullopt;
}

std::optional<Error> explain_no_adapter(const fs::path& path, const Listed& listed) {
  if (listed.has(model_config))
    return about(path, ErrorCode::invalid_argument, "a model, not an adapter",
                 "name an adapter's folder; a model is the command's MODEL");
  if (const auto adapters = folders_with(listed, adapter_config); !adapters.empty())
    return about(path, ErrorCode::invalid_argument, "no adapter, but its folders hold some",
                 cat("name one: ", some_of(adapters)));
  return std::nullopt;
}

}  // namespace

bool is_repository_name(const fs::path& path) {
  const std::string& text = path.native();
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size()) return false;
  const auto is_word = [](std::string_view word) {
    return word.front() != '.' && std::ranges::all_of(word, [](char c) {
             return ascii::is_letter(c) || ascii::is_digit(c) || c == '.' || c == '_' || c == '-';
           });
  };
  const std::string_view all(text);
  return is_word(all.substr(0, slash)) && is_word(all.substr(slash + 1)) &&
         !is_there(path.parent_path());
}

Result<fs::path> find_folder(const fs::path& path) {
  MOTLEY_TRY(Listed listed, list(path));
  return std::move(listed.folder);
}

Result<fs::path> find_model_folder(const fs::path& path, std::string_view command) {
  MOTLEY_TRY(Listed listed, list(path));
  MOTLEY_TRY_VOID(refuse_pointers(listed));
  if (listed.has(model_config)) return std::move(listed.folder);
  if (auto reason = explain_no_model(path, listed, command)) return *std::move(reason);
  return std::move(listed.folder);
}

Result<fs::path> find_adapter_folder(const fs::path& path, std::string_view option) {
  if (!is_there(path)) {
    if (auto reason = explain_option(path, option)) return *std::move(reason);
  }
  MOTLEY_TRY(Listed listed, list(path));
  MOTLEY_TRY_VOID(refuse_pointers(listed));
  if (!listed.has(adapter_config)) {
    if (auto reason = explain_no_adapter(path, listed)) return *std::move(reason);
  }
  MOTLEY_TRY_VOID(lora::check_files(listed.folder));
  return std::move(listed.folder);
}

std::string folder_name(const fs::path& folder) {
  if (folder.empty()) return "base";
  std::error_code failure;
  fs::path whole = fs::canonical(folder, failure);
  if (failure) whole = folder;
  const fs::path above = whole.parent_path();
  if (above.filename() == "snapshots") {
    if (std::string name = repository_of(above.parent_path().filename().native()); !name.empty())
      return name;
  }
  return whole.filename().string();
}

Result<std::vector<std::string>> adapters_in(const fs::path& folder) {
  Listed listed{.folder = folder};
  MOTLEY_TRY(listed.names, list_folder(folder));
  return folders_with(listed, adapter_config);
}

}  // namespace motley::cli
