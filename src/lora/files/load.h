#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "lora/files/adapter.h"
#include "lora/site.h"

namespace motley::tensor {
struct SafetensorsHeader;
}

namespace motley::lora {

class AdapterContent;

// Order of the columns of a packed B: rank * E + expert, or expert * r + rank.
enum class BColumns : std::uint8_t { automatic, rank_major, expert_major };
// Whether packed factors have in and out exchanged.
enum class Orientation : std::uint8_t { automatic, standard, swapped };

// Options that the file does not determine and a user may know.
struct LoadOptions {
  BColumns b_columns = BColumns::automatic;
  Orientation orientation = Orientation::automatic;
  // Modules that the configuration names and the file lacks count as zero, with a warning.
  bool partial = false;
  // Of a folder that a client names: its files lie in this folder once links are followed (base's
  // FileRules). Empty: they may lie anywhere.
  std::filesystem::path beneath = {};
};

// "rank-major", "expert-major"; "standard", "swapped".
Result<BColumns> parse_b_columns(std::string_view text);
Result<Orientation> parse_orientation(std::string_view text);

// Reads adapter_config.json and adapter_model.safetensors. Every tensor is used, or the load fails
// and names it: `unsupported` if the kind of file is known but not implemented, `bad_file` if it is
// damaged or contradicts itself or the base.
Result<Adapter> load_adapter(const std::filesystem::path& folder, const LoadOptions& options,
                             const BaseView& base);

// The same of files that are in memory already; the content must outlive the adapter.
Result<Adapter> load_adapter(const AdapterContent& content, const LoadOptions& options,
                             const BaseView& base);

// Refuses by its header a file that load_adapter() would refuse for a name, a type or a shape;
// `config`: the text of its adapter_config.json. For use before the tensors' bytes are read.
Result<void> check_header(const tensor::SafetensorsHeader& header, std::string_view config,
                          const LoadOptions& options, const BaseView& base);

// The text of a folder's adapter_config.json; `beneath` as LoadOptions has it.
Result<std::string> read_adapter_config(const std::filesystem::path& folder,
                                        const std::filesystem::path& beneath = {});

// Refuses a folder that load_adapter() would refuse over every base, as far as its configuration
// and the first bytes of its weights tell. Reads no tensors.
Result<void> check_files(const std::filesystem::path& folder);

}  // namespace motley::lora
