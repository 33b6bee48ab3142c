#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "lora/files/load.h"

namespace motley::cli {

// --adapter NAME=PATH[,pinned][,partial][,b-columns=rank-major|expert-major]
//           [,orientation=standard|swapped]
struct AdapterOption {
  std::string name;
  std::filesystem::path path = {};
  bool pinned = false;
  lora::LoadOptions load = {};
};

Result<AdapterOption> parse_adapter_option(std::string_view text);

// 1 to 200 letters, digits, '.', '_', '/' and '-'.
bool is_adapter_name(std::string_view name);

}  // namespace motley::cli
