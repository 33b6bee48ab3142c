#pragma once

#include <string>

namespace motley::lora {

// An adapter by name, and its scale.
struct ScaledAdapter {
  std::string name;
  float scale = 1;

  friend auto operator<=>(const ScaledAdapter&, const ScaledAdapter&) = default;
};

}  // namespace motley::lora
