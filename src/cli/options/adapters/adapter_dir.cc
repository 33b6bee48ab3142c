#include "cli/options/adapters/adapter_dir.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/files.h"
#include "engine/adapter_name.h"
#include "lora/files/load.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view option = "--adapter-dir";
constexpr std::string_view config = "adapter_config.json";

// A folder's name that is an adapter's: of one part, and not hidden.
bool may_be_adapter(std::string_view name) {
  return engine::is_adapter_name(name) && !name.starts_with('.') &&
         name.find('/') == std::string_view::npos;
}

Error wrong(const std::string& name, std::string what, std::string fix) {
  return {ErrorCode::invalid_argument, std::move(what), cat("adapter ", quote(name)),
          std::move(fix)};
}

}  // namespace

Result<AdapterDir> AdapterDir::open(const fs::path& folder, FitsBase fits_base) {
  MOTLEY_TRY(const PathKind kind, path_kind(folder));
  if (kind != PathKind::folder)
    return Error(ErrorCode::invalid_argument, cat("no such folder ", quote(folder.native())),
                 std::string(option), "name one that holds adapters' folders");
  std::error_code failure;
  fs::path whole = fs::canonical(folder, failure);
  if (failure)
    return Error(ErrorCode::bad_file, cat("can't read it: ", failure.message()),
                 printable(folder.native()), "check its permissions");
  return AdapterDir(std::move(whole), std::move(fits_base));
}

Result<std::optional<engine::AdapterSpec>> AdapterDir::find(const std::string& name) const {
  using Found = std::optional<engine::AdapterSpec>;
  if (!may_be_adapter(name)) return Found();
  std::error_code failure;
  const fs::path folder = fs::canonical(folder_ / name, failure);
  if (failure) return Found();
  if (folder.parent_path() != folder_)
    return wrong(name, "its folder is a link out of --adapter-dir", "copy it there");
  MOTLEY_TRY(const PathKind kind, path_kind(folder / config));
  if (kind == PathKind::missing) return Found();
  if (Result<void> whole = lora::check_files(folder); !whole.ok())
    return std::move(whole).error().as(ErrorCode::invalid_argument);
  if (fits_base_) MOTLEY_TRY_VOID(fits_base_(folder, folder_));
  engine::AdapterSpec spec{.name = name, .path = folder};
  spec.load.beneath = folder_;
  return Found(std::move(spec));
}

Result<std::vector<serving::StartAdapter>> AdapterDir::list() const {
  MOTLEY_TRY(std::vector<std::string> names, list_folder(folder_));
  std::ranges::sort(names);
  std::vector<serving::StartAdapter> adapters;
  for (const std::string& name : names) {
    const auto found = find(name);
    if (!found.ok())
      log::warning("adapter.left_out", {{"adapter", name}, {"reason", found.error().message()}});
    else if (*found)
      adapters.push_back(
          {.name = name, .path = (*found)->path, .load = (*found)->load, .optional = true});
  }
  return adapters;
}

}  // namespace motley::cli
