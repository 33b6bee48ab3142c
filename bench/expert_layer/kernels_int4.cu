// Instances of the expert kernel over int4 weights.
#include "host.h"
#include "layer_kernel.cuh"

namespace expert_layer {

const void* int4_kernel(const Config& c) {
  constexpr Format kFormat = Format::kInt4;
  bool lora = c.adapters > 0, two = c.blocks_per_sm == 2;
  auto pick = [&](const void* base, const void* with_lora) { return lora ? with_lora : base; };
  if (c.split && c.max_width == 8 && two)
    return pick(reinterpret_cast<const void*>(
                    expert_layer_kernel<TileShape<kFormat, 1, true, 4, false>, 8, 2>),
                reinterpret_cast<const void*>(
                    expert_layer_kernel<TileShape<kFormat, 1, true, 4, true>, 8, 2>));
  if (!c.split && c.blocks == 1 && c.max_width <= 16 && two)
    return pick(reinterpret_cast<const void*>(
                    expert_layer_kernel<TileShape<kFormat, 1, false, 4, false>, 16, 2>),
                reinterpret_cast<const void*>(
                    expert_layer_kernel<TileShape<kFormat, 1, false, 4, true>, 16, 2>));
  if (!c.split && c.blocks == 1 && c.max_width <= 16 && c.blocks_per_sm == 3 && !lora)
    return reinterpret_cast<const void*>(
        expert_layer_kernel<TileShape<kFormat, 1, false, 1>, 16, 3>);
  if (lora) return nullptr;
  if (c.blocks == 2 && c.max_width <= 128 && c.blocks_per_sm == 1)
    return reinterpret_cast<const void*>(expert_layer_kernel<TileShape<kFormat, 2, false>, 128, 1>);
  return nullptr;
}

}  // namespace expert_layer
