#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/safetensors.h"

namespace motley::tensor {

// All tensors of a folder: one `<stem>.safetensors`, or the shards that
// `<stem>.safetensors.index.json` lists. Strict: every tensor of the index is in the shard that it
// names, and the shards hold no tensor that the index lacks. Files stay mapped as long as this
// lives.
class Checkpoint {
 public:
  // The stem is "model" for models and "adapter_model" for adapters.
  static Result<Checkpoint> open(const std::filesystem::path& folder, std::string_view stem);

  // A single file, whatever its name.
  static Result<Checkpoint> open_file(const std::filesystem::path& path);

  struct Item {
    const SafetensorsEntry* entry;
    const SafetensorsFile* file;

    const std::string& name() const { return entry->name; }
    ConstTensor tensor() const { return file->tensor(*entry); }
  };

  // In ascending order of name.
  std::span<const Item> items() const { return items_; }
  const Item* find(std::string_view name) const;

  std::span<const SafetensorsFile> files() const { return files_; }
  std::uint64_t file_bytes() const;

 private:
  explicit Checkpoint(std::vector<SafetensorsFile> files);

  // Never grows after construction: items_ points into it.
  std::vector<SafetensorsFile> files_;
  std::vector<Item> items_;
};

// Writes tensors in order of name as `<stem>.safetensors`, or, where they exceed
// `most_bytes_a_file`, as numbered shards and an index.
Result<void> write_checkpoint(const std::filesystem::path& folder, std::string_view stem,
                              std::span<const NamedTensor> tensors,
                              std::uint64_t most_bytes_a_file);

}  // namespace motley::tensor
