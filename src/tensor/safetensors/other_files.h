#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"

// Files that people have in place of safetensors, known by their first bytes.
namespace motley::tensor {

// The longest beginning that the functions below need.
inline constexpr std::size_t longest_magic = 64;

// What a file is that begins so, and what to do about it; nothing if it may be safetensors. `where`
// names the file in the message.
std::optional<Error> describe_other_file(std::string_view beginning, std::string_view where);

// The same for a file on disk; nothing if it can't be read.
std::optional<Error> describe_other_file(const std::filesystem::path& path);

// Only whether it is a pointer that Git LFS leaves in place of a large file.
std::optional<Error> describe_pointer(const std::filesystem::path& path);

}  // namespace motley::tensor
