#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// The folders that a command line names. They are checked before anything is loaded, because a
// large model takes minutes; each usual mistake has its own message.
namespace motley::cli {

// A folder of any kind, and the snapshot of a repository in a Hugging Face cache.
Result<std::filesystem::path> find_folder(const std::filesystem::path& path);

// Whether a path can only mean a repository of Hugging Face: "Qwen/Qwen3-30B-A3B", and there is no
// folder "Qwen" here.
bool is_repository_name(const std::filesystem::path& path);

// The folder of a model, which is the path itself. Of a repository in a Hugging Face cache
// (models--ORG--NAME) it is the snapshot of the branch main. `command` is the one that was called,
// for the advice about an adapter's folder.
Result<std::filesystem::path> find_model_folder(const std::filesystem::path& path,
                                                std::string_view command);

// The same for an adapter. The configuration and the beginnings of the weights' files are read, so
// what fails later depends on the base or on tensors. `option` is the command line's word, which
// the path is from: text after a comma that is no option of an adapter is named.
Result<std::filesystem::path> find_adapter_folder(const std::filesystem::path& path,
                                                  std::string_view option);

// What requests call a model or an adapter in this folder by default: the path's last component,
// however the path is written. In a Hugging Face cache the repository's name, "ORG/NAME".
std::string folder_name(const std::filesystem::path& folder);

// The folders in this one that hold an adapter, sorted by name.
Result<std::vector<std::string>> adapters_in(const std::filesystem::path& folder);

}  // namespace motley::cli
