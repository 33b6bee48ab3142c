#include "cli/options/folders/named_folder.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/cat.h"
#include "base/spelling.h"
#include "base/system/files.h"
#include "cli/options/folders/adapter_base.h"
#include "engine/adapter_name.h"
#include "hub/cache.h"
#include "hub/repository.h"
#include "lora/files/load.h"
#include "tensor/safetensors/checkpoint.h"
#include "tensor/safetensors/other_files.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view model_config = "config.json";
constexpr std::string_view adapter_config = "adapter_config.json";
// What is read of a repository; without the blobs of other files nothing is lost.
constexpr std::array<std::string_view, 3> endings = {".json", ".jinja", ".safetensors"};
constexpr std::span<const std::string_view> text_endings = std::span(endings).first(2);

Error about(const fs::path& path, ErrorCode code, std::string what, std::string fix) {
  return {code, std::move(what), printable(path.native()), std::move(fix)};
}

bool is_there(const fs::path& path) {
  const auto kind = path_kind(path);
  return kind.ok() && *kind != PathKind::missing;
}

// Nothing is there, not even a link to nothing.
bool is_missing(const fs::path& path) {
  const auto kind = path_kind(path);
  return kind.ok() && *kind == PathKind::missing;
}

// "ORG/NAME" -> "ORG"
fs::path first_part(const fs::path& path) {
  return path.native().substr(0, path.native().find('/'));
}

Error no_folder(const fs::path& path, const hub::Cache& cache) {
  const std::string& text = path.native();
  std::string fix = "check the path";
  if (text.find("://") != std::string::npos) {
    fix = "name a folder, or a repository of Hugging Face as ORG/NAME[@REV]";
  } else if (hub::holds(cache, text)) {
    fix = cat("check the path; hf://", printable(text), " is in the Hugging Face cache");
  } else if (text.find_first_of("/@") != std::string::npos && text.find_first_of("/.~") != 0 &&
             is_missing(first_part(path))) {
    // A repository may be meant.
    if (const auto repository = hub::parse_repository(text); !repository.ok())
      fix += cat("; ", repository.error().what());
  }
  return about(path, ErrorCode::not_found, "no such folder", std::move(fix));
}

Error file_for_folder(const fs::path& path) {
  const auto other = tensor::describe_other_file(path);
  if (other && other->code() == ErrorCode::unsupported) return *other;
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  return about(path, ErrorCode::invalid_argument, "a file, and a folder is needed",
               cat("name its folder, ", printable(parent.native())));
}

// A folder that is there and can be read, with its contents.
struct Listed {
  fs::path folder;
  std::vector<std::string> names;
  std::optional<hub::Snapshot> snapshot = {};  // that it is, in a Hugging Face cache

  bool has(std::string_view name) const { return std::ranges::find(names, name) != names.end(); }
};

Result<Listed> locate(const fs::path& path, const hub::Cache& cache) {
  if (means_repository(path, cache)) {
    MOTLEY_TRY(const hub::Repository repository, hub::parse_repository(path.native()));
    auto snapshot = hub::find_snapshot(cache, repository);
    if (snapshot.ok())
      return Listed{.folder = snapshot->folder, .names = {}, .snapshot = *snapshot};
    const bool may_be_folder =
        !path.native().starts_with(hub::scheme) && !hub::holds(cache, repository.id);
    if (!may_be_folder) return std::move(snapshot).error();
    const Error& error = snapshot.error();
    return Error(error.code(), cat("no such folder, and ", error.what()), error.where(),
                 error.fix());
  }
  MOTLEY_TRY(const PathKind kind, path_kind(path));
  if (kind == PathKind::missing) return no_folder(path, cache);
  if (kind == PathKind::file) return file_for_folder(path);
  if (kind == PathKind::other)
    return about(path, ErrorCode::invalid_argument, "neither a file nor a folder", "name a folder");
  MOTLEY_TRY(auto snapshot, hub::snapshot_of_folder(path, cache));
  if (snapshot) return Listed{.folder = snapshot->folder, .names = {}, .snapshot = snapshot};
  return Listed{.folder = path, .names = {}, .snapshot = hub::snapshot_at(path)};
}

Result<Listed> list(const fs::path& path, const hub::Cache& cache) {
  MOTLEY_TRY(Listed listed, locate(path, cache));
  MOTLEY_TRY(listed.names, list_folder(listed.folder));
  return listed;
}

// What a snapshot lacks was not downloaded, or not to its end.
Result<void> refuse_incomplete(const Listed& listed, std::string_view config,
                               const hub::Cache& cache) {
  if (!listed.snapshot) return {};
  MOTLEY_TRY_VOID(hub::check_links(cache, *listed.snapshot, endings));
  if (listed.has(config)) return {};
  return hub::lacks_file(cache, *listed.snapshot, listed.folder / config);
}

