#include "lora/files/content.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "base/sha256.h"
#include "base/system/parallel.h"
#include "lora/files/config/config.h"
#include "lora/files/load.h"

namespace motley::lora {
namespace {

using tensor::Checkpoint;

std::span<const std::byte> bytes_of(const Checkpoint::Item& item) {
  return {item.tensor().bytes(), item.entry->end - item.entry->begin};
}

std::string checksum_of(const Checkpoint& tensors) {
  const std::span<const Checkpoint::Item> items = tensors.items();
  std::vector<Sha256::Digest> digests(items.size());
  for_each_index(items.size(), tensors.file_bytes(), [&](std::size_t i) {
    Sha256 hash;
    hash.add(bytes_of(items[i]));
    digests[i] = hash.digest();
  });
  Sha256 all;
  for (const Sha256::Digest& each : digests) all.add(each);
  return to_hex(all.digest());
}

// Whether a load would refuse it over every base.
Result<void> check_config(std::string_view text, std::string_view where) {
  MOTLEY_TRY(const Config config, parse_adapter_config(text, where));
  return config.within_budget();
}

}  // namespace

AdapterContent::AdapterContent(std::string name, std::string config, Checkpoint tensors)
    : name_(std::move(name)),
      config_(std::move(config)),
      tensors_(std::move(tensors)),
      checksum_(checksum_of(tensors_)) {}

Result<void> AdapterContent::check_header(const tensor::SafetensorsHeader& header,
                                          std::string_view where) {
  const auto found = header.metadata.find(std::string(config_key));
  if (found == header.metadata.end())
    return Error(ErrorCode::bad_file, cat("no ", config_key, " in the metadata"),
                 std::string(where),
                 cat("write the text of ", config_name, " into __metadata__ under this key"));
  if (found->second.size() > max_config_bytes)
    return Error(ErrorCode::bad_file,
                 cat("an ", config_key, " of ", found->second.size(), " bytes, and it may have ",
                     max_config_bytes),
                 std::string(where), "send less");
  return check_config(found->second, cat(where, ", ", config_key));
}

std::string_view AdapterContent::config_of(const tensor::SafetensorsHeader& header) {
  return header.metadata.at(std::string(config_key));
}

Result<std::unique_ptr<AdapterContent>> AdapterContent::of(
    MappedFile file, std::string name, std::optional<tensor::SafetensorsHeader> header) {
  const std::string where = printable(file.path().native());
  const bool checked = header.has_value();
  MOTLEY_TRY(Checkpoint tensors, Checkpoint::of(std::move(file), std::move(header)));
  const tensor::SafetensorsHeader& read = tensors.files().front().header();
  if (!checked) MOTLEY_TRY_VOID(check_header(read, where));
  std::string config(config_of(read));
  return std::unique_ptr<AdapterContent>(
      new AdapterContent(std::move(name), std::move(config), std::move(tensors)));
}

Result<std::unique_ptr<AdapterContent>> AdapterContent::copy_of(const std::filesystem::path& path,
                                                                std::string name,
                                                                const Copying& copying) {
  MOTLEY_TRY(const PathKind kind, path_kind(path));
  if (kind == PathKind::missing) return no_such_path(path);
  if (kind != PathKind::folder) {
    MOTLEY_TRY(const OpenFile opened, OpenFile::open(path, copying.rules));
    if (copying.take) MOTLEY_TRY_VOID(copying.take(opened.size()));
    MOTLEY_TRY(MappedFile file, opened.load());
    return of(std::move(file), std::move(name));
  }
  MOTLEY_TRY(std::string config, read_adapter_config(path, copying.rules.beneath));
  MOTLEY_TRY_VOID(check_config(config, config_name));
  const auto judge = [&](const tensor::SafetensorsHeader& header,
                         std::string_view) -> Result<void> {
    std::uint64_t bytes = 0;
    for (const tensor::SafetensorsEntry& each : header.entries)
      bytes = std::max<std::uint64_t>(bytes, each.end);
    return copying.take ? copying.take(bytes) : Result<void>();
  };
  MOTLEY_TRY(Checkpoint tensors, Checkpoint::open(path, weights_stem, copying.rules, judge));
  return std::unique_ptr<AdapterContent>(
      new AdapterContent(std::move(name), std::move(config), std::move(tensors)));
}

}  // namespace motley::lora
