#include "cli/options/folders/adapter_base.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/system/files.h"
#include "cli/options/folders/named_folder.h"
#include "hub/cache.h"
#include "hub/repository.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_config = std::size_t{16} << 20;

// A string of a configuration; empty if it is absent.
std::string read_setting(const fs::path& file, std::string_view key, const fs::path& beneath) {
  const auto text = read_text(file, longest_config, beneath);
  if (!text.ok()) return {};
  const auto config = json::parse(*text, "config");
  const json::Object* const object = config.ok() ? config->if_object() : nullptr;
  const json::Value* const value = object == nullptr ? nullptr : object->find(key);
  const std::string* const string = value == nullptr ? nullptr : value->if_string();
  return string == nullptr ? std::string() : *string;
}

// A path into a Hugging Face cache, or a name with a revision, as the repository's name.
std::string plain_name(std::string_view base) {
  while (base.size() > 1 && base.ends_with('/')) base.remove_suffix(1);
  if (base.starts_with('/')) {
    if (auto snapshot = hub::snapshot_at(base)) return std::move(snapshot->repository.id);
  }
  if (auto repository = hub::parse_repository(base); repository.ok())
    return std::move(repository->id);
  return std::string(base);
}

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('/') + 1); }

}  // namespace

std::string base_of_adapter(const fs::path& folder, const fs::path& beneath) {
  return read_setting(folder / "adapter_config.json", "base_model_name_or_path", beneath);
}

ServedBase::ServedBase(fs::path folder, std::vector<std::string> names)
    : folder_(std::move(folder)) {
  names.push_back(folder_name(folder_));
  names.push_back(read_setting(folder_ / "config.json", "_name_or_path", {}));
  for (const std::string& each : names) {
    if (!each.empty()) names_.push_back(plain_name(each));
  }
}

bool ServedBase::is_named(std::string_view base) const {
  const std::string name = plain_name(base);
  const auto agrees = [&](const std::string& known) {
    return hub::is_same_id(known, name) || hub::is_same_id(last_part(known), last_part(name));
  };
  if (std::ranges::any_of(names_, agrees)) return true;
  std::error_code failure;
  return base.starts_with('/') && fs::equivalent(base, folder_, failure) && !failure;
}

Result<void> ServedBase::check(const fs::path& adapter, const fs::path& beneath) const {
  const std::string base = base_of_adapter(adapter, beneath);
  if (base.empty() || is_named(base)) return {};
  return Error(ErrorCode::invalid_argument,
               cat("it was trained on ", quote(base), ", and the base is ", quote(names_.front())),
               cat("adapter ", quote(adapter.filename().string())),
               "serve that base, or start with --any-base");
}

void ServedBase::warn(const std::string& adapter, const fs::path& folder,
                      const fs::path& beneath) const {
  const std::string base = base_of_adapter(folder, beneath);
  if (base.empty() || is_named(base)) return;
  log::warning(
      "adapter.other_base",
      {{"adapter", adapter},
       {"trained_on", base},
       {"base", names_.front()},
       {"effect", "it is applied all the same"},
       {"advice", "check that it was trained on this model; --name ID gives this base the name"}});
}

}  // namespace motley::cli