// The error of a file that is missing, with the advice that helps.
Error in_snapshot(Error error, const Listed& listed, const hub::Cache& cache) {
  if (!listed.snapshot || error.code() != ErrorCode::not_found) return error;
  return {ErrorCode::bad_file, error.what(), error.where(),
          cat("finish its download: ", hub::download_command(cache, *listed.snapshot))};
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

Error adapter_for_model(const fs::path& path, const fs::path& folder, std::string_view command) {
  const std::string base = base_of_adapter(folder, {});
  std::string name = folder_name(folder);
  if (!engine::is_adapter_name(name)) name = "NAME";
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
    return about(listed.folder, ErrorCode::invalid_argument, "no model, but its folders hold some",
                 cat("name one: ", some_of(models)));
  if (const auto adapters = folders_with(listed, adapter_config); !adapters.empty())
    return about(listed.folder, ErrorCode::invalid_argument,
                 "no model, but its folders hold adapters",
                 cat("name their base, and with --adapter one of ", some_of(adapters)));
  for (const std::string& name : listed.names) {
    if (!name.ends_with(".gguf")) continue;
    if (auto other = tensor::describe_other_file(listed.folder / name)) return other;
  }
  return std::nullopt;
}

std::optional<Error> explain_no_adapter(const fs::path& path, const Listed& listed) {
  if (listed.has(model_config))
    return about(path, ErrorCode::invalid_argument, "a model, not an adapter",
                 "name an adapter's folder; a model is the command's MODEL");
  if (const auto adapters = folders_with(listed, adapter_config); !adapters.empty())
    return about(listed.folder, ErrorCode::invalid_argument,
                 "no adapter, but its folders hold some", cat("name one: ", some_of(adapters)));
  return std::nullopt;
}

}  // namespace

bool means_repository(const fs::path& path, const hub::Cache& cache) {
  if (path.native().starts_with(hub::scheme)) return true;
  if (!is_missing(path)) return false;
  const auto repository = hub::parse_repository(path.native());
  if (!repository.ok()) return false;
  return hub::holds(cache, repository->id) || is_missing(first_part(path));
}

Result<fs::path> find_folder(const fs::path& path, const hub::Cache& cache) {
  MOTLEY_TRY(Listed listed, list(path, cache));
  if (listed.snapshot) MOTLEY_TRY_VOID(hub::check_links(cache, *listed.snapshot, text_endings));
  return std::move(listed.folder);
}

Result<fs::path> find_model_folder(const fs::path& path, std::string_view command,
                                   const hub::Cache& cache) {
  MOTLEY_TRY(Listed listed, list(path, cache));
  MOTLEY_TRY_VOID(refuse_pointers(listed));
  if (!listed.has(model_config)) {
    if (auto reason = explain_no_model(path, listed, command)) return *std::move(reason);
  }
  MOTLEY_TRY_VOID(refuse_incomplete(listed, model_config, cache));
  if (listed.snapshot) {
    auto checked = tensor::Checkpoint::check(listed.folder, "model");
    if (!checked.ok()) return in_snapshot(std::move(checked).error(), listed, cache);
  }
  return std::move(listed.folder);
}

Result<fs::path> find_adapter_folder(const fs::path& path, const hub::Cache& cache) {
  MOTLEY_TRY(Listed listed, list(path, cache));
  MOTLEY_TRY_VOID(refuse_pointers(listed));
  if (!listed.has(adapter_config)) {
    if (auto reason = explain_no_adapter(path, listed)) return *std::move(reason);
  }
  MOTLEY_TRY_VOID(refuse_incomplete(listed, adapter_config, cache));
  auto checked = lora::check_files(listed.folder);
  if (!checked.ok()) return in_snapshot(std::move(checked).error(), listed, cache);
  return std::move(listed.folder);
}

std::string folder_name(const fs::path& folder) {
  if (folder.empty()) return "base";
  if (folder.native().starts_with(hub::scheme) || is_missing(folder)) {
    if (auto repository = hub::parse_repository(folder.native()); repository.ok())
      return std::move(repository->id);
  }
  if (auto snapshot = hub::snapshot_at(folder)) return std::move(snapshot->repository.id);
  std::error_code failure;
  fs::path whole = fs::canonical(folder, failure);
  if (failure) whole = folder;
  return whole.filename().string();
}

Result<std::vector<std::string>> adapters_in(const fs::path& folder) {
  Listed listed{.folder = folder};
  MOTLEY_TRY(listed.names, list_folder(folder));
  return folders_with(listed, adapter_config);
}

}  // namespace motley::cli
