#include "kernels/cuda/experts/grouped/kernels.cuh"

namespace motley::kernels::cuda::grouped {

template std::span<const GroupedKernel> kernels_of<ExpertFormat::int4_any_fine, false>();
template std::span<const GroupedKernel> kernels_of<ExpertFormat::int4_any_fine, true>();

}  // namespace motley::kernels::cuda::grouped
