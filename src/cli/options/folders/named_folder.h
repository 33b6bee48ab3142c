#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/cache.h"

// The folders that a command line names. They are checked before anything is loaded, because a
// large model takes minutes; each usual mistake has its own message.
namespace motley::cli {

// A folder, or a repository in the Hugging Face cache, of which the snapshot is taken:
//   hf://ORG/NAME[@REV]  always the cache
//   ORG/NAME[@REV]       the cache, where there is no such folder here
//   models--ORG--NAME    the path of a repository's folder in any cache
// A revision is the branch main unless it is given. Nothing is downloaded.
Result<std::filesystem::path> find_folder(const std::filesystem::path& path,
                                          const hub::Cache& cache);

// Whether a path names a repository rather than a folder that is there or may be meant.
bool means_repository(const std::filesystem::path& path, const hub::Cache& cache);

// The folder of a model, as find_folder() finds it. Of a snapshot all files that are read are
// there. `command` is the one that was called, for the advice about an adapter's folder.
Result<std::filesystem::path> find_model_folder(const std::filesystem::path& path,
                                                std::string_view command, const hub::Cache& cache);

// The same for an adapter. The configuration and the beginnings of the weights' files are read, so
// what fails later depends on the base or on tensors.
Result<std::filesystem::path> find_adapter_folder(const std::filesystem::path& path,
                                                  const hub::Cache& cache);

// What requests call a model or an adapter in this folder by default: the path's last component,
// however the path is written. Of a repository its name, "ORG/NAME", without the revision.
std::string folder_name(const std::filesystem::path& folder);

// The folders in this one that hold an adapter, sorted by name.
Result<std::vector<std::string>> adapters_in(const std::filesystem::path& folder);

}  // namespace motley::cli
