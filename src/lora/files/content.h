#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/system/files.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::lora {

// The files of an adapter, held by the server: loads read them as often as it is needed, whatever
// has become of the files that they came from. Never changes.
class AdapterContent {
 public:
  static constexpr std::string_view config_name = "adapter_config.json";
  static constexpr std::string_view weights_stem = "adapter_model";
  static constexpr std::size_t max_config_bytes = 16 << 20;
  // The key of a safetensors file's metadata whose value is the text of adapter_config.json.
  static constexpr std::string_view config_key = "adapter_config";

  // Of a safetensors file with that key. `name` is what the log calls the content; `header`: where
  // check_header() has accepted it already.
  static Result<std::unique_ptr<AdapterContent>> of(
      MappedFile file, std::string name, std::optional<tensor::SafetensorsHeader> header = {});
  // Whether the header of such a file has the configuration of an adapter; `where` is what messages
  // call the file.
  static Result<void> check_header(const tensor::SafetensorsHeader& header, std::string_view where);
  // The configuration that such a header has.
  static std::string_view config_of(const tensor::SafetensorsHeader& header);

  // How a folder's files are copied.
  struct Copying {
    FileRules rules = FileAccess::copied;
    // Called with the bytes of each file before it is copied; may refuse.
    std::function<Result<void>(std::uint64_t bytes)> take = {};
  };
  // `path` may also be a file as of() takes it.
  static Result<std::unique_ptr<AdapterContent>> copy_of(const std::filesystem::path& path,
                                                         std::string name, const Copying& copying);

  const std::string& name() const { return name_; }
  const std::string& config() const { return config_; }
  const tensor::Checkpoint& tensors() const { return tensors_; }
  std::uint64_t bytes() const { return tensors_.file_bytes() + config_.size(); }
  // Of the tensors' bytes: SHA-256 of the SHA-256 of each tensor, one after the other in the order
  // of their names, in hexadecimal digits.
  const std::string& checksum() const { return checksum_; }

 private:
  AdapterContent(std::string name, std::string config, tensor::Checkpoint tensors);

  std::string name_;
  std::string config_;
  tensor::Checkpoint tensors_;
  std::string checksum_;
};

}  // namespace motley::lora
