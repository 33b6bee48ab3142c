#pragma once

#include <cstddef>
#include <cstdint>

namespace motley::engine {

// How requests get the experts that routers chose: of a token [layers, top_k] numbers in the order
// of the model's experts, the best choice first, as unsigned integers of bytes_each(), least byte
// first. All layers of the model count; those without experts have zeros.
struct RoutedExpertsSizes {
  int layers = 0;  // 0: they are not kept
  int top_k = 0;
  int experts = 0;  // of a layer

  bool kept() const { return layers > 0; }
  int bytes_each() const { return experts <= 256 ? 1 : 2; }
  std::size_t bytes_of_token() const {
    return static_cast<std::size_t>(layers) * static_cast<std::size_t>(top_k) *
           static_cast<std::size_t>(bytes_each());
  }

  friend bool operator==(const RoutedExpertsSizes&, const RoutedExpertsSizes&) = default;
};

}  // namespace motley::engine
