#include "kernels/cuda/grouped/instances.cuh"

namespace motley::kernels::cuda::grouped {

template Instance find_instance<ExpertFormat::bf16, 1, Pages::f8>(const GroupedTiles&);

}  // namespace motley::kernels::cuda::grouped
