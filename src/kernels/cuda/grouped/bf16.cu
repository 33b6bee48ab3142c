#include "kernels/cuda/grouped/instances.cuh"

namespace motley::kernels::cuda::grouped {

Instance bf16_instance(const GroupedTiles& tiles, bool lora) {
  return lora ? find_instance<ExpertFormat::bf16, 1, true>(tiles)
              : find_instance<ExpertFormat::bf16, 1, false>(tiles);
}

}  // namespace motley::kernels::cuda::grouped
