#include "tensor/safetensors/other_files.h"

#include <string>

#include "base/cat.h"
#include "base/system/files.h"

namespace motley::tensor {
namespace {

constexpr std::string_view git_lfs = "version https://git-lfs.github.com/spec/";

std::optional<Error> describe_pointer(std::string_view beginning, std::string_view where) {
  if (!beginning.starts_with(git_lfs)) return std::nullopt;
  return Error(ErrorCode::bad_file, "a Git LFS pointer, not the file itself", std::string(where),
               "run git lfs pull in its folder");
}

// Whether it may be the length of a header, the first 8 bytes of a safetensors file. Those of some
// lengths look like the magic numbers below.
bool may_be_safetensors(std::string_view beginning) {
  return beginning.size() >= 8 && beginning.substr(4, 4) == std::string_view("\0\0\0\0", 4);
}

std::string beginning_of(const std::filesystem::path& path) {
  const auto file = OpenFile::open(path);
  if (!file.ok()) return {};
  const auto read = file->read_at(0, longest_magic);
  return read.ok() ? *read : std::string();
}

}  // namespace

std::optional<Error> describe_other_file(std::string_view beginning, std::string_view where) {
  if (may_be_safetensors(beginning)) return std::nullopt;
  if (auto pointer = describe_pointer(beginning, where)) return pointer;
  if (beginning.starts_with("GGUF"))
    return Error(ErrorCode::unsupported, "a GGUF file, which motley does not read",
                 std::string(where), "use the model's safetensors files");
  // A pickle may be bare, or in a zip archive as PyTorch writes it.
  if (beginning.starts_with("PK\x03\x04") || beginning.starts_with("\x80\x02") ||
      beginning.starts_with("\x80\x04"))
    return Error(ErrorCode::unsupported, "a pickle or a zip archive, not safetensors",
                 std::string(where), "a pickle can run any code; convert it to safetensors");
  if (beginning.starts_with("{"))
    return Error(ErrorCode::bad_file, "JSON, not safetensors", std::string(where),
                 "name a safetensors file, or a folder");
  return std::nullopt;
}

std::optional<Error> describe_other_file(const std::filesystem::path& path) {
  return describe_other_file(beginning_of(path), printable(path.native()));
}

std::optional<Error> describe_pointer(const std::filesystem::path& path) {
  return describe_pointer(beginning_of(path), printable(path.native()));
}

}  // namespace motley::tensor
