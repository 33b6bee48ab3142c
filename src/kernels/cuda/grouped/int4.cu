#include "kernels/cuda/grouped/instances.cuh"

namespace motley::kernels::cuda::grouped {

template Instance find_instance<ExpertFormat::int4, 1, Pages::none>(const GroupedTiles&);
template Instance find_instance<ExpertFormat::int4, 1, Pages::bf16>(const GroupedTiles&);

}  // namespace motley::kernels::cuda::grouped
