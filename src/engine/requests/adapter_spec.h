#pragma once

#include <filesystem>
#include <string>

#include "lora/files/load.h"

namespace motley::engine {

// The source of an adapter.
struct AdapterSpec {
  std::string name;
  std::filesystem::path path;
  bool pinned = false;  // never evicted
  lora::LoadOptions load = {};
};

}  // namespace motley::engine
