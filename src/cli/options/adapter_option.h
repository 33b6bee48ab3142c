#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/options/arguments.h"
#include "lora/files/load.h"

namespace motley::cli {

// --adapter [NAME=]PATH[,pinned][,partial][,b-columns=rank-major|expert-major]
//           [,orientation=standard|swapped]
struct AdapterOption {
  std::string name;
  std::filesystem::path path = {};
  bool pinned = false;
  lora::LoadOptions load = {};
  bool optional = false;  // the start goes on without it if it can't be loaded
};

// Without NAME= the adapter has its folder's name. A path that holds '=' needs the name.
Result<AdapterOption> parse_adapter_option(std::string_view text);

// All --adapter options and those of vLLM's --lora-modules, each of a name of its own and with its
// folder found (named_folder.h).
Result<std::vector<AdapterOption>> read_adapter_options(const Arguments& arguments);

// The words that may follow an adapter's path: "pinned", "b-columns=" ...
std::span<const std::string_view> adapter_option_words();

}  // namespace motley::cli
