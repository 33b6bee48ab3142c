#include "kernels/cuda/experts/grouped/kernels.cuh"

namespace motley::kernels::cuda::grouped {

template std::span<const GroupedKernel> kernels_of<ExpertFormat::int4_any, false>();
template std::span<const GroupedKernel> kernels_of<ExpertFormat::int4_any, true>();

}  // namespace motley::kernels::cuda::grouped
