#include "kernels/cuda/grouped/instances.cuh"

namespace motley::kernels::cuda::grouped {

Instance int4_instance(const GroupedTiles& tiles, bool lora) {
  return lora ? find_instance<ExpertFormat::int4, 1, true>(tiles)
              : find_instance<ExpertFormat::int4, 1, false>(tiles);
}

}  // namespace motley::kernels::cuda::grouped
