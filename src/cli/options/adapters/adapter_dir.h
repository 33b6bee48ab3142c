#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options/adapters/adapter_option.h"
#include "engine/requests/adapter_spec.h"
#include "serving/engine_settings.h"

namespace motley::cli {

// --adapter-dir DIR: a folder whose folders are adapters, each served by its folder's name. Those
// that are there at the start are loaded then, others when a request names them first. Nothing is
// remembered of a name that was not found.
class AdapterDir {
 public:
  // An error if the adapter in that folder is of another base than the one that is served. Its
  // files are read beneath the other one only.
  using FitsBase = std::function<Result<void>(const std::filesystem::path& adapter,
                                              const std::filesystem::path& beneath)>;

  static Result<AdapterDir> open(const std::filesystem::path& folder, FitsBase fits_base);

  const std::filesystem::path& folder() const { return folder_; }
  // All that are whole and fit the base, by name. Logs a warning for each of the others.
  Result<std::vector<serving::StartAdapter>> list() const;
  // Nothing if there is no adapter of that name. An error if there is one that is not whole, does
  // not fit the base, or lies elsewhere.
  Result<std::optional<engine::AdapterSpec>> find(const std::string& name) const;

 private:
  AdapterDir(std::filesystem::path folder, FitsBase fits_base)
      : folder_(std::move(folder)), fits_base_(std::move(fits_base)) {}

  std::filesystem::path folder_;  // without links
  FitsBase fits_base_;
};

}  // namespace motley::cli
