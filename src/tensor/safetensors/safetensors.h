#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/system/files.h"
#include "tensor/tensor.h"

// The safetensors container: 8 bytes of header length, a JSON header, then the tensors' bytes side
// by side, without holes or overlaps, up to the end of the file. Reading is strict: a file that
// breaks a rule is refused with the tensor's name, before any number of it is used.
namespace motley::tensor {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  // Bytes [begin, end) of the file. A tensor may begin at any byte.
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct SafetensorsHeader {
  // In ascending order of name.
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;

  const SafetensorsEntry* find(std::string_view name) const;
};

// Reads the header of a whole file's bytes; `where` is what messages call the file.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file,
                                            std::string_view where);

// Of a file of that size whose end is still to come: where its data begins, as its first bytes
// tell.
inline constexpr std::size_t first_bytes = 64;  // that are needed, or all of a shorter file
Result<std::size_t> data_begin(std::string_view beginning, std::uint64_t file_bytes,
                               std::string_view where);
// Reads its header, from all before the data.
Result<SafetensorsHeader> parse_beginning(std::string_view beginning, std::uint64_t file_bytes,
                                          std::string_view where);

// Refuses a file whose first bytes do not begin a safetensors file, without reading its header.
Result<void> check_safetensors_beginning(const std::filesystem::path& path);

// A caller's reasons to refuse a file by its header; `where` is what messages call the file.
using HeaderJudge =
    std::function<Result<void>(const SafetensorsHeader& header, std::string_view where)>;

class SafetensorsFile {
 public:
  // The header is read and judged first: a file that breaks a rule, or that `judge` refuses, costs
  // no memory for its data.
  static Result<SafetensorsFile> open(const std::filesystem::path& path,
                                      const FileRules& rules = {}, const HeaderJudge& judge = {});

  // Of a file that is in memory; its path is what messages call it. `header`: where it has been
  // parsed already.
  static Result<SafetensorsFile> of(MappedFile file, std::optional<SafetensorsHeader> header = {});

  const std::filesystem::path& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }
  std::uint64_t size() const { return file_.bytes().size(); }

  // A view into the file in memory, which must outlive it.
  ConstTensor tensor(const SafetensorsEntry& entry) const;

  // Starts reading a tensor's bytes in the background.
  void prefetch(const SafetensorsEntry& entry) const;

 private:
  SafetensorsFile(MappedFile file, SafetensorsHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}

  MappedFile file_;
  SafetensorsHeader header_;
};

// A tensor to write: contiguous, in the host's memory.
struct NamedTensor {
  std::string name;
  ConstTensor tensor;
};

// Refuses names that a file can't hold: one that occurs twice, and the one that the format keeps
// for itself.
Result<void> check_names(std::span<const NamedTensor> tensors, std::string_view where);

// Writes one file, wholly or not at all. Tensors are laid out by falling alignment, then name, and
// the header is padded, so that every tensor is aligned to its type.
Result<void> write_safetensors(const std::filesystem::path& path,
                               std::span<const NamedTensor> tensors,
                               const std::map<std::string, std::string>& metadata = {});

}  // namespace motley::tensor
