#include "kernels/cuda/experts/grouped/kernels.cuh"

namespace motley::kernels::cuda::grouped {

template std::span<const GroupedKernel> kernels_of<ExpertFormat::int4, false>();
template std::span<const GroupedKernel> kernels_of<ExpertFormat::int4, true>();

}  // namespace motley::kernels::cuda::grouped
