#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace motley::cli {

// The base that an adapter's configuration names (base_model_name_or_path); empty if it names none
// or can't be read. `beneath`: as base's FileRules.
std::string base_of_adapter(const std::filesystem::path& folder,
                            const std::filesystem::path& beneath);

// The base that is served, by every name that an adapter's configuration may have for it.
class ServedBase {
 public:
  // `names`: what requests call it. The `_name_or_path` of the folder's config.json counts, too.
  ServedBase(std::filesystem::path folder, std::vector<std::string> names);

  // Whether this name or path means the base. Paths of other machines count by their last
  // component, those into a Hugging Face cache by their repository, whichever the revision.
  bool is_named(std::string_view base) const;

  // An error if the adapter's configuration names another base. `beneath`: as base's FileRules.
  Result<void> check(const std::filesystem::path& adapter,
                     const std::filesystem::path& beneath) const;

  // Logs adapter.other_base if the adapter's configuration names another base. Not an error:
  // folders are renamed, and quantised or converted copies have names of their own.
  void warn(const std::string& adapter, const std::filesystem::path& folder,
            const std::filesystem::path& beneath) const;

 private:
  std::filesystem::path folder_;
  std::vector<std::string> names_;
};

}  // namespace motley::cli
