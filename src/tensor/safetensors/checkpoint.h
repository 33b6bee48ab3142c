#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/safetensors/safetensors.h"

namespace motley::tensor {

// Tensor name -> file name, as an index has it.
using WeightMap = std::map<std::string, std::string, std::less<>>;

// Reads the text of an index; `where` is what messages call it. Every file that it names lies in
// the index's own folder.
Result<WeightMap> parse_index(std::string_view text, std::string_view where);

// All tensors of a folder: one `<stem>.safetensors`, or the shards that
// `<stem>.safetensors.index.json` lists. Strict: every tensor of the index is in the shard that it
// names, and the shards hold no tensor that the index lacks. Files stay in memory as long as this
// lives.
class Checkpoint {
 public:
  // The stem is "model" for models and "adapter_model" for adapters.
  // `judge` may refuse each file by its header, before its data takes memory.
  static Result<Checkpoint> open(const std::filesystem::path& folder, std::string_view stem,
                                 const FileRules& rules = {}, const HeaderJudge& judge = {});
  // Whether the folder has those files, as far as their names and first bytes tell.
  static Result<void> check(const std::filesystem::path& folder, std::string_view stem);

  // A single file, whatever its name.
  static Result<Checkpoint> open_file(const std::filesystem::path& path,
                                      const FileRules& rules = {}, const HeaderJudge& judge = {});

  // A single file that is in memory, as SafetensorsFile::of() takes it.
  static Result<Checkpoint> of(MappedFile file, std::optional<SafetensorsHeader> header = {});

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
// `max_bytes_a_file`, as numbered shards and an index. What an earlier checkpoint of that stem
// left does not stay in force: after a crash half way there is the old one, the new one, or none.
Result<void> write_checkpoint(const std::filesystem::path& folder, std::string_view stem,
                              std::span<const NamedTensor> tensors, std::uint64_t max_bytes_a_file);

}  // namespace motley::tensor
