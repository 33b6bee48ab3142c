#include "kernels/cuda/grouped/instances.cuh"

namespace motley::kernels::cuda::grouped {

template Instance find_instance<ExpertFormat::bf16, 1, Pages::none>(const GroupedTiles&);
template Instance find_instance<ExpertFormat::bf16, 1, Pages::bf16>(const GroupedTiles&);

}  // namespace motley::kernels::cuda::grouped
